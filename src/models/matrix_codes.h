#pragma once
// A stored matrix in another format, byte by byte as a writer asks for it, and how far the new values are from the old ones.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sync.h"
#include "tensor/view.h"

namespace lathe::models {

/// The INT8 scale of a row whose channels count differently.
struct RowClip {
  float amax = -1;  ///< that stands for 127; below 0: not known yet
  // Sums of channel weight times the square of
  double error = 0;        ///< differences with that scale
  double error_plain = 0;  ///< differences with the scale of the largest magnitude
  double square = 0;       ///< values
};

/// Sums over the values of each row.
struct RowErrors {
  std::vector<double> error;   ///< [rows] squared differences
  std::vector<double> square;  ///< [rows] squares
  std::vector<RowClip> clips;  ///< [rows] with channel weights, else empty
};

/// Of some scales from the largest magnitude down to 0.7 of it, the one with the least error, the larger one of equals. weights [channels of row] >= 0.
/// A row with a value that is no finite number keeps its amax, which then is none either.
RowClip best_clip(std::span<const float> row, std::span<const float> weights);

/// Threads  fill functions may be called from many at once, for ranges that do not overlap. What they give is a function of matrix and range alone.
/// Errors   data_loss: a value that is no finite number, with its row
class MatrixCodes {
 public:
  /// `to`: I8 (a scale for each row), F8_E4M3 (for each block of 128 x 128) or BF16. The matrix is in host memory and outlives this object.
  /// `channel_weights`: empty, or [columns], of I8 only: scales are those of best_clip.
  MatrixCodes(const MatrixView& matrix, DType to, std::span<const float> channel_weights = {});

  /// Bytes [begin, begin + out.size()) of the values [rows, cols]; adds their errors up.
  Result<void> fill_values(uint64_t begin, std::span<std::byte> out);
  /// Of the scales, f32 [rows, 1] or [row blocks, column blocks]; not of BF16.
  Result<void> fill_scales(uint64_t begin, std::span<std::byte> out) const;

  const RowErrors& errors() const { return errors_; }

 private:
  /// What fill_values found for a row; amax below 0: nothing yet.
  RowClip known_clip(int64_t row) const;
  /// One scale for each block of columns, of the row's block of rows. `clip` of a row with channel weights.
  Result<std::vector<float>> amax_of(int64_t row_block, RowClip* clip = nullptr) const;
  int64_t row_block_of(int64_t row) const { return to_ == DType::kF8E4M3 ? row / 128 : row; }
  /// Values [first, …) of a row as codes; gives the sum of their squared differences.
  double encode(std::span<const float> row, int64_t first, std::span<const float> amax, std::span<std::byte> out) const;

  MatrixView matrix_;
  DType to_;
  std::span<const float> channel_weights_;
  mutable base::Mutex mutex_{"quantisation error"};
  RowErrors errors_;
};

}  // namespace lathe::models
