#include "text/detokenizer.h"

#include <utility>

#include "text/utf8.h"

namespace lathe::text {

std::string Detokenizer::push(TokenId id) {
  if (options_.skip_special && tokenizer_->is_special(id)) return "";
  pending_ += tokenizer_->bytes(id);
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Step step = utf8_step(pending_, at);
    if (step.kind == Utf8::kTruncated) break;
    if (step.kind == Utf8::kValid) {
      out.append(pending_, at, step.length);
    } else {
      out += kReplacement;
    }
    at += step.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Detokenizer::flush() {
  // What waits is the beginning of one character, that is one maximal subpart.
  return std::exchange(pending_, "").empty() ? "" : std::string(kReplacement);
}

}  // namespace lathe::text
