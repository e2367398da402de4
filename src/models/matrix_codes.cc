#include "models/matrix_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "models/glm5_next_tensors.h"
#include "tensor/quantised.h"
#include "tensor/rows.h"

namespace lathe::models {
namespace {

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

/// Σ weight · (value − its code)² with `amax` as 127.
double weighted_error(std::span<const float> row, std::span<const float> weights, float amax) {
  const tensor::RunScale scale = tensor::run_scale(amax, DType::kI8);
  double error = 0;
  for (size_t c = 0; c < row.size(); ++c) {
    constexpr float kShift = 0x1.8p23f;  // rounds to the nearest even integer: there f32 has no halves
    const float code = (std::clamp(row[c] * scale.inverse, -127.0f, 127.0f) + kShift) - kShift;
    const double difference = static_cast<double>(code * scale.scale) - static_cast<double>(row[c]);
    error += static_cast<double>(weights[c]) * difference * difference;
  }
  return error;
}

}  // namespace

RowClip best_clip(std::span<const float> row, std::span<const float> weights) {
  RowClip out{.amax = tensor::largest_magnitude(row.data(), static_cast<int64_t>(row.size()))};
  if (!std::isfinite(out.amax)) return out;
  for (size_t c = 0; c < row.size(); ++c) out.square += static_cast<double>(weights[c]) * static_cast<double>(row[c]) * static_cast<double>(row[c]);
  const float largest = out.amax;
  out.error = out.error_plain = weighted_error(row, weights, largest);
  for (int percent = 98; percent >= 70; percent -= 2) {
    const float amax = largest * static_cast<float>(percent) / 100;
    const double error = weighted_error(row, weights, amax);
    if (error < out.error) out.error = error, out.amax = amax;
  }
  return out;
}

MatrixCodes::MatrixCodes(const MatrixView& matrix, DType to, std::span<const float> channel_weights)
    : matrix_(matrix), to_(to), channel_weights_(channel_weights) {
  LATHE_CHECK(channel_weights.empty() || (to == DType::kI8 && static_cast<int64_t>(channel_weights.size()) == matrix.cols()), "{} channel weights",
              channel_weights.size());
  errors_.error.resize(static_cast<size_t>(matrix.rows()));
  errors_.square.resize(static_cast<size_t>(matrix.rows()));
  if (!channel_weights.empty()) errors_.clips.resize(static_cast<size_t>(matrix.rows()));
}

RowClip MatrixCodes::known_clip(int64_t row) const {
  const base::Lock lock(mutex_);
  return errors_.clips[static_cast<size_t>(row)];
}

Result<std::vector<float>> MatrixCodes::amax_of(int64_t row_block, RowClip* clip) const {
  const bool blocks = to_ == DType::kF8E4M3;
  const int64_t width = blocks ? kScaleBlock : matrix_.cols();
  const int64_t first = blocks ? row_block * kScaleBlock : row_block;
  const int64_t last = blocks ? std::min(matrix_.rows(), first + kScaleBlock) : first + 1;
  std::vector<float> amax(static_cast<size_t>((matrix_.cols() + width - 1) / width));
  if (to_ == DType::kBF16) return amax;
  std::vector<float> row(static_cast<size_t>(matrix_.cols()));
  for (int64_t r = first; r < last; ++r) {
    tensor::row_as_float(matrix_, r, row);
    for (size_t block = 0; block < amax.size(); ++block) {
      const int64_t begin = static_cast<int64_t>(block) * width;
      const float largest = tensor::largest_magnitude(row.data() + begin, std::min(width, matrix_.cols() - begin));
      if (!std::isfinite(largest)) return err(Code::kDataLoss, "row {} holds a value that is no finite number", r);
      amax[block] = std::max(amax[block], largest);
    }
  }
  if (!channel_weights_.empty()) {
    RowClip best = known_clip(row_block);  // the search reads a row many times
    if (best.amax < 0) best = best_clip(row, channel_weights_);
    if (clip != nullptr) *clip = best;
    amax.front() = best.amax;
  }
  return amax;
}

double MatrixCodes::encode(std::span<const float> row, int64_t first, std::span<const float> amax, std::span<std::byte> out) const {
  double error = 0;
  const auto bytes = static_cast<int64_t>(tensor::dtype_bytes(to_));
  const auto count = static_cast<int64_t>(out.size()) / bytes;
  const int64_t width = to_ == DType::kF8E4M3 ? kScaleBlock : matrix_.cols();
  for (int64_t at = 0; at < count;) {
    const int64_t block = (first + at) / width;
    const int64_t end = std::min(count, (block + 1) * width - first);
    const tensor::RunScale scale = to_ == DType::kBF16 ? tensor::RunScale{1, 1} : tensor::run_scale(amax[static_cast<size_t>(block)], to_);
    for (; at < end; ++at) {
      const float value = row[static_cast<size_t>(first + at)];
      if (to_ == DType::kBF16) {
        tensor::store_from_float(to_, out.data(), at, value);
      } else {
        tensor::store_code(to_, out.data(), at, value, scale);
      }
      const double difference = static_cast<double>(tensor::load_as_float(to_, out.data(), at) * scale.scale) - static_cast<double>(value);
      error += difference * difference;
    }
  }
  return error;
}

Result<void> MatrixCodes::fill_values(uint64_t begin, std::span<std::byte> out) {
  const uint64_t row_bytes = static_cast<uint64_t>(matrix_.cols()) * tensor::dtype_bytes(to_);
  std::vector<float> row(static_cast<size_t>(matrix_.cols()));
  std::vector<float> amax;
  RowClip clip;
  int64_t known = -1;
  for (uint64_t at = 0; at < out.size();) {
    const auto r = static_cast<int64_t>((begin + at) / row_bytes);
    const uint64_t inside = (begin + at) % row_bytes;
    const uint64_t bytes = std::min<uint64_t>(row_bytes - inside, out.size() - at);
    if (row_block_of(r) != known) {
      LATHE_TRY(amax, amax_of(row_block_of(r), &clip));
      known = row_block_of(r);
    }
    tensor::row_as_float(matrix_, r, row);
    const size_t first = inside / tensor::dtype_bytes(to_);
    const std::span<const float> part = std::span(row).subspan(first, bytes / tensor::dtype_bytes(to_));
    if (!std::all_of(part.begin(), part.end(), [](float value) { return std::isfinite(value); }))
      return err(Code::kDataLoss, "row {} holds a value that is no finite number", r);
    const double error = encode(row, static_cast<int64_t>(first), amax, out.subspan(at, bytes));
    const double square = sum_of_squares(part);
    {
      const base::Lock lock(mutex_);  // two pieces may share a row
      if (!channel_weights_.empty()) errors_.clips[static_cast<size_t>(r)] = clip;
      errors_.error[static_cast<size_t>(r)] += error;
      errors_.square[static_cast<size_t>(r)] += square;
    }
    at += bytes;
  }
  return {};
}

Result<void> MatrixCodes::fill_scales(uint64_t begin, std::span<std::byte> out) const {
  std::vector<float> amax;
  int64_t known = -1;
  for (size_t at = 0; at < out.size(); at += sizeof(float)) {
    const auto index = static_cast<int64_t>((begin + at) / sizeof(float));
    const int64_t wide = to_ == DType::kF8E4M3 ? scale_blocks(matrix_.cols()) : 1;
    if (index / wide != known) {
      LATHE_TRY(amax, amax_of(index / wide));
      known = index / wide;
    }
    const float scale = tensor::run_scale(amax[static_cast<size_t>(index % wide)], to_).scale;
    std::memcpy(out.data() + at, &scale, sizeof(scale));
  }
  return {};
}

}  // namespace lathe::models
