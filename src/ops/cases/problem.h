#pragma once
// One call of an op with memory of its own: deterministic contents, guard bytes around every buffer, poison in every output and in the gaps between rows.
// Used by the conformance tests and by the micro-benchmarks.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops::cases {

/// Contents of a floating-point buffer.
struct Fill {
  enum class Kind : uint8_t { kNormal, kUniform, kConstant };
  Kind kind = Kind::kNormal;
  double a = 0;  ///< mean, lower border, value
  double b = 1;  ///< deviation, upper border
};
inline Fill normal(double deviation = 1, double mean = 0) { return {Fill::Kind::kNormal, mean, deviation}; }
inline Fill uniform(double low, double high) { return {Fill::Kind::kUniform, low, high}; }
inline Fill constant(double value) { return {Fill::Kind::kConstant, value, 0}; }

/// How a weight matrix is stored. offset: the matrix begins that far inside its parent and so inside a scale block.
struct Weights {
  DType dtype = DType::kBF16;
  bool scaled = false;
  int32_t block = 128;  ///< of FP8; INT8 has one scale a row
  int64_t row_offset = 0;
  int64_t col_offset = 0;
  double deviation = 1;  ///< of the values, times 1/sqrt(cols)
};

/// Sequences of a step: rows of each and where they start.
struct Batch {
  std::vector<int32_t> rows;
  std::vector<int32_t> start;
  int64_t tokens() const;
};

class Problem {
 public:
  explicit Problem(uint64_t seed = 1) : seed_(seed) {}

  /// The params struct; views made below belong into it. One call per problem.
  template <class Params>
  Params& make() {
    params_.resize((sizeof(Params) + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
    op_ = Params::kId;
    return *new (params_.data()) Params();
  }
  template <class Params>
  Params& get() {
    return *reinterpret_cast<Params*>(params_.data());
  }
  OpId op() const { return op_; }
  void* params() { return params_.data(); }
  const void* params() const { return params_.data(); }

  /// pad: unused elements between rows of the first axis.
  View in(DType dtype, const std::vector<int64_t>& shape, Fill fill = normal(), int64_t pad = 0) {
    return add({.dtype = dtype, .shape = shape, .fill = &fill, .pad = pad});
  }
  View inout(DType dtype, const std::vector<int64_t>& shape, Fill fill = normal(), int64_t pad = 0) {
    return add({.dtype = dtype, .shape = shape, .fill = &fill, .pad = pad, .writable = true});
  }
  View out(DType dtype, const std::vector<int64_t>& shape, int64_t pad = 0) {
    return add({.dtype = dtype, .shape = shape, .pad = pad, .writable = true});
  }
  View indices(const std::vector<int32_t>& values, std::vector<int64_t> shape = {});
  MatrixView matrix(const Weights& kind, int64_t rows, int64_t cols);
  /// Items 0, 2, … are stored as `even`, the others as `odd`.
  struct EvenOdd {
    const Weights& even;
    const Weights& odd;
  };
  MatrixStack mixed_stack(const EvenOdd& kinds, int32_t count, int64_t rows, int64_t cols);
  MatrixStack stack(const Weights& kind, int32_t count, int64_t rows, int64_t cols) {
    return mixed_stack({.even = kind, .odd = kind}, count, rows, cols);
  }
  Ragged ragged(const Batch& batch);
  /// Pool with room for `rows` rows per sequence, blocks of all sequences shuffled.
  struct Pool {
    DType dtype = DType::kF32;
    int64_t width = 0;
    int64_t sequences = 0;
    int64_t rows = 0;
    int64_t block_rows = 0;
    bool written = false;  ///< by the op
  };
  Paged paged(const Pool& pool);

  /// Remembers the inputs as they are now; call it after the last change and before a run.
  void seal();
  /// What a kernel damaged: guard bytes, gaps between rows, inputs. Empty if nothing.
  std::string damage() const;

 private:
  struct Block {
    std::vector<std::byte> bytes;  ///< guard, extent, guard
    View view;
    bool writable = false;
    uint64_t hash = 0;  ///< of everything, before the run (inputs)
  };
  struct Buffer {
    DType dtype;
    const std::vector<int64_t>& shape;
    const Fill* fill = nullptr;  ///< null: poison
    int64_t pad = 0;
    bool writable = false;
  };
  View add(const Buffer& buffer);

  uint64_t seed_;
  OpId op_ = OpId::kCount;
  std::vector<std::max_align_t> params_;
  std::deque<Block> blocks_;
  std::deque<std::vector<MatrixView>> stacks_;
  std::deque<std::vector<int32_t>> host_;
};

/// Calls f(offset in elements) for every element of a view, in order.
void each_element(const View& view, const std::function<void(int64_t)>& f);

/// Well-mixed bits of a counter: all randomness of the cases.
uint64_t mix(uint64_t x);

}  // namespace lathe::ops::cases
