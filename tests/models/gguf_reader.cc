#include "gguf_reader.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

namespace lathe::models::golden {
namespace {

/// A cursor over the bytes; reading beyond their end gives zeros and is remembered.
class Cursor {
 public:
  explicit Cursor(std::string bytes) : bytes_(std::move(bytes)) {}
  template <class T>
  T number() {
    T value{};
    if (at_ + sizeof(T) > bytes_.size()) {
      beyond_ = true;
    } else {
      std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    }
    at_ += sizeof(T);
    return value;
  }
  std::string string() {
    const auto length = number<uint64_t>();
    if (beyond_ || length > bytes_.size() - at_) {
      beyond_ = true;
      return "";
    }
    at_ += length;
    return bytes_.substr(at_ - length, length);
  }
  void align(size_t to) { at_ = (at_ + to - 1) / to * to; }
  void move_to(size_t at) { at_ = at; }
  size_t at() const { return at_; }
  size_t size() const { return bytes_.size(); }
  bool beyond() const { return beyond_; }

 private:
  std::string bytes_;
  size_t at_ = 0;
  bool beyond_ = false;
};

void read_scalar(Cursor& in, uint32_t type, GgufReadValue& out) {
  switch (type) {
    case 0: out.numbers.push_back(in.number<uint8_t>()); return;
    case 1: out.numbers.push_back(in.number<int8_t>()); return;
    case 2: out.numbers.push_back(in.number<uint16_t>()); return;
    case 3: out.numbers.push_back(in.number<int16_t>()); return;
    case 4: out.numbers.push_back(in.number<uint32_t>()); return;
    case 5: out.numbers.push_back(in.number<int32_t>()); return;
    case 6: out.numbers.push_back(static_cast<double>(in.number<float>())); return;
    case 7: out.numbers.push_back(in.number<uint8_t>()); return;
    case 8: out.strings.push_back(in.string()); return;
    case 10: out.numbers.push_back(static_cast<double>(in.number<uint64_t>())); return;
    case 11: out.numbers.push_back(static_cast<double>(in.number<int64_t>())); return;
    case 12: out.numbers.push_back(in.number<double>()); return;
    default: in.move_to(in.size() + 1), in.number<uint8_t>(); return;  // no such type
  }
}

GgufReadValue read_value(Cursor& in) {
  GgufReadValue out;
  out.type = in.number<uint32_t>();
  uint64_t count = 1;
  if (out.type == 9) {
    out.array = true;
    out.type = in.number<uint32_t>();
    count = in.number<uint64_t>();
  }
  for (uint64_t i = 0; i < count && !in.beyond(); ++i) read_scalar(in, out.type, out);
  return out;
}

float half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24) : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

void read_data(Cursor& in, int64_t elements, GgufReadTensor& out) {
  for (int64_t i = 0; i < elements && !in.beyond();) {
    if (out.type == 8) {
      const float step = half(in.number<uint16_t>());
      for (int j = 0; j < 32; ++j, ++i) {
        out.values.push_back(step * static_cast<float>(in.number<int8_t>()));
        out.slack.push_back(step / 2);
      }
      continue;
    }
    if (out.type == 0) out.values.push_back(in.number<float>());
    if (out.type == 1) out.values.push_back(half(in.number<uint16_t>()));
    if (out.type == 30) out.values.push_back(std::bit_cast<float>(uint32_t{in.number<uint16_t>()} << 16));
    ++i;
  }
}

}  // namespace

GgufRead read_gguf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Cursor in(std::string(std::istreambuf_iterator<char>(file), {}));
  GgufRead out;
  const auto broken = [&](std::string what) { return out.problem = std::move(what), out; };
  if (in.number<uint32_t>() != 0x46554747 || in.number<uint32_t>() != 3) return broken("no GGUF file of version 3");
  const auto tensors = in.number<uint64_t>();
  const auto keys = in.number<uint64_t>();
  for (uint64_t i = 0; i < keys && !in.beyond(); ++i) {
    const std::string name = in.string();
    if (!out.keys.emplace(name, read_value(in)).second) return broken("key twice: " + name);
  }
  std::vector<std::pair<std::string, uint64_t>> order;
  for (uint64_t i = 0; i < tensors && !in.beyond(); ++i) {
    const std::string name = in.string();
    GgufReadTensor tensor;
    tensor.shape.resize(in.number<uint32_t>() % 5);
    for (size_t axis = tensor.shape.size(); axis-- > 0;) tensor.shape[axis] = static_cast<int64_t>(in.number<uint64_t>());
    tensor.type = in.number<uint32_t>();
    order.emplace_back(name, in.number<uint64_t>());
    if (!out.tensors.emplace(name, std::move(tensor)).second) return broken("tensor twice: " + name);
  }
  in.align(32);
  const size_t data = in.at();
  size_t end = data;
  for (const auto& [name, offset] : order) {
    if (data + offset != end) return broken(fmt::format("{} begins at {}, expected {}", name, offset, end - data));
    in.move_to(end);
    GgufReadTensor& tensor = out.tensors[name];
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    read_data(in, elements, tensor);
    in.align(32);
    end = in.at();
  }
  if (in.beyond() || end != in.size()) return broken(fmt::format("{} bytes are told, the file has {}", end, in.size()));
  return out;
}

}  // namespace lathe::models::golden
