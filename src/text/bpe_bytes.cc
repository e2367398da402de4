#include "text/bpe_bytes.h"

#include <array>

#include "text/utf8.h"

namespace lathe::text {
namespace {

constexpr bool is_printable(unsigned byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }
constexpr char32_t kEnd = 0x144;

struct Tables {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kEnd> bytes{};
};

constexpr Tables kTables = [] {
  Tables tables;
  for (auto& byte : tables.bytes) byte = -1;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t code = is_printable(byte) ? byte : next++;
    tables.chars[byte] = code;
    tables.bytes[code] = static_cast<int16_t>(byte);
  }
  return tables;
}();

}  // namespace

char32_t byte_level_char(unsigned char byte) { return kTables.chars[byte]; }

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, byte_level_char(static_cast<unsigned char>(byte)));
  return out;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Decoded decoded = decode_utf8(text, at);
    if (decoded.code >= kEnd || kTables.bytes[decoded.code] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kTables.bytes[decoded.code]));
    at += decoded.length;
  }
  return out;
}

}  // namespace lathe::text
