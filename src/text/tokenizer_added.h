#pragma once
// Finds added tokens (special and other) in text: at the first place where one begins, the longest one.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"

namespace lathe::text {

/// One entry of "added_tokens".
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false;  ///< only if no word character touches it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool normalized = true;    ///< is looked for in normalised text
  bool special = false;      ///< a control token: skipped by decoding on request
};

class AddedMatcher {
 public:
  /// A part of a text: a token, or text between tokens (id -1).
  struct Part {
    TokenId id;
    size_t begin;
    size_t end;
  };

  AddedMatcher() = default;
  /// `patterns[i]` is what to look for to find `tokens[i]` (its content, perhaps normalised; not empty). Of equal patterns the first wins.
  AddedMatcher(const std::vector<AddedToken>& tokens, const std::vector<std::string>& patterns);

  bool empty() const { return tokens_.empty(); }

  /// Emits the parts of valid UTF-8 text in order. `literal` is empty or has one byte per byte of text: then only tokens whose own bytes are all
  /// literal ('\1') are found; white space that lstrip and rstrip take may be anything. Time O(n · longest pattern), in practice O(n).
  void split(std::string_view text, std::string_view literal, base::FunctionRef<void(const Part&)> emit) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t token = -1;  // index into tokens_
    unsigned char byte = 0;
  };
  int32_t child(int32_t node, unsigned char byte) const;
  int32_t longest_at(std::string_view text, std::string_view literal, size_t at, size_t& end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_{};  // node of each first byte, -1: no token begins so
};

}  // namespace lathe::text
