#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_regex.h"

#include <pcre2.h>

#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace lathe::text {
namespace {

constexpr uint32_t kMatchLimit = base::kLimits.split_steps;  // a split pattern needs a step or two a character
constexpr size_t kJitStackStart = 32u << 10;
constexpr size_t kJitStackMax = base::kLimits.split_stack_bytes;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof buffer);
  return length < 0 ? std::to_string(code) : std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};

}  // namespace

struct Regex::Program {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
  std::string pattern;
};

struct Regex::Matcher::State {
  const Program* code;
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack;
};

Regex::Regex(std::unique_ptr<Program> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  LATHE_TRY(const std::string translated, translate_pattern(pattern));
  LATHE_TRY(Regex regex, compile_pcre2(translated));
  regex.code_->pattern = pattern;
  return regex;
}

Result<Regex> Regex::compile_pcre2(std::string_view pattern) {
  std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>> context(pcre2_compile_context_create(nullptr));
  LATHE_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code = pcre2_compile(units(pattern), pattern.size(), options, &error, &place, context.get());
  if (code == nullptr)
    return err(Code::kInvalidArgument, "regular expression '{}': {} (at byte {} of its PCRE2 form)", pattern, pcre2_message(error), place);
  auto owned = std::make_unique<Regex::Program>();
  owned->code.reset(code);
  owned->pattern = pattern;
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter does the same
  return Regex(std::move(owned));
}

Regex::Matcher::Matcher(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->code = regex.code_.get();
  state_->data.reset(pcre2_match_data_create_from_pattern(state_->code->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  state_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
  LATHE_CHECK(state_->data != nullptr && state_->context != nullptr);
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  if (state_->stack != nullptr) pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}
Regex::Matcher::Matcher(Matcher&&) noexcept = default;
Regex::Matcher& Regex::Matcher::operator=(Matcher&&) noexcept = default;
Regex::Matcher::~Matcher() = default;

Result<std::optional<RegexMatch>> Regex::Matcher::find(std::string_view text, size_t from) {
  // The text is known to be valid: checking it again at each match would make splitting quadratic.
  const int found =
      pcre2_match(state_->code->code.get(), units(text), text.size(), from, PCRE2_NO_UTF_CHECK, state_->data.get(), state_->context.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    return err(Code::kResourceExhausted, "regular expression '{}' gave up at byte {} of a text of {} bytes: {}", state_->code->pattern, from,
               text.size(), pcre2_message(found));
  }
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(state_->data.get());
  return RegexMatch{place[0], place[1]};
}

}  // namespace lathe::text
