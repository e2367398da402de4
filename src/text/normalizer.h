#pragma once
// The `normalizer` of a tokenizer.json, applied to text whose bytes may be marked literal or value.
//
// Supported  Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace (String or Regex). Anything else is an error that names it.
// Marks      A changed piece is literal only if every byte that went into it is; what Prepend adds is a value.
// Threads    Immutable.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/json.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace lathe::text {

/// Valid UTF-8 text with a mark per byte, or without marks.
struct NormalText {
  std::string text;
  std::string literal;  ///< empty: not marked; else one byte per byte of text, '\1' where it is literal
};

class Normalizer {
 public:
  /// `json` is the value of "normalizer" (null: no steps). Errors: invalid_argument, unimplemented; both name the step.
  static Result<Normalizer> from_json(const config::Json& json);

  /// True if it changes nothing ever.
  bool empty() const { return steps_.empty(); }

  /// Errors: resource_exhausted, if a regular expression of the file gives up.
  Result<void> apply(NormalText& text) const;

 private:
  enum class Kind { kForm, kLowercase, kStrip, kPrepend, kReplace };
  struct Step {
    Kind kind = Kind::kForm;
    Form form = Form::kNfc;
    bool strip_left = true;
    bool strip_right = true;
    std::string pattern;  // kReplace
    std::string content;  // kReplace, kPrepend
    std::unique_ptr<Regex> regex;
  };

  Result<void> add(const config::Json& json);
  static Result<void> apply_step(const Step& step, NormalText& text);

  std::vector<Step> steps_;
};

}  // namespace lathe::text
