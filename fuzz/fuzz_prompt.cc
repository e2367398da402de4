// Any bytes as a prompt of the built-in model: ids decode to the same text, the stream gives what decode gives, and no byte that is
// not marked as literal becomes a control token. The first byte says where literal spans lie.

#include "input.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace lathe;

const text::Tokenizer& tokenizer() {
  static const auto kTokenizer = text::Tokenizer::load(LATHE_SOURCE_DIR "/data/builtin/tokenizer.json");
  fuzz::expect(kTokenizer.has_value(), "the built-in tokenizer loads");
  return **kTokenizer;
}

void check_round_trip(const std::vector<TokenId>& ids, const std::string& text) {
  text::Detokenizer stream(tokenizer());
  std::string pieces;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    fuzz::expect(text::is_valid_utf8(piece), "every piece is whole characters");
    pieces += piece;
  }
  pieces += stream.flush();
  fuzz::expect(pieces == text, "the stream gives the text back");
  fuzz::expect(tokenizer().decode(ids) == text, "decode gives the text back");
}

/// Spans of `step` bytes with gaps of the same length, cut at characters so that the text stays what it is.
std::vector<text::LiteralSpan> spans_of(std::string_view text, size_t step) {
  std::vector<text::LiteralSpan> spans;
  for (size_t at = 0; step > 0 && at < text.size(); at += 2 * step) spans.push_back({at, std::min(at + step, text.size())});
  return spans;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view given = fuzz::text_of(data + 1, size - 1);
  const std::string text = text::replace_invalid_utf8(given);
  const auto special = tokenizer().encode(given);
  const auto plain = tokenizer().encode_plain(given);
  const auto marked = tokenizer().encode_marked(given, spans_of(given, data[0] % 64));
  fuzz::expect(special.has_value() && plain.has_value() && marked.has_value(), "a short prompt is encoded");
  check_round_trip(*special, text);
  check_round_trip(*plain, text);
  check_round_trip(*marked, text);
  for (const TokenId id : *plain) fuzz::expect(!tokenizer().is_added(id), "plain text gives no control token");
  return 0;
}
