#pragma once
// Regular expressions of tokenizer files, run by PCRE2 (with its JIT where the machine has one) on valid UTF-8 text.
//
// Dialect  Such files are written for Oniguruma. The pattern is translated: \p{…} and \s, \d, \w mean Unicode 16.0 whatever tables PCRE2 has, a
//          class intersection [A&&[B]] becomes a look-ahead (PCRE2 reads `&&` as characters), ^ and $ match at every line. What would silently mean
//          something else is refused with kUnimplemented: nested classes, several intersections, `{n,m}+`, \h and \H, unknown property names.
// Threads  A Regex is immutable; each thread needs its own Matcher.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lathe::text {

/// The PCRE2 form of an Oniguruma pattern. Errors: unimplemented, invalid_argument; both name the pattern.
Result<std::string> translate_pattern(std::string_view pattern);

struct RegexMatch {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  /// Errors: those of translate_pattern; invalid_argument if the pattern is malformed, with the place and reason.
  static Result<Regex> compile(std::string_view pattern);
  /// Compiles PCRE2 syntax as it is. For tests.
  static Result<Regex> compile_pcre2(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Scratch of one thread.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    Matcher(Matcher&&) noexcept;
    Matcher& operator=(Matcher&&) noexcept;
    ~Matcher();
    /// The first match at or after byte `from` (a character boundary). Errors: resource_exhausted if matching takes too many steps.
    Result<std::optional<RegexMatch>> find(std::string_view text, size_t from);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Program;
  explicit Regex(std::unique_ptr<Program> code);
  std::unique_ptr<Program> code_;
};

}  // namespace lathe::text
