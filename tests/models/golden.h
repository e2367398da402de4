#pragma once
// Test support: files of golden values, and the measures that they are compared with.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "weights/checkpoint.h"

namespace lathe::models::golden {

/// Value of a result that a test cannot go on without; prints the error and ends the process otherwise.
template <class T>
T must(Result<T> result, const char* what = "") {
  LATHE_CHECK(result.has_value(), "{}: {}", what, result.error().message);
  return std::move(*result);
}
inline void must(const Result<void>& result, const char* what = "") { LATHE_CHECK(result.has_value(), "{}: {}", what, result.error().message); }

/// A safetensors file, every tensor by name and as often as wanted.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);
  bool has(const std::string& name) const { return file_.has(name); }
  View view(const std::string& name);
  /// F32 tensor as a vector.
  std::vector<float> floats(const std::string& name);
  /// I32 or I64 tensor as int64.
  std::vector<int64_t> integers(const std::string& name);
  std::vector<TokenId> tokens(const std::string& name);
  int64_t dim(const std::string& name, int axis) { return view(name).dim(axis); }

 private:
  weights::Checkpoint file_;
  std::map<std::string, View> taken_;
};

/// data/… of the project.
std::string data_path(const std::string& name);
/// A path below LATHE_TEST_DATA (default: ../shared beside the project), or nothing if it is not there.
std::optional<std::string> outside_path(const std::string& name);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b);
/// Largest |a − b|; infinity if the sizes differ or something is not finite.
double worst_difference(const std::vector<float>& a, const std::vector<float>& b);
/// ‖a − b‖ / ‖b‖.
double relative_frobenius(const std::vector<float>& a, const std::vector<float>& b);
/// Index of the largest value of row `row`; lowest index on ties.
int64_t arg_max(const std::vector<float>& rows, int64_t row, int64_t width);
std::vector<float> slice_rows(const std::vector<float>& rows, int64_t width, int64_t begin, int64_t end);

}  // namespace lathe::models::golden
