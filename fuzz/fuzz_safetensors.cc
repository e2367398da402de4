// Any bytes as a safetensors file: an error with one sentence, or tensors that tile the data.

#include "input.h"
#include "weights/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const auto header = weights::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "input");
  if (!header) {
    fuzz::expect_message(header.error().message);
    return 0;
  }
  uint64_t at = 0;
  for (const weights::TensorEntry& tensor : header->tensors) {
    fuzz::expect(tensor.begin == at && tensor.end >= tensor.begin, "tensors follow each other without a hole");
    at = tensor.end;
    for (const int64_t dim : tensor.shape) fuzz::expect(dim >= 0, "no dimension is negative");
  }
  fuzz::expect(header->data_begin + at == size, "the data ends with the file");
  return 0;
}
