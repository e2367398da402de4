// The language: every expected text is what Jinja2 3.1 gives with the settings of the transformers library.
#include "text/template_test_util.h"

namespace lathe::text {
namespace {

using testing::render;

struct Case {
  const char* source;
  const char* expected;
};

constexpr const char* kContext = R"({"s": "Hello World", "l": [3, 1, 2], "d": {"b": 1, "a": "x"}, "n": null, "t": true, "f": 2.5, "e": "",
  "people": [{"name": "Bo", "age": 3, "tags": ["p"]}, {"name": "al", "age": 1}], "u": "żółw 😀", "html": "<a href='x'>&"})";

void check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) EXPECT_EQ(render(c.source, kContext), c.expected) << c.source;
}

TEST(TemplateEngine, WhitespaceControl) {
  check({
      {"a\n  {% if t %}\n  b\n  {% endif %}\nc\n\n", "a\n  b\nc\n"},
      {"x {%- if t -%} y {%- endif -%} z", "xyz"},
      {"x {%+ if t %} y {%- endif +%}\nz", "x  y\nz"},
      {"  {%+ if t %}y{% endif %}", "  y"},
      {"  {# gone #}  kept", "  kept"},
      {"{# c #}\nx {#- d -#} y", "xy"},
      {"a\r\nb\r{{ 1 }}\r\n", "a\nb\n1"},
      {"{{ 1 }}\n{{ 2 -}}  \n 3", "1\n23"},
      {"text  {{- 1 }}", "text1"},
      {"{% raw %}\n{{ x }} {% if %}{% endraw %}\n!", "\n{{ x }} {% if %}!"},
      {"a {%- raw -%} b {%- endraw -%} c", "abc"},
      {"a { b } {c} {", "a { b } {c} {"},
  });
}

TEST(TemplateEngine, LiteralsAndOperators) {
  check({
      {"{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7.5 // 2 }}",
       "3 3 -4 2 64 3.5 3.0 3.0"},
      {"{{ 1_000 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789012345.0 }}",
       "1000 1000.0 1.5e-07 0.30000000000000004 1e+16 123456789012345.0"},
      {"{{ -2 | abs }} {{ - 2 }} {{ +2 }} {{ 2 - -1 }} {{ -2 ** 2 }}", "2 -2 2 3 4"},
      {"{{ 'a' + \"b\" ~ 1 ~ none ~ true ~ 2.0 }}", "ab1NoneTrue2.0"},
      {"{{ 1 + 2 ~ 3 }}", "ERROR: chat template line 1: '+' between an integer and a string"},
      {"{{ 'a' 'b' }}{{ 'it\\'s' }}{{ '\\u00e9\\x41\\ud83d\\ude00\\n' }}{{ '\\q' }}", "abit'séA😀\n\\q"},
      {"{{ 'ab' * 3 }}{{ [0] * 2 }}{{ (1,) + (2, 3) }}{{ [1] + [2] }}", "ababab[0, 0](1, 2, 3)[1, 2]"},
      {"{{ none }} {{ true }} {{ [1, 'a', none, 1.5] }} {{ {'a': 1, 'b': [false]} }} {{ () }} {{ (1,) }} {{ 1, 2 }}",
       "None True [1, 'a', None, 1.5] {'a': 1, 'b': [False]} () (1,) (1, 2)"},
      {"{{ [\"it's\", 'say \"x\"', 'a\\nb'] }}", "[\"it's\", 'say \"x\"', 'a\\nb']"},
      {"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
       "True False True True False True True"},
      {"{{ not missing is defined }} {{ not 1 == 2 }} {{ n is none and t }} {{ 0 or '' or 'z' }} {{ 1 and 2 }}", "True True True z 2"},
      {"{{ 1 in l }} {{ 9 not in l }} {{ 'b' in d }} {{ 'lo W' in s }} {{ 'x' in missing }}", "True True True True False"},
      {"{{ 1 if n else 2 if e else 3 }}{{ 'x' if n }}|", "3|"},
      {"{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{'b':2}}.a.b }}", "12"},
      {"{{ '%s is %d of %5.1f%%' % ('a', 3, 2.25) }} {{ '%-4s|%03d' | format('x', 7) }}", "a is 3 of   2.2% x   |007"},
      {"{{ '{0} {1} {k} {{}}'.format('a', 'b', k='c') }}{{ '{}{}'.format(1, none) }}", "a b c {}1None"},
  });
}

TEST(TemplateEngine, IndexingAndSlices) {
  check({
      {"{{ l[0] }}{{ l[-1] }}{{ l.1 }}{{ l[9] is defined }}{{ people.0.tags.0 }}{{ people[1]['name'] }}", "321Falsepal"},
      {"{{ s[:5] }}|{{ s[-5:] }}|{{ s[::-1] }}|{{ s[1:8:3] }}|{{ s[20:] }}|{{ s[4] }}", "Hello|World|dlroW olleH|eoo||o"},
      {"{{ u[1] }}{{ u[-1:] }}{{ u | length }}", "ó😀6"},
      {"{{ l[1:] }}{{ l[::-1] }}{{ l[:-1] }}{{ l[5:] }}{{ l[-99:99] }}{{ l[2:0:-1] }}", "[1, 2][2, 1, 3][3, 1][][3, 1, 2][2, 1]"},
      {"{{ d.b }}{{ d['a'] }}{{ d.missing is defined }}{{ d.get('q') }}{{ d.get('q', 7) }}", "1xFalseNone7"},
  });
}

TEST(TemplateEngine, Statements) {
  check({
      {"{% for x in l if x != 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% else %}none{% endfor %}", "1/2:3,2/2:2"},
      {"{% for x in [] %}x{% else %}none{% endfor %}{% for x in missing %}x{% endfor %}", "none"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}", "b=1;a=x;ba"},
      {"{% for c in 'żó' %}[{{ c }}]{% endfor %}", "[ż][ó]"},
      {"{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.previtem }}{{ loop.nextitem }}{{ "
       "loop.cycle('a', 'b') }} {% endfor %}",
       "032True1a 121False32b 210False1a "},
      {"{% for a in l %}{% for b in l %}{{ loop.depth }}{{ loop.depth0 }}{% break %}{% endfor %}{% endfor %}", "101010"},
      {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x > 3 %}{% break %}{% endif %}{{ x }}{% endfor %}", "023"},
      {"{{ range(3) | list }}{{ range(2, 8, 2) | list }}{{ range(3, 0, -1) | list }}", "[0, 1, 2][2, 4, 6][3, 2, 1]"},
      {"{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}{% if t %}{% set x = 5 %}{% endif %}{{ x }}", "15"},
      {"{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.q is defined }}", "6False"},
      {"{% set a, b = 1, 'z' %}{{ a }}{{ b }}{% set (p, q) = l[:2] %}{{ p }}{{ q }}", "1z31"},
      {"{% set x %}in {{ t }}{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}", "[in True]ABC"},
      {"{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(b='q', a='r') }} {{ m() }}",
       "1-2-1 1-2-3 r-q-r -2-"},
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "(1, 2){'k': 3}"},
      {"{% macro w(x) %}<{{ caller(x) }}>{% endmacro %}{% call(v) w(4) %}{{ v }}!{% endcall %}", "<4!>"},
      {"{% macro deep(k) %}{{ k }}{% if k > 0 %}{{ deep(k - 1) }}{% endif %}{% endmacro %}{{ deep(3) }}", "3210"},
      {"{% set z = 0 %}{% macro m() %}{{ z }}{% endmacro %}{% for z in [1, 2] %}{{ m() }}{% endfor %}{% set z = 9 %}{{ m() }}", "009"},
      {"{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "12"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
      {"{% filter upper | replace('B', '-') %}abc{% endfilter %}{% generation %}g{% endgeneration %}", "A-Cg"},
      {"{% if n %}a{% elif e %}b{% elif l %}c{% else %}d{% endif %}", "c"},
  });
}

TEST(TemplateEngine, TextFilters) {
  check({
      {"{{ s | upper }} {{ s | lower }} {{ 'hELLO wORLD' | capitalize }} {{ \"it's a-b (c\" | title }} {{ u | upper }} {{ 'ÀÉ' | lower }}",
       "HELLO WORLD hello world Hello world It's A-B (C ŻÓŁW 😀 àé"},
      {"[{{ ' \\u00a0x\\n' | trim }}] {{ 'xxaxx' | trim('x') }} {{ 5 | string + '!' }} {{ '<' | safe }} {{ html | e }}",
       "[x] a 5! < &lt;a href=&#39;x&#39;&gt;&amp;"},
      {"{{ 'a.b.a' | replace('a', '<c>') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'ab' | replace('', '-') }}", "<c>.b.<c> bba -a-b-"},
      {"{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent('> ', blank=true) }}",
       "a\n    b\n\n    c|  a\n  b|a\n> \n> b"},
      {"{{ d | tojson }} {{ {'k': [1, 2.5, 'é<\"\\\\', none, true]} | tojson }} {{ {'é': '😀'} | tojson(ensure_ascii=true) }}",
       R"({"b": 1, "a": "x"} {"k": [1, 2.5, "é<\"\\", null, true]} {"\u00e9": "\ud83d\ude00"})"},
      {"{{ {'b': [1, {'c': 2}], 'a': {}, 'e': []} | tojson(indent=2) }}",
       "{\n  \"b\": [\n    1,\n    {\n      \"c\": 2\n    }\n  ],\n  \"a\": {},\n  \"e\": []\n}"},
      {"{{ {'b': 1, 'a': [2, 3]} | tojson(separators=(',', ':'), sort_keys=true) }} {{ {1: 2, true: 3, none: 4} | tojson }}",
       R"({"a":[2,3],"b":1} {"1": 3, "null": 4})"},
  });
}

TEST(TemplateEngine, NumberFilters) {
  check({
      {"{{ '3' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '2.9' | int }} {{ -2.9 | int }} {{ 'ff' | int(0, 16) }} {{ '2.5' | float + 1 }} {{ "
       "'q' | float }}",
       "4 0 7 2 -2 255 3.5 0.0"},
      {"{{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.19 | round(1, 'floor') }}",
       "2.57 2.0 4.0 3.0 2.1"},
      {"{{ missing | default('d') }} {{ n | default('d') }} {{ '' | default('e', true) }} {{ missing | d }}|", "d None e |"},
  });
}

TEST(TemplateEngine, ListFilters) {
  check({
      {"{{ l | first }}{{ l | last }}{{ [] | first is defined }}{{ l | length }}{{ d | count }}{{ missing | length }}", "32False320"},
      {"{{ l | sort }} {{ l | sort(reverse=true) }} {{ ['b', 'A', 'a'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ people | "
       "sort(attribute='age') | map(attribute='name') | join }}",
       "[1, 2, 3] [3, 2, 1] ['A', 'a', 'b'] ['A', 'b'] alBo"},
      {"{{ l | reverse | list }} {{ 'abc' | reverse }} {{ [1, 2, 1, 'a', 'A'] | unique | list }}", "[2, 1, 3] cba [1, 2, 'a']"},
      {"{{ people | map(attribute='tags.0', default='-') | list }} {{ ['a', 'b'] | map('upper') | list }} {{ ['a'] | map('replace', 'a', 'z') | join "
       "}}",
       "['p', '-'] ['A', 'B'] z"},
      {"{{ people | selectattr('age', 'gt', 1) | map(attribute='name') | list }} {{ people | rejectattr('tags') | list | length }} {{ people | "
       "selectattr('tags', 'defined') | list | length }}",
       "['Bo'] 1 1"},
      {"{{ [1, 2, 3] | select('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [1, 2, 3] | reject('in', [1, 3]) | list }}",
       "[1, 3] [1, 'a'] [2]"},
      {"{{ l | join('-') }} {{ people | join(', ', attribute='name') }} {{ 'abc' | join('.') }} {{ [1, none, true] | join }}",
       "3-1-2 Bo, al a.b.c 1NoneTrue"},
      {"{{ l | sum }} {{ people | sum(attribute='age') }} {{ l | min }} {{ l | max }} {{ [1, 2, 3] | batch(2, 0) | list }}",
       "6 4 1 3 [[1, 2], [3, 0]]"},
      {"{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %} {% for k, v in d | items %}{{ k }}{{ v }}{% endfor %} {{ {'x': 2, 'y': 1} | "
       "dictsort(by='value') }}",
       "axb1 b1ax [('y', 1), ('x', 2)]"},
  });
}

TEST(TemplateEngine, Tests) {
  check({
      {"{{ s is string }}{{ l is string }}{{ d is mapping }}{{ l is iterable }}{{ s is iterable }}{{ d is iterable }}{{ 1 is iterable }}",
       "TrueFalseTrueTrueTrueTrueFalse"},
      {"{{ l is sequence }}{{ d is sequence }}{{ n is none }}{{ n is defined }}{{ missing is undefined }}{{ missing is not defined }}",
       "TrueTrueTrueTrueTrueTrue"},
      {"{{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ true is integer }}{{ f is float }}{{ t is boolean }}{{ t is true }}{{ 1 is true "
       "}}{{ false is false }}",
       "TrueTrueTrueFalseTrueTrueTrueFalseTrue"},
      {"{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is ge(2) }}{{ 1 "
       "is in [1] }}",
       "TrueTrueTrueTrueFalseTrueTrueTrueTrue"},
      {"{{ 'ab' is lower }}{{ 'AB' is upper }}{{ 'Ab' is lower }}{{ range is callable }}{{ 1 is not odd }}", "TrueTrueFalseTrueFalse"},
  });
}

TEST(TemplateEngine, Methods) {
  check({
      {"{{ 'a,b,c'.split(',') }} {{ ' x  y '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c'.split(none, 1) }}",
       "['a', 'b', 'c'] ['x', 'y'] ['a', 'b,c'] ['a,b', 'c'] ['a', 'b c']"},
      {"[{{ ' x '.strip() }}][{{ 'xxaxx'.strip('x') }}][{{ ' l '.lstrip() }}][{{ ' r '.rstrip() }}][{{ 'żaż'.strip('ż') }}]", "[x][a][l ][ r][a]"},
      {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}{{ 'abc'.startswith('b') }}", "TrueTrueFalse"},
      {"{{ s.upper() }}{{ s.lower() }}{{ \"it's\".title() }}{{ 'aB'.capitalize() }}{{ 'aXbX'.replace('X', '-', 1) }}",
       "HELLO WORLDhello worldIt'SAba-bX"},
      {"{{ 'żabc'.find('b') }}{{ 'abcb'.rfind('b') }}{{ 'a'.find('z') }}{{ 'aXbX'.count('X') }}{{ '-'.join(['a', 'b']) }}{{ "
       "'a\\nb\\r\\nc'.splitlines() }}",
       "23-12a-b['a', 'b', 'c']"},
      {"{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ ''.isdigit() }}{{ 'pre-x'.removeprefix('pre-') }}{{ "
       "'x.y'.removesuffix('.y') }}",
       "TrueTrueTrueTrueFalsexx"},
      {"{{ d.keys() | list }}{{ d.values() | list }}{{ d.items() | list }}{{ l.count(1) }}{{ l.index(2) }}",
       "['b', 'a'][1, 'x'][('b', 1), ('a', 'x')]12"},
      {"{% set d = {'items': 3} %}{{ d['items'] }}{{ d.items() | list }}", "3[('items', 3)]"},
      {"{{ dict(a=1) }}{{ dict(d, c=2) }}{{ strftime_now('%d %b %Y %H:%M') }}", "{'a': 1}{'b': 1, 'a': 'x', 'c': 2}06 Aug 2025 12:34"},
  });
}

TEST(TemplateEngine, ErrorsNameTheLine) {
  check({
      {"a\n{{ raise_exception('told you') }}", "ERROR: chat template line 2: told you"},
      {"\n\n{{ x.y }}", "ERROR: chat template line 3: 'x' is undefined, it has no attribute 'y'"},
      {"{{ 1 }}\n{% if x\n %}", "ERROR: chat template line 2: the block that begins here is never closed by 'endif'"},
      {"{{ 'a' + 1 }}", "ERROR: chat template line 1: '+' between a string and an integer"},
      {"{{ 1 // 0 }}", "ERROR: chat template line 1: division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "ERROR: chat template line 1: the integer result does not fit 64 bits"},
      {"{{ 99999999999999999999 }}", "ERROR: chat template line 1: the integer 99999999999999999999 is too large"},
      {"{{ missing | int }}", "ERROR: chat template line 1: an undefined value is no number"},
      {"{{ l | nope }}", "ERROR: chat template line 1: there is no filter 'nope'"},
      {"{{ l is nope }}", "ERROR: chat template line 1: there is no test 'nope'"},
      {"{{ nope() }}", "ERROR: chat template line 1: 'nope' is undefined and cannot be called"},
      {"{{ s.nope() }}", "ERROR: chat template line 1: a string has no method 'nope'"},
      {"{% macro m(a) %}\n{{ a.b.c }}{% endmacro %}\n\n{{ m(l) }}", "ERROR: chat template line 2: 'b' is undefined, it has no attribute 'c'"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "ERROR: chat template line 1: the macro 'm' takes 1 arguments, 2 are given"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "ERROR: chat template line 1: the macro 'm' has no argument 'b'"},
      {"{{ {1: 2, 'a': 3} | tojson(sort_keys=true) }}",
       "ERROR: chat template line 1: a dict holds something that JSON has no form for (undefined, a namespace or a function)"},
      {"{{ [1, 'a'] | sort }}", "ERROR: chat template line 1: an integer and a string have no order"},
      {"{% set l.x = 1 %}", "ERROR: chat template line 1: cannot set 'x' of a list: only a namespace has attributes to set"},
      {"{% set a, b = l %}", "ERROR: chat template line 1: 3 values for 2 names"},
      {"{% for x in 3 %}{% endfor %}", "ERROR: chat template line 1: an integer has no elements to go through"},
      {"{{ x | tojson }}", "ERROR: chat template line 1: undefined holds something that JSON has no form for (undefined, a namespace or a function)"},
      {"{% break %}", "ERROR: chat template line 1: 'break' stands outside a loop"},
      {"{% include 'x' %}", "ERROR: chat template line 1: the tag 'include' is not supported in chat templates"},
      {"{% endif %}", "ERROR: chat template line 1: there is no tag 'endif' here"},
      {"{{ 'abc }}", "ERROR: chat template line 1: the string is never closed by '"},
      {"{# abc", "ERROR: chat template line 1: the comment is never closed by '#}'"},
      {"{{ 1", "ERROR: chat template line 1: the tag is never closed by '}}'"},
      {"{{ (1 }}", "ERROR: chat template line 1: expected ')', found '}'"},
      {"{{ ] }}", "ERROR: chat template line 1: ']' closes nothing"},
      {"{{ a ? b }}", "ERROR: chat template line 1: unexpected character '?' in a tag"},
      {"{{ 1 2 }}", "ERROR: chat template line 1: expected '}}', found '2'"},
      {"{{ '\\ud800' }}", "ERROR: chat template line 1: a surrogate without its other half is no code point"},
      {"{% raw %}x", "ERROR: chat template line 1: the raw block is never closed by endraw"},
  });
}

}  // namespace
}  // namespace lathe::text
