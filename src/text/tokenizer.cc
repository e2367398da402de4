#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

/// Replaces invalid bytes; a replacement is literal only if all the bytes it stands for are.
NormalText repair(std::string_view text, std::string literal) {
  if (is_valid_utf8(text)) return {std::string(text), std::move(literal)};
  NormalText out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const bool valid = step.kind == Utf8::kValid;
    out.text += valid ? text.substr(at, step.length) : kReplacement;
    if (!literal.empty()) {
      const std::string_view marks = std::string_view(literal).substr(at, step.length);
      if (valid) {
        out.literal += marks;
      } else {
        out.literal.append(kReplacement.size(), marks.find('\0') == std::string_view::npos ? '\1' : '\0');
      }
    }
    at += step.length;
  }
  return out;
}

std::string_view marks_of(std::string_view literal, size_t begin, size_t end) {
  return literal.empty() ? literal : literal.substr(begin, end - begin);
}

Result<void> check_size(std::string_view text) {
  if (text.size() <= base::kLimits.prompt_bytes) return {};
  return err(Code::kInvalidArgument, "text to tokenize has {} bytes, the limit is {}", text.size(), base::kLimits.prompt_bytes);
}

}  // namespace

struct Tokenizer::Encoding {
  Encoding(size_t text_bytes, Bpe::Guard guard) : bpe(text_bytes, guard) {}
  std::vector<TokenId> ids;
  std::optional<Error> error;
  Pretokenizer::Scratch pieces;
  Bpe::Scratch bpe;
};

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text) const {
  LATHE_TRY_VOID(check_size(text));
  return encode_text(repair(text, ""), Bpe::Guard::kOff);
}

Result<std::vector<TokenId>> Tokenizer::encode_marked(std::string_view text, std::span<const LiteralSpan> literal) const {
  LATHE_TRY_VOID(check_size(text));
  std::string marks(text.size(), '\0');
  size_t done = 0;
  for (const LiteralSpan& span : literal) {
    if (span.begin < done || span.end < span.begin || span.end > text.size()) {
      return err(Code::kInvalidArgument, "literal span [{}, {}) is out of order or beyond the {} bytes of the text", span.begin, span.end,
                 text.size());
    }
    std::fill(marks.begin() + static_cast<std::ptrdiff_t>(span.begin), marks.begin() + static_cast<std::ptrdiff_t>(span.end), '\1');
    done = span.end;
  }
  return encode_text(repair(text, std::move(marks)), Bpe::Guard::kOn);
}

Result<std::vector<TokenId>> Tokenizer::encode_text(const NormalText& text, Bpe::Guard guard) const {
  Encoding run(text.text.size(), guard);
  encode_raw(run, text.text, text.literal);
  if (run.error) return tl::unexpected<Error>(*std::move(run.error));
  return std::move(run.ids);
}

void Tokenizer::encode_raw(Encoding& run, std::string_view text, std::string_view literal) const {
  raw_matcher_.split(text, literal, [&](const AddedMatcher::Part& part) {
    if (run.error) return;
    if (part.id >= 0) {
      run.ids.push_back(part.id);
      return;
    }
    const std::string_view gap = text.substr(part.begin, part.end - part.begin);
    const std::string_view marks = marks_of(literal, part.begin, part.end);
    if (normalizer_.empty()) return encode_normal(run, gap, marks);
    NormalText normal{std::string(gap), std::string(marks)};
    if (auto applied = normalizer_.apply(normal); !applied) {
      run.error = std::move(applied).error();
      return;
    }
    encode_normal(run, normal.text, normal.literal);
  });
}

void Tokenizer::encode_normal(Encoding& run, std::string_view text, std::string_view literal) const {
  normal_matcher_.split(text, literal, [&](const AddedMatcher::Part& part) {
    if (run.error) return;
    if (part.id >= 0) {
      run.ids.push_back(part.id);
    } else {
      encode_piece_text(run, text.substr(part.begin, part.end - part.begin));
    }
  });
}

void Tokenizer::encode_piece_text(Encoding& run, std::string_view text) const {
  auto split = pretokenizer_.split(text, run.pieces, [&](std::string_view piece) { bpe_.encode(piece, run.bpe, run.ids); });
  if (!split) run.error = std::move(split).error();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  Detokenizer detokenizer(*this, options);
  std::string out;
  for (const TokenId id : ids) out += detokenizer.push(id);
  return out + detokenizer.flush();
}

std::optional<TokenId> Tokenizer::find(std::string_view bytes) const {
  if (const auto it = by_content_.find(bytes); it != by_content_.end()) return it->second;
  if (const auto it = by_bytes_.find(bytes); it != by_bytes_.end()) return it->second;
  return std::nullopt;
}

}  // namespace lathe::text
