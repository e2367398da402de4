#pragma once
// Test support: a reader of GGUF files that shares no code with the writer.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lathe::models::golden {

/// One value of a key; arrays have one entry each.
struct GgufReadValue {
  uint32_t type = 0;  ///< number of the format; of an array that of its elements
  bool array = false;
  std::vector<double> numbers;
  std::vector<std::string> strings;
};

struct GgufReadTensor {
  uint32_t type = 0;
  std::vector<int64_t> shape;  ///< outermost first: the file's dimensions reversed
  std::vector<float> values;
  std::vector<float> slack;  ///< of each value, half of the step of its block (q8_0); else empty
};

struct GgufRead {
  std::string problem;  ///< empty: the file is whole and every byte of it is accounted for
  std::map<std::string, GgufReadValue> keys;
  std::map<std::string, GgufReadTensor> tensors;
};

GgufRead read_gguf(const std::string& path);

}  // namespace lathe::models::golden
