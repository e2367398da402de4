// Any bytes as a checkpoint of 8-bit matrices: an error with one sentence, or codes with one good scale for each of their blocks. The first byte says
// what the config announces.

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "input.h"
#include "models/stored_scales.h"
#include "weights/checkpoint.h"

namespace {

/// A file of this process with the bytes in it; the same one every time.
std::string store(const uint8_t* data, size_t size) {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("lathe_fuzz_scales_" + std::to_string(::getpid()) + ".safetensors")).string();
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  lathe::fuzz::expect(file != nullptr && std::fwrite(data, 1, size, file) == size && std::fclose(file) == 0, "the input is stored");
  return path;
}

void check(const lathe::MatrixView& matrix) {
  for (int64_t r = 0; r < matrix.scales.dim(0); ++r) {
    for (int64_t c = 0; c < matrix.scales.dim(1); ++c) {
      const float scale = matrix.scales.f32()[r * matrix.scales.dim(1) + c];
      lathe::fuzz::expect(std::isfinite(scale) && scale >= 0, "a scale is no number or negative");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  if (size == 0) return 0;
  auto checkpoint = weights::Checkpoint::open(store(data + 1, size - 1));
  if (!checkpoint) {
    fuzz::expect_message(checkpoint.error().message);
    return 0;
  }
  models::QuantizationConfig config;
  config.weights = static_cast<models::WeightFormat>(data[0] % 3);
  models::StoredScales stored(config, *checkpoint);
  for (const std::string& name : checkpoint->names()) {
    const std::vector<int64_t> shape = checkpoint->find(name)->shape;
    if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0) continue;
    const auto scales = stored.take(name, shape[0], shape[1]);
    if (!scales) {
      fuzz::expect_message(scales.error().message);
      continue;
    }
    const auto values = checkpoint->take(name);
    if (!values || !scales->present()) continue;
    const MatrixView matrix = values->dtype == DType::kI8 ? models::int8_matrix(*values, *scales) : models::fp8_matrix(*values, *scales);
    const auto good = stored.check_values(name, matrix);
    if (good) {
      check(matrix);
    } else {
      fuzz::expect_message(good.error().message);
    }
  }
  return 0;
}
