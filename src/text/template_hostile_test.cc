// Nothing is free: whatever a template does again and again to a long text or list ends at the limit on steps, and so in time. The bounds are in steps,
// not in seconds: each operation below takes at least 1 / kBytesPerStep of a step for every byte or element that it is given.
#include "text/template_test_util.h"

namespace lathe::text {
namespace {

using testing::render;

constexpr size_t kSize = 100'000;
constexpr size_t kRounds = 500;
constexpr size_t kBytesPerStep = 64;

/// The operation in a loop, on s (text), u (an equal text), w (whitespace), m (text whose every second byte is a value), l (list), d (dict).
std::string looped(std::string_view operation, size_t rounds) {
  const std::string n = std::to_string(kSize);
  return "{% set s = 'x' * " + n + " %}{% set u = 'x' * " + n + " %}{% set w = ' ' * " + n + " %}{% set m = (1 ~ 'a') * (" + n +
         " // 2) %}{% set l = [1] * " + n + " %}{% set c = '\\x01' * " + n + " %}{% for i in range(" + std::to_string(rounds) +
         ") %}{% set t = " + std::string(operation) + " %}{% endfor %}ok";
}

constexpr std::string_view kOperations[] = {
    "s ~ 'y'",
    "s + 'y'",
    "s * 1",
    "'x' * 100000",
    "[s] * 2 ~ ''",
    "s[1:]",
    "s[::-1]",
    "s[5]",
    "s == u",
    "s < u",
    "s in [u]",
    "'y' in s",
    "('y' ~ 'x' * 100) in s",
    "s | upper",
    "s | lower",
    "s | title",
    "s | capitalize",
    "s is upper",
    "s is lower",
    "s | trim('x')",
    "w | trim",
    "s | string ~ ''",
    "s | replace('x', 'y')",
    "s | replace('x', '')",
    "s | replace('', '')",
    "s | replace('y', 'z')",
    "s | indent",
    "s | escape",
    "s | e",
    "s | tojson",
    "[s] | tojson",
    "c | tojson",
    "[s] | string",
    "[c] | string",
    "s | length",
    "s | reverse",
    "s | list",
    "s | first",
    "s | last",
    "s | int",
    "s | float",
    "s | format(1) if 0 else s | format",
    "[s] | join",
    "['', ''] | join(s)",
    "s.join(['', ''])",
    "'{}'.format(s)",
    "'%s' % s",
    "'%r' % s",
    "'%.3s' % s",
    "('%' * 100000) % {}",
    "('{' * 100000).format()",
    "s.upper()",
    "s.strip('x')",
    "w.strip()",
    "w.lstrip()",
    "w.rstrip()",
    "'a'.strip(s)",
    "s.split()",
    "s.split('x')",
    "s.split('y')",
    "s.rsplit('x', 1)",
    "s.splitlines()",
    "w.split()",
    "s.replace('x', '')",
    "s.replace('y', '')",
    "s.find('y')",
    "s.rfind('x')",
    "s.count('x')",
    "s.count('y')",
    "s.startswith(u)",
    "s.endswith(u)",
    "s.removeprefix('x')",
    "s.removesuffix('x')",
    "s.isalpha()",
    "w.isspace()",
    "s.isupper()",
    "m ~ ''",
    "m | upper",
    "m[1:]",
    "m[::-1]",
    "m.replace('a', 'b')",
    "m.split('a')",
    "m | trim",
    "l + l",
    "l * 1",
    "l[1:]",
    "l[::-1]",
    "2 in l",
    "l | list | tojson",
    "l | reverse",
    "l | sort",
    "l | unique",
    "l | max",
    "l | min",
    "l | sum",
    "l | map('string')",
    "l | select",
    "l | select('gt', 1)",
    "l | batch(2)",
    "l | join",
    "l | tojson",
    "l | string",
    "l.count(2)",
    "l == l[0:]",
    "range(100000)",
    "l | map('round')",
};

TEST(TemplateHostile, EveryOperationIsPaidFor) {
  base::Limits limits;
  limits.template_steps = kRounds * kSize / kBytesPerStep;
  for (const std::string_view operation : kOperations) {
    const std::string text = render(looped(operation, kRounds), "{}", limits);
    const bool ended = text.find("steps of work") != std::string::npos;
    EXPECT_TRUE(ended || text.find("single brace") != std::string::npos || text.find("more values") != std::string::npos)
        << operation << ": " << text;
  }
}

TEST(TemplateHostile, OneOperationOnALongTextIsNoAttack) {
  for (const std::string_view operation : kOperations) {
    const std::string text = render(looped(operation, 1));
    EXPECT_EQ(text.find("steps of work"), std::string::npos) << operation;
  }
  // A long conversation: a message of 4 MB, looked at in the ways that templates do.
  const std::string context = R"({"c": ")" + std::string(4 << 20, 'a') + R"("})";
  const std::string all =
      "{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ c | trim }}{{ c.strip() }}{{ c | tojson }}";
  EXPECT_EQ(render(all, context).size(), 3 * (size_t{4} << 20) + 2);
}

/// Growth by doubling, small steps that add up, quadratic scans: each ends at one of the limits.
TEST(TemplateHostile, GrowthEndsAtALimit) {
  base::Limits limits;
  limits.template_steps = 2'000'000;
  std::string many_names = "a0";
  std::string zeros = "0";
  for (int i = 1; i < 20'000; ++i) many_names += ",a" + std::to_string(i), zeros += ",0";
  std::string numbers = "0:0";
  for (int i = 1; i < 4'000; ++i) numbers += "," + std::to_string(i) + ":0";
  for (const std::string& source : {
           std::string("{% set ns = namespace(s='ab') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
           std::string("{% set ns = namespace(s='') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ 'abcdefghijklmnop' %}{% endfor %}"),
           std::string("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + [i] %}{% endfor %}"),
           fmt::format("{{% for i in range(99999) %}}{{% for {} in [[{}]] %}}{{% endfor %}}{{% endfor %}}", many_names, zeros),
           fmt::format("{{% set d = {{{0}}} %}}{{% set e = {{{0}}} %}}{{% for i in range(9999) %}}{{% if d != e %}}{{% endif %}}{{% endfor %}}",
                       numbers),
           "{% set d = {" + numbers + "} %}{% for i in range(99999) %}{{ d[-1] }}{{ d.get(-1) }}{% endfor %}",
           std::string("{% for i in range(99999) %}{% set t = '%.1000f' % 1.5e300 %}{% endfor %}"),
           std::string("{% for i in range(99999) %}{% set t = 1.5e300 | round(15) %}{% endfor %}"),
           std::string("{% set f = '%c' * 500 %}{% for i in range(99999) %}{% set t = strftime_now(f) %}{% endfor %}"),
           std::string(
               "{% set s = 'a.' * 100000 ~ 'a' %}{% for i in range(99999) %}{% set t = [1] | map(attribute=s, default={}) | list %}{% endfor %}"),
       }) {
    const std::string text = render(source, "{}", limits);
    EXPECT_TRUE(text.find("steps of work") != std::string::npos || text.find("a text of more than") != std::string::npos)
        << source.substr(0, 150) << "\n"
        << text.substr(0, 200);
  }
}

/// A name is looked for in every scope around it, whether a scope holds variables or not.
TEST(TemplateHostile, ScopesAreWalkedForAPrice) {
  constexpr int kScopes = 90;
  constexpr int kNames = 100;
  std::string open;
  std::string close;
  std::string names = "x";
  for (int i = 0; i < kScopes; ++i) open += "{% with %}", close += "{% endwith %}";
  for (int i = 1; i < kNames; ++i) names += " or x";
  base::Limits limits;
  limits.template_steps = 100'000;
  const std::string body = "{% for i in range(100) %}{% set y = " + names + " %}{% endfor %}ok";
  EXPECT_EQ(render(body, "{}", limits), "ok");
  const std::string nested = render(open + body + close, "{}", limits);  // 10,000 walks of 91 scopes are more than 100,000 steps
  EXPECT_NE(nested.find("steps of work"), std::string::npos) << nested;
}

/// Loading tries a template on a few short conversations: it must not cost the steps of long ones.
TEST(TemplateHostile, LoadingRunsAShortBudget) {
  const std::string source = "{% for i in range(99999) %}{% for j in range(99999) %}{% set t = 'x' ~ j %}{% endfor %}{% endfor %}";
  base::Limits limits;
  limits.template_steps = size_t{1} << 40;  // a day: only the probes' own limit ends this test
  EXPECT_TRUE(ChatTemplate::parse(source, {}, limits));
}

}  // namespace
}  // namespace lathe::text
