#include "text/normalizer.h"

#include <optional>
#include <utility>

#include "text/tokenizer_json.h"

namespace lathe::text {
namespace {

using config::Json;

/// Builds the result piece by piece from consecutive pieces of the source.
class Rebuild {
 public:
  explicit Rebuild(const NormalText& source) : source_(source) { out_.text.reserve(source.text.size()); }

  /// `length` bytes of the source as they are.
  void keep(size_t length) {
    out_.text.append(source_.text, at_, length);
    if (!source_.literal.empty()) out_.literal.append(source_.literal, at_, length);
    at_ += length;
  }
  /// `result` for the next `length` bytes of the source.
  void change(size_t length, std::string_view result) {
    out_.text += result;
    if (!source_.literal.empty()) {
      const std::string_view marks = std::string_view(source_.literal).substr(at_, length);
      const bool literal = length != 0 && marks.find('\0') == std::string_view::npos;
      out_.literal.append(result.size(), literal ? '\1' : '\0');
    }
    at_ += length;
  }
  size_t at() const { return at_; }
  NormalText take() { return std::move(out_); }

 private:
  const NormalText& source_;
  NormalText out_;
  size_t at_ = 0;
};

NormalText to_form(const NormalText& source, Form form) {
  Rebuild out(source);
  normalize_pieces(source.text, form, [&](std::string_view piece, std::string_view result) {
    if (piece.data() == result.data()) {
      out.keep(piece.size());
    } else {
      out.change(piece.size(), result);
    }
  });
  return out.take();
}

NormalText lowercase(const NormalText& source) {
  Rebuild out(source);
  std::string lower;
  while (out.at() < source.text.size()) {
    const Decoded decoded = decode_utf8(source.text, out.at());
    lower.clear();
    append_lower(lower, decoded.code);
    out.change(decoded.length, lower);
  }
  return out.take();
}

struct StripEnds {
  bool left = false, right = false;
};
NormalText strip(const NormalText& source, StripEnds ends) {
  size_t begin = 0;
  size_t end = source.text.size();
  while (ends.left && begin < end) {
    const Decoded decoded = decode_utf8(source.text, begin);
    if (!properties(decoded.code).white_space()) break;
    begin += decoded.length;
  }
  while (ends.right && begin < end) {
    const Decoded decoded = decode_utf8_before(source.text, end);
    if (!properties(decoded.code).white_space()) break;
    end -= decoded.length;
  }
  return {source.text.substr(begin, end - begin), source.literal.empty() ? "" : source.literal.substr(begin, end - begin)};
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const Json& json) {
  Normalizer out;
  if (!json.is_null()) LATHE_TRY_VOID(out.add(json));
  return out;
}

Result<void> Normalizer::add(const Json& json) {
  LATHE_TRY(const std::string type, string_member(json, "normalizer", "type"));
  Step step;
  if (type == "Sequence") {
    const Json* members = json.find("normalizers");
    if (members == nullptr || !members->is_array()) return err(Code::kInvalidArgument, "normalizer Sequence: 'normalizers' must be an array");
    for (const Json& member : members->as_array()) LATHE_TRY_VOID(add(member));
    return {};
  }
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.form = type == "NFC" ? Form::kNfc : type == "NFD" ? Form::kNfd : type == "NFKC" ? Form::kNfkc : Form::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    LATHE_TRY(step.strip_left, bool_member(json, "normalizer Strip", "strip_left", true));
    LATHE_TRY(step.strip_right, bool_member(json, "normalizer Strip", "strip_right", true));
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    LATHE_TRY(step.content, string_member(json, "normalizer Prepend", "prepend"));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    LATHE_TRY(PatternMember pattern, pattern_member(json, "normalizer Replace"));
    LATHE_TRY(step.content, string_member(json, "normalizer Replace", "content"));
    if (pattern.regex) {
      LATHE_TRY(Regex regex, Regex::compile(pattern.text));
      step.regex = std::make_unique<Regex>(std::move(regex));
    }
    step.pattern = std::move(pattern.text);
  } else {
    return err(Code::kUnimplemented, "normalizer '{}' is not supported; known are Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace",
               type);
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<void> Normalizer::apply(NormalText& text) const {
  for (const Step& step : steps_) LATHE_TRY_VOID(apply_step(step, text));
  return {};
}

Result<void> Normalizer::apply_step(const Step& step, NormalText& text) {
  switch (step.kind) {
    case Kind::kForm: text = to_form(text, step.form); return {};
    case Kind::kLowercase: text = lowercase(text); return {};
    case Kind::kStrip: text = strip(text, {.left = step.strip_left, .right = step.strip_right}); return {};
    case Kind::kPrepend:
      if (text.text.empty()) return {};
      text.text.insert(0, step.content);
      if (!text.literal.empty()) text.literal.insert(0, step.content.size(), '\0');
      return {};
    case Kind::kReplace: break;
  }
  Rebuild out(text);
  std::optional<Regex::Matcher> matcher;
  if (step.regex != nullptr) matcher.emplace(*step.regex);
  for (size_t from = 0; from < text.text.size();) {
    RegexMatch match{text.text.find(step.pattern, from), 0};
    match.end = match.begin + step.pattern.size();
    if (matcher) {
      LATHE_TRY(const std::optional<RegexMatch> found, matcher->find(text.text, from));
      match = found.value_or(RegexMatch{std::string::npos, std::string::npos});
    }
    if (match.begin == std::string::npos) break;
    out.keep(match.begin - out.at());
    out.change(match.end - match.begin, step.content);
    from = match.end > match.begin ? match.end : match.end < text.text.size() ? match.end + decode_utf8(text.text, match.end).length : match.end;
    if (match.end == text.text.size()) break;
  }
  out.keep(text.text.size() - out.at());
  text = out.take();
  return {};
}

}  // namespace lathe::text
