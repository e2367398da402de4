// Pretokenizer::from_json.

#include "text/pretokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace lathe::text {
namespace {

using config::Json;

Result<SplitBehavior> behavior_member(const Json& json, std::string_view where) {
  LATHE_TRY(const std::string name, string_member(json, where, "behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return err(Code::kInvalidArgument, "{}: behavior '{}' is none of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous", where, name);
}

}  // namespace

Result<Pretokenizer> Pretokenizer::from_json(const Json& json) {
  Pretokenizer out;
  if (!json.is_null()) LATHE_TRY_VOID(out.add(json));
  int byte_levels = 0;
  for (const Step& step : out.steps_) byte_levels += step.byte_level ? 1 : 0;
  if (byte_levels != 1) {
    return err(Code::kUnimplemented, "pre_tokenizer: {} ByteLevel steps; only byte-level tokenizers, which have exactly one, are supported",
               byte_levels);
  }
  bool mapped = false;
  for (Step& step : out.steps_) {
    step.mapped = mapped;
    mapped = mapped || step.byte_level;
  }
  return out;
}

Result<void> Pretokenizer::add(const Json& json) {
  LATHE_TRY(const std::string type, string_member(json, "pre_tokenizer", "type"));
  if (type == "Sequence") {
    const Json* members = json.find("pretokenizers");
    if (members == nullptr || !members->is_array()) return err(Code::kInvalidArgument, "pre_tokenizer Sequence: 'pretokenizers' must be an array");
    for (const Json& member : members->as_array()) LATHE_TRY_VOID(add(member));
    return {};
  }
  if (type == "ByteLevel") return add_byte_level(json);
  if (type == "Split") return add_split(json);
  LATHE_TRY(const bool known, add_simple(json, type));
  if (!known) {
    return err(Code::kUnimplemented,
               "pre_tokenizer '{}' is not supported; known are Sequence, ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, Punctuation, "
               "CharDelimiterSplit",
               type);
  }
  return {};
}

Result<void> Pretokenizer::add_byte_level(const Json& json) {
  Step step;
  step.byte_level = true;
  LATHE_TRY(step.add_prefix_space, bool_member(json, "pre_tokenizer ByteLevel", "add_prefix_space", true));
  LATHE_TRY(const bool use_regex, bool_member(json, "pre_tokenizer ByteLevel", "use_regex", true));
  if (use_regex) {
    step.test = Test::kScanner;
    step.scanner = Scanner::kGpt2;
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<void> Pretokenizer::add_split(const Json& json) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  Step step;
  LATHE_TRY(PatternMember pattern, pattern_member(json, kWhere));
  LATHE_TRY(step.behavior, behavior_member(json, kWhere));
  LATHE_TRY(step.invert, bool_member(json, kWhere, "invert", false));
  step.scanner = pattern.regex ? scanner_for(pattern.text) : Scanner::kNone;
  if (!pattern.regex) {
    step.test = Test::kString;
    step.text = std::move(pattern.text);
  } else if (step.scanner != Scanner::kNone) {
    step.test = Test::kScanner;
  } else {
    LATHE_TRY(Regex regex, Regex::compile(pattern.text));
    step.test = Test::kRegex;
    step.regex = std::make_unique<Regex>(std::move(regex));
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<bool> Pretokenizer::add_simple(const Json& json, std::string_view type) {
  Step step;
  if (type == "Digits") {
    LATHE_TRY(const bool individual, bool_member(json, "pre_tokenizer Digits", "individual_digits", false));
    step.test = Test::kNumeric;
    step.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Whitespace") {
    step.test = Test::kWords;
    step.behavior = SplitBehavior::kRemoved;
    step.invert = true;
  } else if (type == "WhitespaceSplit") {
    step.test = Test::kWhiteSpace;
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "Punctuation") {
    step.test = Test::kPunctuation;
    if (json.find("behavior") != nullptr) {
      LATHE_TRY(step.behavior, behavior_member(json, "pre_tokenizer Punctuation"));
    }
  } else if (type == "CharDelimiterSplit") {
    LATHE_TRY(step.text, string_member(json, "pre_tokenizer CharDelimiterSplit", "delimiter"));
    if (step.text.empty() || decode_utf8(step.text, 0).length != step.text.size()) {
      return err(Code::kInvalidArgument, "pre_tokenizer CharDelimiterSplit: delimiter '{}' must be one character", step.text);
    }
    step.test = Test::kString;
    step.behavior = SplitBehavior::kRemoved;
  } else {
    return false;
  }
  steps_.push_back(std::move(step));
  return true;
}

}  // namespace lathe::text
