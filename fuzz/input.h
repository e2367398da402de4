#pragma once
// What the fuzz targets share: the input as text, its parts, and a check that ends the run.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace lathe::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// The input cut at its first zero byte: what stands before and after it.
inline std::pair<std::string_view, std::string_view> cut(std::string_view input) {
  const size_t at = input.find('\0');
  if (at == std::string_view::npos) return {input, {}};
  return {input.substr(0, at), input.substr(at + 1)};
}

/// Ends the run with a message, so that libFuzzer keeps the input.
inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// One sentence: not empty, no line break.
inline void expect_message(std::string_view message) {
  expect(!message.empty(), "an error has a message");
  expect(message.find('\n') == std::string_view::npos, "a message is one line");
}

}  // namespace lathe::fuzz
