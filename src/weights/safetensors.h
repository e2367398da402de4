#pragma once
// The safetensors container: reading its header from any bytes, and writing files of that form.
// Format   8 bytes header length n (little endian), n bytes JSON, then the data. The JSON maps a tensor name to dtype, shape and
//          data_offsets [begin, end) relative to the data; "__metadata__" maps strings to strings.
// Source   the public description of the format; its strict rule is kept: tensors tile the data without overlap and without holes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/view.h"
#include "weights/stream.h"

namespace lathe::weights {

/// One tensor as the header declares it.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  ///< rank 0 … kMaxRank; every dimension >= 0
  uint64_t begin = 0;          ///< bytes from the start of the data
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

/// Bytes that dtype and shape of a tensor ask for.
uint64_t stored_bytes(const TensorEntry& tensor);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< ascending by begin: they tile [0, data size)
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t data_begin = 0;  ///< offset of the data in the file
};

/// Parses and checks the header of a whole file.
/// Errors  data_loss (truncated), invalid_argument (anything else); each names `file`, the tensor and the numbers:
///         header longer than limits.safetensors_header_bytes, bad JSON, duplicate name, dtype other than BF16 F16 F32 F8_E4M3 I64 I32 U8 I8,
///         shape beyond rank 5, shape x dtype != bytes, tensors that overlap, leave a hole or end outside the data.
/// Threads any; looks at `bytes` only, so that a fuzzer can call it.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> bytes, std::string_view file);

/// "BF16", "F8_E4M3", …: the name of a dtype in the container.
std::string_view safetensors_dtype_name(DType type);

/// "bf16[128, 1, 4]": for messages.
std::string describe_shape(DType dtype, std::span<const int64_t> shape);

using Metadata = std::span<const std::pair<std::string, std::string>>;

/// Tensors that are computed when they are due (stream.h). Only names, dtypes and shapes count of the entries; `fill` knows a tensor by its place among them.
struct ComputedTensors {
  std::span<const TensorEntry> tensors;
  FillPart fill;
  Metadata metadata = {};
};

/// Writes a file of them. They are laid out by falling element size, then by name, so every one is aligned; pieces begin at multiples of 8 bytes.
/// The file gets its name when it is whole.
/// Errors  invalid_argument (duplicate name, name "__metadata__"), those of stream_parts and OutputFile.
Result<void> write_safetensors(const std::string& path, const ComputedTensors& computed, const StreamOptions& options);

/// A tensor to be written; the view is contiguous, in host memory and stays valid until write_safetensors returns.
struct NamedView {
  std::string name;
  View view;
};

/// The same of tensors that are there. Errors: also invalid_argument (strided view).
Result<void> write_safetensors(const std::string& path, std::span<const NamedView> tensors, Metadata metadata = {});

}  // namespace lathe::weights
