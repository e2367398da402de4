#include "text/tokenizer_added.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode.h"

namespace lathe::text {
namespace {

bool word_before(std::string_view text, size_t at) { return at > 0 && properties(decode_utf8_before(text, at).code).word(); }
bool word_after(std::string_view text, size_t at) { return at < text.size() && properties(decode_utf8(text, at).code).word(); }

size_t spaces_begin(std::string_view text, size_t end) {
  while (end > 0) {
    const Decoded decoded = decode_utf8_before(text, end);
    if (!properties(decoded.code).white_space()) break;
    end -= decoded.length;
  }
  return end;
}

size_t spaces_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Decoded decoded = decode_utf8(text, begin);
    if (!properties(decoded.code).white_space()) break;
    begin += decoded.length;
  }
  return begin;
}

}  // namespace

AddedMatcher::AddedMatcher(const std::vector<AddedToken>& tokens, const std::vector<std::string>& patterns) : tokens_(tokens) {
  LATHE_CHECK(tokens.size() == patterns.size());
  roots_.fill(-1);
  for (size_t i = 0; i < patterns.size(); ++i) {
    LATHE_CHECK(!patterns[i].empty());
    int32_t node = -1;
    for (const char c : patterns[i]) {
      const auto byte = static_cast<unsigned char>(c);
      int32_t next = node < 0 ? roots_[byte] : child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({.byte = byte});
        if (node < 0) {
          roots_[byte] = next;
        } else {
          nodes_.back().next_sibling = nodes_[static_cast<size_t>(node)].first_child;
          nodes_[static_cast<size_t>(node)].first_child = next;
        }
      }
      node = next;
    }
    int32_t& token = nodes_[static_cast<size_t>(node)].token;
    if (token < 0) token = static_cast<int32_t>(i);
  }
}

int32_t AddedMatcher::child(int32_t node, unsigned char byte) const {
  int32_t at = nodes_[static_cast<size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<size_t>(at)].byte != byte) at = nodes_[static_cast<size_t>(at)].next_sibling;
  return at;
}

/// Index of the longest token at `at` and its end; -1 if there is none.
int32_t AddedMatcher::longest_at(std::string_view text, std::string_view literal, size_t at, size_t& end) const {
  int32_t best = -1;
  int32_t node = -1;
  for (size_t i = at; i < text.size() && (literal.empty() || literal[i] != '\0'); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node = i == at ? roots_[byte] : child(node, byte);
    if (node < 0) break;
    if (const int32_t token = nodes_[static_cast<size_t>(node)].token; token >= 0) {
      best = token;
      end = i + 1;
    }
  }
  return best;
}

void AddedMatcher::split(std::string_view text, std::string_view literal, base::FunctionRef<void(const Part&)> emit) const {
  size_t done = 0;  // end of the last part
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    size_t end = at;
    const int32_t index = roots_[static_cast<unsigned char>(text[at])] < 0 ? -1 : longest_at(text, literal, at, end);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    at = end;  // also if the match is refused: the reference library does not look inside it again
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token.lstrip) begin = std::max(spaces_begin(text, begin), done);
    if (token.rstrip) end = spaces_end(text, end);
    if (done < begin) emit({-1, done, begin});
    emit({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) emit({-1, done, text.size()});
}

}  // namespace lathe::text
