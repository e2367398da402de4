#pragma once
// The op seam: identity, cost and views of an operation. The contracts of the ops themselves are the params structs of this folder;
// what they mean is defined by kernels/ref. See docs/adr/0002-op-seam.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/view.h"

namespace lathe::ops {

enum class OpId : uint8_t {
  kEmbed,
  kGatherRows,
  kAdd,
  kRmsNorm,
  kLayerNorm,
  kGelu,
  kMatmul,
  kRowAmax,
  kScaleSums,
  kSwiglu,
  kGateUp,
  kMhcIn,
  kMhcOut,
  kStreamMean,
  kShortConv,
  kKdaGate,
  kKdaRecurrence,
  kKdaVerify,
  kKdaFlush,
  kGatedNorm,
  kWriteLatents,
  kIndexKeys,
  kIndexSelect,
  kMlaAbsorb,
  kMlaAttend,
  kMlaUnabsorb,
  kMlaExpanded,
  kRoute,
  kMoe,
  kVisionRope,
  kVisionAttend,
  kCount
};
inline constexpr int kOpCount = static_cast<int>(OpId::kCount);

/// Things that an op must do a certain number of times; done/needed is 1.0 for a kernel that repeats nothing.
enum class Counter : uint8_t { kBytesRead, kBytesWritten, kFlops, kRowsNormalised, kExponentials, kDivisions, kWeightBytes, kCount };
inline constexpr int kCounterCount = static_cast<int>(Counter::kCount);
std::string_view counter_name(Counter counter);

/// The least work that the contract asks for with these params (bytes, FLOP = 2·MAC, events).
struct Cost {
  std::array<int64_t, kCounterCount> needed{};
  int64_t& operator[](Counter counter) { return needed[static_cast<size_t>(counter)]; }
  int64_t operator[](Counter counter) const { return needed[static_cast<size_t>(counter)]; }
};

/// How an op uses a view.
enum class Role : uint8_t { kIn, kOut, kInOut };

/// Receives every present view of a params struct, matrices as their values and scales. Views may be replaced: those of a params struct in place, those of
/// a MatrixStack in a copy of its items that belongs to the visitor, so keep the visitor until the op has run.
class ViewVisitor {
 public:
  ViewVisitor() = default;
  virtual ~ViewVisitor() = default;
  ViewVisitor(const ViewVisitor&) = delete;
  ViewVisitor& operator=(const ViewVisitor&) = delete;
  virtual void view(const char* name, Role role, View& view) = 0;

 private:
  friend struct VisitAdapter;
  std::vector<std::unique_ptr<MatrixView[]>> stacks_;  ///< items with replaced views
};

/// A list of matrices of one shape and dtype, e.g. one per expert. `items` is host memory that outlives the plan.
struct MatrixStack {
  const MatrixView* items = nullptr;
  int32_t count = 0;
  /// Elements from one item's values to the next if the same for all (what a GPU kernel needs), else nothing.
  std::optional<int64_t> uniform_stride() const;
};

/// What multiplies the weights: activations as they are, rounded, or as 8-bit codes of their own. Accumulation is FP32, of INT8 codes INT32.
/// The last two concern the matrices that fit them, and are kBF16 for all others: one call may mix formats.
enum class Compute : uint8_t {
  kF32,   ///< exact mode: inputs as they are, weights dequantised exactly
  kBF16,  ///< fast mode: activations rounded to BF16 (nearest even); weights BF16, FP8 or INT8 values, scales applied to FP32 partial sums
  kInt8,  ///< matrices of i8: activations as INT8 codes, one scale a row
  kFp8,   ///< matrices of f8_e4m3: activations as E4M3 codes, one scale for each run of 128 channels
};

/// Matrix `w` takes part in kInt8 or kFp8.
inline bool int8_product(const MatrixView& w, Compute compute) { return compute == Compute::kInt8 && w.values.dtype == DType::kI8; }
inline bool fp8_product(const MatrixView& w, Compute compute) { return compute == Compute::kFp8 && w.values.dtype == DType::kF8E4M3; }
/// Most channels of an INT8 product: 127 · 128 · 2^17 < 2^31.
inline constexpr int64_t kInt8ChannelsMax = int64_t{1} << 17;

/// What the runtime knows about one op. Explicit table in registry.cc.
struct OpInfo {
  OpId id;
  const char* name;
  size_t params_bytes;
  Result<void> (*validate)(const void* params);  ///< shapes, dtypes, ranges; called when a plan is built, never in the hot loop
  Cost (*cost)(const void* params);
  void (*visit)(void* params, ViewVisitor& visitor);
};
const OpInfo& op_info(OpId id);
std::optional<OpId> op_by_name(std::string_view name);

}  // namespace lathe::ops
