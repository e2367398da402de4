#include "golden.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/file.h"

namespace lathe::models::golden {

GoldenFile::GoldenFile(const std::string& path) : file_(must(weights::Checkpoint::open(path), path.c_str())) {}

View GoldenFile::view(const std::string& name) {
  const auto found = taken_.find(name);
  if (found != taken_.end()) return found->second;
  return taken_.emplace(name, must(file_.take(name), name.c_str())).first->second;
}

std::vector<float> GoldenFile::floats(const std::string& name) {
  const View v = view(name);
  std::vector<float> out(static_cast<size_t>(v.elements()));
  LATHE_CHECK(v.dtype == DType::kF32, "{} is {}", name, tensor::describe(v));
  std::memcpy(out.data(), v.data, out.size() * sizeof(float));
  return out;
}

std::vector<int64_t> GoldenFile::integers(const std::string& name) {
  const View v = view(name);
  std::vector<int64_t> out(static_cast<size_t>(v.elements()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = v.dtype == DType::kI64 ? v.i64()[i] : v.i32()[i];
  return out;
}

std::vector<TokenId> GoldenFile::tokens(const std::string& name) {
  const std::vector<int64_t> wide = integers(name);
  return {wide.begin(), wide.end()};
}

std::string data_path(const std::string& name) { return std::string(LATHE_SOURCE_DIR) + "/data/" + name; }

std::optional<std::string> outside_path(const std::string& name) {
  const char* const root = std::getenv("LATHE_TEST_DATA");
  std::string path = (root != nullptr ? std::string(root) : std::string(LATHE_SOURCE_DIR) + "/../shared") + "/" + name;
  if (!base::file_exists(path) && !base::is_directory(path)) return std::nullopt;
  return path;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

double relative_frobenius(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  const double ratio = std::sqrt(difference / norm);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

int64_t arg_max(const std::vector<float>& rows, int64_t row, int64_t width) {
  const float* const values = rows.data() + row * width;
  int64_t best = 0;
  for (int64_t i = 1; i < width; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

std::vector<float> slice_rows(const std::vector<float>& rows, int64_t width, int64_t begin, int64_t end) {
  return {rows.begin() + begin * width, rows.begin() + end * width};
}

}  // namespace lathe::models::golden
