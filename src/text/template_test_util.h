#pragma once
// Rendering in tests.

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "text/chat_template.h"

namespace lathe::text::testing {

inline config::Json json(std::string_view text) {
  auto parsed = config::parse_json(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? *parsed : config::Json();
}

/// The text, or "ERROR: " and the message.
inline std::string render(std::string_view source, std::string_view context = "{}", const base::Limits& limits = base::kLimits) {
  const auto result = render_template(source, json(context), 1754483696, limits);
  return result ? result->text : "ERROR: " + result.error().message;
}

/// The text with every run of values in «».
inline std::string show(const MarkedText& marked) {
  std::string out;
  size_t at = 0;
  const auto value_until = [&](size_t end) {
    if (end > at) out += "«" + marked.text.substr(at, end - at) + "»";
  };
  for (const LiteralSpan& span : marked.literal) {
    EXPECT_LT(span.begin, span.end);
    EXPECT_TRUE(span.begin > at || at == 0) << "spans overlap or touch";
    value_until(span.begin);
    out += marked.text.substr(span.begin, span.end - span.begin);
    at = span.end;
  }
  EXPECT_LE(at, marked.text.size());
  value_until(marked.text.size());
  return out;
}

inline std::string render_marked(std::string_view source, std::string_view context = "{}") {
  const auto result = render_template(source, json(context));
  return result ? show(*result) : "ERROR: " + result.error().message;
}

}  // namespace lathe::text::testing
