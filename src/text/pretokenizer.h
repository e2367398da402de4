#pragma once
// The `pre_tokenizer` of a tokenizer.json: cuts text into pieces that BPE never merges across.
//
// Supported  Sequence, ByteLevel, Split (Regex or String, all behaviours, invert), Digits, Whitespace, WhitespaceSplit, Punctuation,
//            CharDelimiterSplit. Exactly one ByteLevel must be there: this tokenizer is byte-level. Anything else is an error that names it.
// ByteLevel  Bytes stay bytes here; only steps after a ByteLevel step see the stand-in characters of bpe_bytes.h.
// Threads    Immutable; each thread needs its own Scratch.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "config/json.h"
#include "text/split_regex.h"
#include "text/split_scanner.h"

namespace lathe::text {

/// What becomes of a separator, as the file form names it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class Pretokenizer {
 public:
  using Emit = base::FunctionRef<void(std::string_view piece)>;

  /// `json` is the value of "pre_tokenizer". Errors: invalid_argument, unimplemented; both name the step.
  static Result<Pretokenizer> from_json(const config::Json& json);

  /// Regex state of one thread, made on first use.
  struct Scratch {
    std::vector<std::unique_ptr<Regex::Matcher>> matchers;
  };

  /// Emits the pieces of valid UTF-8 text in order; none is empty. A piece is valid until emit returns.
  /// Errors: resource_exhausted, if a regular expression of the file gives up.
  Result<void> split(std::string_view text, Scratch& scratch, Emit emit) const;

  /// How many steps match by hand-written scanners and by PCRE2: for `inspect` and tests.
  int scanner_steps() const;
  int regex_steps() const;

 private:
  enum class Test { kScanner, kRegex, kString, kNumeric, kWhiteSpace, kPunctuation, kWords, kNothing };
  struct Step {
    Test test = Test::kNothing;
    Scanner scanner = Scanner::kNone;
    std::unique_ptr<Regex> regex;
    std::string text;  // kString: the separator
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool byte_level = false;
    bool add_prefix_space = false;
    bool mapped = false;  // a ByteLevel step stands before this one
  };
  struct Run;  // state of one split() call

  Result<void> add(const config::Json& json);
  Result<void> add_split(const config::Json& json);
  Result<void> add_byte_level(const config::Json& json);
  Result<bool> add_simple(const config::Json& json, std::string_view type);
  void run_step(Run& run, size_t index, std::string_view text) const;
  static void find_matches(Run& run, const Step& step, size_t index, std::string_view text, base::FunctionRef<void(size_t begin, size_t end)> match);
  static bool matches_class(const Step& step, char32_t code);

  std::vector<Step> steps_;
};

}  // namespace lathe::text
