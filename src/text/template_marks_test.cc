// Every byte of the output is literal (the template wrote it) or a value (data): values stand in «».
#include "text/template_strings.h"
#include "text/template_test_util.h"

namespace lathe::text {
namespace {

using testing::render_marked;

constexpr const char* kContext = R"({"v": "<|user|>", "l": ["a", "b"], "d": {"k": "w"}, "pad": "  x\ny  ", "n": 5})";

TEST(TemplateMarks, KeepTheirOriginThroughEveryOperation) {
  const std::pair<const char*, const char*> cases[] = {
      {"<|user|>{{ v }}<|end|>", "<|user|>«<|user|>»<|end|>"},
      {"{{ '<|user|>' }}{{ v }}", "<|user|>«<|user|>»"},
      {"{{ '<|a|>' + v + '<|b|>' }}", "<|a|>«<|user|>»<|b|>"},
      {"{{ '<' ~ v ~ n ~ '>' }}", "<«<|user|>5»>"},
      {"{{ v | trim }}{{ pad | trim }}{{ pad.strip() }}{{ pad.split() | join('-') }}", "«<|user|>x\nyx\nyx»-«y»"},
      {"{{ ('[' ~ v ~ ']')[1:-1] }}{{ ('[' ~ v ~ ']')[0] }}{{ ('ab' ~ v)[1:4] }}", "«<|user|>»[b«<|»"},
      {"{{ v | replace('user', 'system') }}", "«<|»system«|>»"},
      {"{{ 'x-x' | replace('x', v) }}", "«<|user|>»-«<|user|>»"},
      {"{{ v | upper }}{{ ('a' ~ v) | upper }}{{ v.title() }}", "«<|USER|>»A«<|USER|><|User|>»"},
      {"{{ d | tojson }}{{ v | tojson }}{{ {'lit': 1} | tojson }}", "«{\"k\": \"w\"}\"<|user|>\"{\"lit\": 1}»"},
      {"{{ l | join(', ') }}{{ ', '.join(l) }}", "«a», «ba», «b»"},
      {"{{ pad | indent(2) }}", "«  x\n  y  »"},
      {"{{ '%s|%s' % (v, 'lit') }}{{ '{}!'.format(v) }}", "«<|user|>»|lit«<|user|>»!"},
      {"{% for k, w in d.items() %}{{ k }}={{ w }}{% endfor %}", "«k»=«w»"},
      {"{{ {'low': 'Low'}.get(missing | default('low')) }}{{ {'<|user|>': 'found'}[v] }}", "Lowfound"},
      {"{% set x = 'a' ~ v %}{% set y %}[{{ x }}]{% endset %}{{ y }}", "[a«<|user|>»]"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(v) }}{{ m('lit') }}", "<«<|user|>»><lit>"},
      {"{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t ~ '(' ~ x ~ ')' %}{% endfor %}{{ ns.t }}", "(«a»)(«b»)"},
      {"{{ n }}{{ loop }}{{ 7 }}{{ true }}{{ l }}", "«57True['a', 'b']»"},
      {"{{ v | reverse }}{{ ('ab' ~ v[:1]) | reverse }}", "«>|resu|<<»ba"},
      {"{{ v | e }}{{ '<' | e }}", "«&lt;|user|&gt;»&lt;"},
      {"{{ ('a\\n' ~ v).splitlines() | join('+') }}", "a+«<|user|>»"},
      {"{{ 'ab' * 2 }}{{ v * 2 }}", "abab«<|user|><|user|>»"},
      {"{{ v | string }}{{ 'lit' | string }}{{ v | safe }}{{ v | default('x') }}{{ missing | default('x') }}", "«<|user|>»lit«<|user|><|user|>»x"},
      {"{% filter upper %}a{{ v }}{% endfilter %}", "A«<|USER|>»"},
      {"{{ v.removeprefix('<|') }}{{ v[::-1][::-1] }}", "«user|><|user|>»"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_marked(source, kContext), expected) << source;
}

TEST(TemplateMarks, SpecialTokensOfTheModelAreLiteral) {
  const auto parsed = ChatTemplate::parse("{{ bos_token }}{% for m in messages %}{{ m.content ~ eos_token }}{% endfor %}",
                                          testing::json(R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "other": "x"})"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const config::Json messages = testing::json(R"([{"role": "user", "content": "<s>x</s>"}])");
  const auto text = parsed->render({.messages = &messages});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(testing::show(*text), "<s>«<s>x</s>»</s>");
}

/// Spans of a random mixture, cut and joined at random, against a byte-by-byte model.
TEST(TemplateMarks, RangesAgreeWithAByteModel) {
  uint32_t seed = 7;
  const auto random = [&](uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
  };
  for (int round = 0; round < 200; ++round) {
    MarkedText text;
    std::string model;
    for (int i = 0; i < 12; ++i) {
      const std::string piece(random(4), static_cast<char>('a' + random(26)));
      const bool literal = random(2) == 0;
      jinja::append(text, piece, literal ? jinja::Mark::kLiteral : jinja::Mark::kValue);
      model.append(piece.size(), literal ? 'L' : 'v');
    }
    const size_t begin = random(static_cast<uint32_t>(text.text.size()) + 1);
    const size_t end = begin + random(static_cast<uint32_t>(text.text.size() - begin) + 1);
    MarkedText joined = jinja::substring(text, begin, end);
    jinja::append(joined, text);
    const std::string expected = model.substr(begin, end - begin) + model;
    std::string actual(joined.text.size(), 'v');
    size_t last = 0;
    for (const LiteralSpan& span : joined.literal) {
      ASSERT_TRUE(span.begin < span.end && (last == 0 || span.begin > last)) << "spans must ascend and not touch";
      last = span.end;
      std::fill(actual.begin() + static_cast<ptrdiff_t>(span.begin), actual.begin() + static_cast<ptrdiff_t>(span.end), 'L');
    }
    ASSERT_EQ(actual, expected);
    for (size_t i = 0; i < text.text.size(); ++i) ASSERT_EQ(jinja::is_literal(text, i), model[i] == 'L');
  }
}

}  // namespace
}  // namespace lathe::text
