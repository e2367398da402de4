// tokenizer.json, a zero byte, a text. A file that loads must encode the text or say why not, and give ids of its own vocabulary.

#include "input.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lathe;
  const auto [file, given] = fuzz::cut(fuzz::text_of(data, size));
  const auto tokenizer = text::Tokenizer::from_text(file);
  if (!tokenizer) {
    fuzz::expect_message(tokenizer.error().message);
    return 0;
  }
  const std::string_view text = given.empty() ? std::string_view("Hello 123  w\xC3\xB6rld\n\n<|x|>!") : given;
  const text::Tokenizer& t = **tokenizer;
  for (const auto& ids : {t.encode(text), t.encode_plain(text)}) {
    if (!ids) {
      fuzz::expect_message(ids.error().message);
      continue;
    }
    text::Detokenizer stream(t);
    std::string pieces;
    for (const TokenId id : *ids) {
      fuzz::expect(t.is_defined(id), "encode gives ids that the file defines");
      pieces += stream.push(id);
    }
    pieces += stream.flush();
    fuzz::expect(pieces == t.decode(*ids), "the pieces of the stream are the text of the ids");
  }
  return 0;
}
