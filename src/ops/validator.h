#pragma once
// Checks of views against the shapes of a contract. Keeps the first failure, as one sentence: "matmul: weight 0 is bf16[512, 256], expected [N, K = 384 as in x]".

#include <fmt/core.h>

#include <initializer_list>
#include <string>

#include "ops/batch.h"
#include "ops/op.h"

namespace lathe::ops {

/// A dimension letter of a contract; the first view that has it fixes its size.
struct Dim {
  const char* letter;
  int64_t size = -1;
  std::string from{};

  Dim(const char* l) : letter(l) {}  // NOLINT(google-explicit-constructor): Dim T{"T"}
  Dim(const char* l, int64_t n) : letter(l), size(n) {}
};

/// Sets of dtypes, one bit each.
using Types = uint32_t;
constexpr Types type(DType dtype) { return 1u << static_cast<unsigned>(dtype); }
inline constexpr Types kF32Only = type(DType::kF32);
inline constexpr Types kI32Only = type(DType::kI32);
inline constexpr Types kVectorTypes = type(DType::kF32) | type(DType::kBF16);
inline constexpr Types kCodeTypes = type(DType::kI8) | type(DType::kF8E4M3);
inline constexpr Types kStateTypes = kF32Only | type(DType::kF16) | type(DType::kI8);
inline constexpr Types kMatrixTypes = kVectorTypes | type(DType::kF16) | kCodeTypes;

/// How the axes of a view may lie in memory. The last axis is contiguous in all of them.
enum class Layout : uint8_t {
  kRows,     ///< the first axis has any stride, the others are packed
  kPlanes,   ///< the first two axes have any stride
  kStreams,  ///< as kPlanes, and the second stride may be 0
};

class Validator {
 public:
  explicit Validator(const char* op) : op_(op) {}

  void view(const std::string& name, const View& v, Types types, std::initializer_list<Dim*> dims, Layout layout = Layout::kRows);
  void optional(const std::string& name, const View& v, Types types, std::initializer_list<Dim*> dims, Layout layout = Layout::kRows) {
    if (v.present()) view(name, v, types, dims, layout);
  }
  void matrix(const std::string& name, const MatrixView& m, Dim& rows, Dim& cols);
  void unscaled(const std::string& name, const MatrixView& m);
  /// An INT8 product of that many channels: the sum must fit an int32.
  void int8_channels(const std::string& name, const MatrixView& m, Compute compute);
  void stack(const std::string& name, const MatrixStack& s, Dim& count, Dim& rows, Dim& cols);
  /// begin, start; S is the number of sequences.
  void ragged(const Ragged& batch, Dim& sequences);
  void paged(const std::string& name, const Paged& p, Dim& sequences, Dim& width);
  /// A pool of KDA states [rows, H, K, V], with a scale for each column where it holds codes.
  struct StateDims {
    Dim &rows, &heads, &keys, &values;
  };
  void states(const std::string& name, const View& values, const View& scales, const StateDims& dims);
  /// Buffers that a kernel writes while it still reads the other.
  void distinct(const char* a, const View& va, const char* b, const View& vb);

  template <class... Args>
  void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
    if (!ok && message_.empty()) message_ = fmt::vformat(format, fmt::make_format_args(args...));
  }
  /// The first failure, "op: …".
  Result<void> done() const {
    if (message_.empty()) return {};
    return err(Code::kInvalidArgument, "{}: {}", op_, message_);
  }
  bool ok() const { return message_.empty(); }

 private:
  const char* op_;
  std::string message_;
};

}  // namespace lathe::ops
