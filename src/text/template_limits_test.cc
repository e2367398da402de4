// What hostile templates and hostile data can cost: every limit is a clear error, quickly.
#include <ctime>

#include "base/file.h"

#include "text/template_test_util.h"

namespace lathe::text {
namespace {

using testing::render;

std::string repeat(std::string_view piece, size_t count) {
  std::string out;
  out.reserve(piece.size() * count);
  for (size_t i = 0; i < count; ++i) out += piece;
  return out;
}

bool is_limit(const std::string& text, std::string_view what) { return text.starts_with("ERROR: ") && text.find(what) != std::string::npos; }

TEST(TemplateLimits, Steps) {
  base::Limits limits;
  limits.template_steps = 10'000;
  EXPECT_EQ(render("{% for i in range(100) %}{{ i }}{% endfor %}", "{}", limits).size(), 190u);
  const std::string loops = "{% for i in range(1000) %}{% for j in range(1000) %}\n\n{% endfor %}{% endfor %}";
  EXPECT_EQ(render(loops, "{}", limits), "ERROR: chat template line 1: more than 10000 steps of work");
  for (const char* source : {
           "{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
           "{% for i in range(99999) %}{% for j in range(99999) %}{% if [1] * 1000 in [[2] * 1000] %}{% endif %}{% endfor %}{% endfor %}",
           "{% set l = [0] * 1000000000 %}",
           "{{ range(100000) | batch(1, 0) | map('list') | map('list') | list }}",
           "{% macro m(n) %}{% for i in range(10) %}{{ m(n - 1) }}{% endfor %}{% endmacro %}{{ m(20) }}",
       }) {
    EXPECT_TRUE(is_limit(render(source, "{}", limits), "steps") || is_limit(render(source, "{}", limits), "deep")) << source << "\n"
                                                                                                                   << render(source, "{}", limits);
  }
}

TEST(TemplateLimits, Output) {
  base::Limits limits;
  limits.template_output_bytes = 1000;
  EXPECT_EQ(render("{{ 'x' * 1000 }}", "{}", limits).size(), 1000u);
  for (const char* source : {
           "{{ 'x' * 1001 }}",
           "{{ 'x' * 600 }}{{ 'y' * 600 }}",
           "{% for i in range(2000) %}x{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(20) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(20) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' | replace('a', 'x' * 100) }}",
           "{{ ['x' * 600, 'y' * 600] | join }}",
           "{{ ('x' * 900).join(['', '', '']) }}",
           "{{ ['x' * 600, 'y' * 600] }}",
           "{{ [[[['x' * 300] * 4] * 4] * 4] | tojson }}",
           "{{ [1, 2, 3] | tojson(indent=64, separators=('x' * 900, '')) }}",
           "{{ 'a\\nb' | indent(999999999999) }}",
           "{{ '%1000s%s' % ('a', 'b') }}",
       }) {
    EXPECT_EQ(render(source, "{}", limits), "ERROR: chat template line 1: a text of more than 1000 bytes") << source;
  }
}

TEST(TemplateLimits, SizeOfTheTemplate) {
  base::Limits limits;
  limits.template_bytes = 10;
  EXPECT_EQ(render("12345678901", "{}", limits), "ERROR: the chat template has 11 bytes, more than the limit of 10");
}

TEST(TemplateLimits, NestingOfTheTemplate) {
  const size_t deep = 100'000;
  const std::string sources[] = {
      "{{ " + repeat("(", deep) + "1" + repeat(")", deep) + " }}",
      "{{ " + repeat("[", deep) + repeat("]", deep) + " }}",
      "{{ " + repeat("{1:", deep) + "1" + repeat("}", deep) + " }}",
      "{{ " + repeat("not ", deep) + "1 }}",
      "{{ " + repeat("-", deep) + "1 }}",
      "{{ " + repeat("f(", deep) + repeat(")", deep) + " }}",
      "{{ x" + repeat("[x", deep) + repeat("]", deep) + " }}",
      repeat("{% if 1 %}", deep / 2) + repeat("{% endif %}", deep / 4),
      repeat("{% for i in l %}", deep / 2),
      repeat("{% macro m() %}", deep / 2),
      "{{ x | map" + repeat("(x | map", deep) + repeat(")", deep) + " }}",
  };
  for (const std::string& source : sources)
    EXPECT_TRUE(is_limit(render(source), "nested deeper than 100 levels")) << source.substr(0, 40) << "\n" << render(source).substr(0, 200);
  // Chains are no nesting.
  EXPECT_EQ(render("{{ 1" + repeat(" + 1", 20'000) + " }}"), "20001");
  EXPECT_EQ(render("{{ 'a'" + repeat(" ~ 'a'", 20'000) + " }}").size(), 20'001u);
  EXPECT_EQ(render("{{ 0" + repeat(" or 0", 20'000) + " }}"), "0");
  EXPECT_EQ(render("{{ 1" + repeat(" < 2", 2) + " }}"), "False");
  EXPECT_EQ(render("{{ ' a '" + repeat(" | trim", 20'000) + " }}"), "a");
  EXPECT_EQ(render("{{ 1 if 0 else " + repeat("1 if 0 else ", 20'000) + "7 }}"), "7");
  EXPECT_EQ(render("{% if 0 %}" + repeat("{% elif 0 %}", 20'000) + "{% else %}z{% endif %}"), "z");
}

TEST(TemplateLimits, NestingOfCallsAndValues) {
  EXPECT_TRUE(is_limit(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "100"));
  EXPECT_TRUE(is_limit(render("{% macro m(x) %}{{ m([x]) | upper }}{% endmacro %}{{ m(1) }}"), "100"));
  EXPECT_TRUE(is_limit(render("{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set ns.l = [ns.l] %}{% endfor %}"),
                       "nested deeper than 200 levels"));
  EXPECT_TRUE(is_limit(render("{% set ns = namespace(l={}) %}{% for i in range(10000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}"),
                       "nested deeper than 200 levels"));
  EXPECT_TRUE(is_limit(render("{{ 'ab' | map('map'" + repeat(", 'map'", 5'000) + ") | list }}"), "deep"));
  // The widest frames: arguments of filters of arguments, in macros that call each other.
  for (const auto& [open, close] :
       {std::pair("x | default(", ")"), std::pair("[", "]"), std::pair("{1: ", "}"), std::pair("1 if not (", ") else 1"), std::pair("m(", ")")}) {
    const std::string source = "{% macro m(a) %}{% if 1 %}{% for i in [1] %}{{ " + repeat(open, 40) + "m()" + repeat(close, 40) +
                               " }}{% endfor %}{% endif %}{% endmacro %}{{ m() }}";
    EXPECT_TRUE(is_limit(render(source), "calls nested deeper than 100 levels")) << open << " " << render(source);
  }
  // A namespace may hold itself and chains of namespaces may be long: nothing walks through them.
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me[0].me | length }}"), "1");
  EXPECT_EQ(render("{% set h = namespace(n=0) %}{% for i in range(20000) %}{% set h.n = namespace(n=h.n) %}{% endfor %}x"), "x");
  // A macro outlives the scope it was defined in.
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in range(3) %}{% set k = i * 2 %}{% macro m() %}{{ k }}{{ i }}{% endmacro %}{% set ns.f = m "
                   "%}{% endfor %}{{ ns.f() }}"),
            "42");
}

TEST(TemplateLimits, SharedValuesDoNotExplode) {
  // 3^60 elements in 60 small lists.
  const std::string tower =
      "{% set ns = namespace(a=['x'], b=['x']) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b, ns.b] %}{% "
      "endfor %}";
  for (const char* use : {"{{ ns.a }}", "{{ ns.a | tojson }}", "{{ ns.a == ns.b }}", "{{ ns.a in [ns.b] }}", "{{ ns.a ~ 'x' }}",
                          "{{ [ns.a, ns.b] | unique }}", "{{ ns.a < ns.b }}", "{{ [ns.b] | join }}", "{{ '%r' % (ns.a,) }}", "{{ ns.a | string }}"}) {
    EXPECT_TRUE(is_limit(render(tower + use), "steps") || is_limit(render(tower + use), "bytes")) << use << " " << render(tower + use).substr(0, 200);
  }
}

TEST(TemplateLimits, HostileTextIsLinear) {
  const std::clock_t begin = std::clock();  // of the processor: other work on the machine does not count
  const std::string a = "\"" + std::string(1 << 18, 'a') + "\"";
  const std::string half = "\"" + std::string(1 << 17, 'a') + "b\"";
  const std::string context = "{\"a\": " + a + ", \"h\": " + half + "}";
  EXPECT_EQ(render("{{ h in a }}{{ a.find(h) }}{{ a.count('aa') }}{{ a.split('aab') | length }}{{ a | replace(h, '') | length }}", context),
            "False-1131072"
            "1"
            "262144");
  EXPECT_EQ(render("{{ a | length }}{{ a[::-1] == a }}{{ a | upper | lower == a }}{{ a | list | unique | length }}", context), "262144TrueTrue1");
  // Tags on one long line, and text that looks like tags.
  EXPECT_EQ(render(repeat("{{1}}", 100'000)).size(), 100'000u);
  EXPECT_EQ(render(repeat("  {% if 1 %}", 50) + repeat("{ ", 200'000) + repeat("{% endif %}", 50)).size(), 400'000u + 48 * 2 + 2);
  EXPECT_EQ(render(repeat("{#x#}", 100'000)), "");
  EXPECT_EQ(render(repeat("{% set v = 1 %}", 60'000)), "");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20.0);  // half a second; quadratic work would take minutes
}

TEST(TemplateLimits, ManyVariablesInOneScopeCostSteps) {
  std::string source = "{% for i in [1] %}";
  for (int i = 0; i < 40'000; ++i) source += "{% set v" + std::to_string(i) + "=1 %}";
  source += "{% endfor %}ok";
  const std::string text = render(source);
  EXPECT_TRUE(text == "ok" || is_limit(text, "steps")) << text;
}

/// Every prefix and many mutations of real templates either render or fail with a message; run under the sanitizers too.
TEST(TemplateLimits, DamagedTemplates) {
  const auto source = base::read_file(std::string(LATHE_SOURCE_DIR) + "/data/builtin/chat_template.jinja", 1 << 20);
  ASSERT_TRUE(source) << source.error().message;
  const config::Json context = testing::json(
      R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
    {"role": "tool", "content": "r", "tool_call_id": "1"}], "tools": [{"function": {"name": "f", "strict": true}}], "add_generation_prompt": true})");
  base::Limits limits;
  limits.template_steps = 20'000;
  size_t rendered = 0;
  for (size_t cut = 0; cut < source->size(); cut += 7) {
    const auto text = render_template(std::string_view(*source).substr(0, cut), context, std::nullopt, limits);
    EXPECT_TRUE(text || !text.error().message.empty());
  }
  uint32_t seed = 1;
  const auto random = [&](size_t n) {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<size_t>(seed >> 8) % n;
  };
  static constexpr std::string_view kPieces[] = {"{%",   "%}",       "{{", "}}", "-",    "|",     "(", ")", "[",  "]",  "'",    "if", "for",
                                                 " in ", "\xF0\x9F", "0",  "**", "else", "endif", ":", "~", "{#", "#}", "loop", "x"};
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = *source;
    for (size_t i = 0; i <= random(4); ++i) {
      const size_t at = random(damaged.size());
      damaged.replace(at, random(8), kPieces[random(std::size(kPieces))]);
    }
    const auto text = render_template(damaged, context, 0, limits);
    if (text) ++rendered;
  }
  EXPECT_GT(rendered, 10u);
}

}  // namespace
}  // namespace lathe::text
