#pragma once
// Reading members of tokenizer.json with errors that name them. Private to the tokenizer files.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/json.h"

namespace lathe::text {

/// The string member `key` of `json`. Errors: invalid_argument naming `where` and the key.
inline Result<std::string> string_member(const config::Json& json, std::string_view where, std::string_view key) {
  const config::Json* member = json.find(key);
  if (member == nullptr || !member->is_string()) {
    return err(Code::kInvalidArgument, "{}: '{}' must be a string, but is {}", where, key, member == nullptr ? "missing" : member->kind_name());
  }
  return member->as_string();
}

/// The boolean member `key` of `json`, or `fallback` if it is absent or null.
inline Result<bool> bool_member(const config::Json& json, std::string_view where, std::string_view key, bool fallback) {
  const config::Json* member = json.find(key);
  if (member == nullptr || member->is_null()) return fallback;
  if (!member->is_bool()) return err(Code::kInvalidArgument, "{}: '{}' must be a boolean, but is {}", where, key, member->kind_name());
  return member->as_bool();
}

/// A "pattern" member: {"String": …} or {"Regex": …}.
struct PatternMember {
  bool regex = false;
  std::string text;
};
inline Result<PatternMember> pattern_member(const config::Json& json, std::string_view where) {
  const config::Json* pattern = json.find("pattern");
  for (const bool regex : {false, true}) {
    const config::Json* text = pattern == nullptr ? nullptr : pattern->find(regex ? "Regex" : "String");
    if (text != nullptr && text->is_string() && !text->as_string().empty()) return PatternMember{regex, text->as_string()};
  }
  return err(Code::kInvalidArgument, "{}: 'pattern' must be {{\"String\": …}} or {{\"Regex\": …}} with a text that is not empty", where);
}

}  // namespace lathe::text
