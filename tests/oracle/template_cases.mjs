// Cases of the template oracle: what each template is rendered with. A context is what a server passes: messages, tools, switches.

const call = (name, args, id) => ({ id, type: 'function', function: { name, arguments: args } });
const tool = (name, properties, more = {}) => ({
  type: 'function',
  function: { name, description: `Does ${name}.`, parameters: { type: 'object', properties, required: Object.keys(properties) }, ...more },
});
const weather = tool('get_weather', { city: { type: 'string', description: 'Größe <b> & "Ort"' }, days: { type: 'integer', minimum: 1 } });
const search = tool('search', { query: { type: 'string' }, tags: { type: 'array', items: { type: 'string' } } });
const user = (content) => ({ role: 'user', content });
const system = (content) => ({ role: 'system', content });
const assistant = (content, more = {}) => ({ role: 'assistant', content, ...more });
const result = (content, id) => ({ role: 'tool', content, tool_call_id: id });

const hello = [user('hi'), assistant('hello there'), user('bye'), assistant('see you')];
const reasoned = [user('2+2?'), assistant('4', { reasoning_content: ' add them\n' }), user('3+3?'), assistant('<think>again\n</think>\n\n6')];
const oneCall = [
  user('weather?'),
  assistant('', { tool_calls: [call('get_weather', { city: 'Paris', days: 2 }, 'call00001')] }),
  result('sunny', 'call00001'),
  assistant('It is sunny.'),
];
const twoCalls = [
  system('Be brief.'),
  user('weather and news?'),
  assistant('Looking.\n', {
    reasoning_content: 'two things',
    tool_calls: [
      call('get_weather', { city: '東京', note: { deep: [1, 2.5, true, null, 'ü'] } }, 'call00001'),
      call('search', { query: 'news "today"', tags: ['a', 'b'], empty: {} }, 'call00002'),
    ],
  }),
  result('{"rain": 0.5}', 'call00002'),
  result('wet\n', 'call00001'),
  assistant('Rain.', { reasoning_content: 'combine' }),
  user('thanks'),
];
const odd = [
  system('  padded \n'),
  user('line one\nline two\n\n  <|im_end|> [INST] <|user|> {{ not a tag }} {% nor this %}'),
  assistant(' \n'),
  user('👩‍👩‍👧 zażółć \u00a0 \u3000 \t'),
];
const pictures = [
  user([{ type: 'image' }, { type: 'text', text: 'what is it?' }, { type: 'image_url', image_url: { url: 'x' } }]),
  assistant('a fox'),
  user([{ type: 'text', text: 'and ' }, { type: 'text', text: 'now?' }, { type: 'video' }]),
];
const chats = { hello, reasoned, odd };

function* product(template, extras, contexts) {
  for (const [name, context] of Object.entries(contexts)) {
    for (const [extraName, extra] of Object.entries(extras)) yield { name: `${name}, ${extraName}`, template, context: { ...context, ...extra } };
  }
}

const chatContexts = (extra = {}) => Object.fromEntries(Object.entries(chats).map(([name, messages]) => [name, { messages, ...extra }]));

const ends = { open: { add_generation_prompt: true }, closed: { add_generation_prompt: false } };

function* chatml() {
  const contexts = {
    ...chatContexts(),
    'one call': { messages: oneCall, tools: [weather] },
    'two calls': { messages: twoCalls, tools: [weather, search] },
    pictures: { messages: pictures },
    'calls as text': { messages: [user('q'), assistant('', { tool_calls: [{ function: { name: 'f', arguments: '{"a": 1}' } }, { name: 'g', arguments: {} }] }), result('r')] },
    'no messages': { messages: [] },
  };
  yield* product('chatml_tools.jinja', { ...ends, 'no thinking': { add_generation_prompt: true, enable_thinking: false }, thinking: { add_generation_prompt: true, enable_thinking: true } }, contexts);
}

function* llama() {
  const tokens = { bos_token: '<|begin_of_text|>', eos_token: '<|eot_id|>' };
  const mapped = [
    user('run'),
    assistant(null, { tool_calls: [call('brave_search', { query: 'x', count: 'two' })] }),
    { role: 'ipython', content: { ok: [1, 2] } },
    assistant('done '),
    user('list'),
    { role: 'tool', content: ['a', { b: null }] },
  ];
  const contexts = {
    ...chatContexts(tokens),
    dated: { messages: hello, date_string: '26 Jul 2024', ...tokens },
    'one call': { messages: oneCall, tools: [weather], ...tokens },
    'tools in head': { messages: [system(' S '), ...oneCall], tools: [weather, search], tools_in_user_message: false, ...tokens },
    'custom tools': { messages: oneCall, custom_tools: [search], ...tokens },
    'built in': { messages: mapped, builtin_tools: ['brave_search', 'code_interpreter', 'wolfram'], ...tokens },
    'two calls at once': { messages: twoCalls, tools: [weather], ...tokens },
    'tools without user': { messages: [system('s')], tools: [weather], ...tokens },
  };
  yield* product('llama31_tools.jinja', ends, contexts);
}

function* deepseek() {
  const tokens = { bos_token: '<｜begin▁of▁sentence｜>', eos_token: '<｜end▁of▁sentence｜>' };
  const textCalls = [
    user('weather?'),
    assistant(null, { tool_calls: [call('get_weather', '{"city": "Köln"}', '1'), call('search', '{}', '2')] }),
    result('sunny', '1'),
    result('nothing', '2'),
    assistant('Sunny.'),
    user('more'),
    assistant('wait', { tool_calls: [call('search', '{"query": "a\\"b"}', '3')] }),
    result('x', '3'),
  ];
  const contexts = {
    ...chatContexts(tokens),
    'many heads': { messages: [system('one'), user('q'), system('two'), assistant('<think>r</think>a</think>b')], ...tokens },
    'calls as text': { messages: textCalls, tools: [weather, tool('bare', {}, { description: '' })], ...tokens },
    prefix: { messages: [user('q'), assistant('so', { prefix: true })], ...tokens },
  };
  yield* product('deepseek_reasoning.jinja', { ...ends, thinking: { thinking: true, add_generation_prompt: true }, 'nothing said': {} }, contexts);
}

function* mistral() {
  const tokens = { bos_token: '<s>', eos_token: '</s>' };
  const contexts = {
    ...chatContexts(tokens),
    system: { messages: [system('S'), ...hello.slice(0, 3)], ...tokens },
    'one call': { messages: [...oneCall, user('and?')], tools: [weather], ...tokens },
    'tools last': { messages: [system('S'), user('q')], tools: [weather, tool('plain', {}, { return: 'drop', description: 'd' })], ...tokens },
    'two calls': { messages: twoCalls.slice(1), ...tokens },
    'mapped result': { messages: [user('q'), assistant('', { tool_calls: [call('f', {}, 'abcdefghi')] }), { role: 'tool', content: { content: 12 }, tool_call_id: 'abcdefghi' }], ...tokens },
    'two users': { messages: [user('a'), user('b')], ...tokens },
    'assistant first': { messages: [assistant('a')], ...tokens },
    'short id': { messages: [user('q'), assistant('', { tool_calls: [call('f', {}, 'short')] })], ...tokens },
    'no id': { messages: [user('q'), assistant('', { tool_calls: [call('f', {}, 'abcdefghi')] }), { role: 'tool', content: 'x' }], ...tokens },
    'unknown role': { messages: [user('q'), { role: 'narrator', content: 'x' }], ...tokens },
  };
  yield* product('mistral_strict.jinja', { '': {} }, contexts);
}

/// Both GLM templates: the model's own and ours with every branch.
function* glm(template, more = {}) {
  const reference = [{ type: 'tool_reference', name: 'later' }];
  const contexts = {
    ...chatContexts(),
    'later system': { messages: [user('hi'), assistant('hello'), system('new rule'), user('ok'), assistant('done')] },
    'one call': { messages: oneCall, tools: [weather] },
    'two calls': { messages: twoCalls, tools: [weather, { ...search, defer_loading: true }, search.function] },
    'results out of order, id missing': { messages: [...twoCalls.slice(0, 3), result('a', 'call00001'), { role: 'tool', content: 'b' }] },
    'one result of two': { messages: twoCalls.slice(0, 4) },
    'results alone': { messages: [result('a', 'x'), result('b', 'y'), user('q')] },
    'tool reference': {
      messages: [user('find'), assistant('', { tool_calls: [call('find', {}, 'c')] }), result(reference, 'c')],
      tools: [weather, tool('later', {}, { defer_loading: true, strict: true })],
    },
    pictures: { messages: pictures },
    'mixed parts': { messages: [user(['plain', { type: 'text', text: 'T' }, { type: 'video_url' }, { image: 'x', type: 'image' }])] },
    'null content': { messages: [user('q'), assistant(null, { tool_calls: [call('f', { a: false, b: 'x', c: [] }, 'i')] })] },
  };
  const efforts = {};
  for (const effort of ['low', 'high', 'max', 'none', 'medium', '', null]) efforts[`effort ${effort}`] = { reasoning_effort: effort, add_generation_prompt: true };
  yield* product(template, { ...ends, clear: { clear_thinking: true, add_generation_prompt: true }, keep: { clear_thinking: false } }, { ...contexts, ...more });
  yield* product(template, efforts, { hello: { messages: hello } });
}

export function* modelCases() {
  yield* chatml();
  yield* llama();
  yield* deepseek();
  yield* mistral();
  yield* glm('glm_every_branch.jinja', {
    'unknown role': { messages: [user('q'), { role: 'narrator', content: 'x' }] },
    'image note': { messages: pictures, image_note: '(seen)' },
    'mapping content': { messages: [user({ a: 'ü', b: 1 })] },
  });
  yield* glm('builtin');
}

/// Small templates, one feature each, where Jinja2 and the oracle agree.
const data = { s: 'Hello World', l: [3, 1, 2], d: { b: 1, a: 'x' }, people: [{ name: 'Bo', age: 3 }, { name: 'al', age: 1 }], n: null, t: true, deep: { a: [{ b: 'c' }] } };
const features = [
  'a\n  {% if t %}\n  b\n  {% endif %}\nc\n\n',
  'x {%- if t -%} y {%- endif -%} z',
  '  {#- gone -#}  kept',
  '{# c #}\nx',
  '{% for i in [1] %}\n{{ i }}\n{% endfor %}\n!',
  '{{ "a" "b" }}{{ \'it\\\'s\' }}{{ "\\n\\t\\\\" }}',
  '{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ 2 ** 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 1.5 + 1 }}',
  '{{ "a" + "b" ~ 1 ~ "c" }}',
  '{{ "abc"[1:] }} {{ "abc"[-1] }} {{ "abc"[::-1] }} {{ l[1:] | join(",") }} {{ l[-2] }}',
  '{{ 1 if t else 2 }} {{ 1 if n else 2 }} {{ "z" if n }}|',
  '{% if not t %}a{% elif n %}b{% elif l %}c{% else %}d{% endif %}',
  '{{ "yes" if 1 in l and 9 not in l else "no" }} {{ "yes" if "a" in d else "no" }} {{ "yes" if "lo W" in s else "no" }}',
  '{{ "yes" if 1 < 2 and 2 >= 2 and "a" != "b" else "no" }}',
  '{% for x in l if x != 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ "," if not loop.last }}{% else %}none{% endfor %}',
  '{% for x in [] %}x{% else %}none{% endfor %}',
  '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}',
  '{% for x in range(2, 8, 2) %}{% if x == 4 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in range(9) %}{% if x > 2 %}{% break %}{% endif %}{{ x }}{% endfor %}',
  '{% for p in people %}{{ "F" if loop.first }}{{ loop.index0 }}{{ p.name }}{{ loop.revindex }}{% endfor %}',
  '{% set x = 1 %}{% for i in range(3) %}{% set x = i %}{% endfor %}{{ x }}',
  '{% set ns = namespace(x=1, y="q") %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}',
  '{% set a, b = 1, "z" %}{{ a }}{{ b }}{% set block %}in {{ a }}{% endset %}[{{ block }}]',
  '{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, b=3) }} {{ m(b="q", a="r") }}',
  '{% macro wrap() %}<{{ caller("x") }}>{% endmacro %}{% call(v) wrap() %}{{ v }}!{% endcall %}',
  '{% macro deep(k) %}{{ k }}{% if k > 0 %}{{ deep(k - 1) }}{% endif %}{% endmacro %}{{ deep(5) }}',
  '{% filter upper %}abc{% endfilter %}{% generation %}g{% endgeneration %}',
  '{{ s | upper }} {{ s | lower }} {{ "hello wORLD".lower() | capitalize }} {{ "hello world" | title }} {{ "  x " | trim }}|',
  '{{ s | length }} {{ l | length }} {{ d | length }} {{ "héllo" | length }}',
  '{{ l | first }} {{ l | last }} {{ l | join("-") }} {{ l | sort | join }} {{ l | reverse | join }} {{ [1, 1, 2] | unique | join(",") }}',
  '{{ people | map(attribute="name") | join("+") }} {{ people | selectattr("name", "equalto", "al") | map(attribute="name") | first }}',
  '{{ people | rejectattr("name", "equalto", "Bo") | list | length }} {{ people | sort(attribute="age") | map(attribute="name") | join }}',
  '{{ "3" | int + 1 }} {{ "x" | int }} {{ "2.5" | float + 1 }} {{ -3 | abs }} {{ 4 | string + "!" }}',
  '{{ missing | default("d") }} {{ "" | default("e", true) }} {{ t | default("f") | string | lower }}',
  '{{ "a.b.a" | replace("a", "<c>") }} {{ "a\nb\n\nc" | indent(2) }} {{ "a\nb" | indent(2, true) }}',
  '{{ d | tojson }} {{ {"k": [1, 2.5, "é<\\"", none, true]} | tojson }} {{ {"é": 1} | tojson(ensure_ascii=true) }} {{ "😀" | tojson(ensure_ascii=true) }}',
  '{{ {"b": [1, {"c": 2}], "a": {}} | tojson(indent=2) }} {{ {"b": 1, "a": [2, 3]} | tojson(separators=(",", ":")) }} {{ {"b": 1, "a": 2} | tojson(sort_keys=true) }}',
  '{% for k, v in d | dictsort %}{{ k }}{{ v }}{% endfor %} {% for k, v in d | items %}{{ k }}{{ v }}{% endfor %}',
  '{{ "Y" if s is string and l is iterable and d is mapping and n is none and missing is not defined and 3 is odd and 4 is even and 1 is number and t is boolean and 2 is integer }}',
  '{{ "Y" if s is defined and l is sequence and t is true and "ab" is lower and "AB" is upper }}',
  '{{ "a,b,c".split(",") | join("|") }} {{ " x y ".split() | join("|") }} {{ "a,b,c".split(",", 1) | last }}',
  '{{ " x ".strip() }}{{ "  l".lstrip() }}{{ "r  ".rstrip() }}{{ "abc".startswith("ab") | string | lower }}{{ "abc".endswith("bc") | string | lower }}',
  '{{ s.upper() }}{{ s.lower() }}{{ "ab cd".title() }}{{ "ab".capitalize() }}{{ "aXbX".replace("X", "-") }}{{ "aXbX".replace("X", "-", 1) }}',
  '{{ d.get("a") }}{{ d.get("q", "none") }}{{ d.keys() | list | join }}{{ d.values() | list | join }}{{ d["b"] }}{{ d.b }}',
  '{{ deep.a.0.b }}{{ deep["a"][0]["b"] }}{{ deep.a[0].b }}',
  '{{ not missing is defined and "kept" }} {{ missing or "other" }} {{ n or 0 or "last" }}',
  '{{ strftime_now("%d %b %Y %H:%M") }}',
  '{{ raise_exception("told you") }}',
  '{{ x.y if x is defined and x.y is defined else "safe" }}',
];
export function* featureCases() {
  for (const source of features) yield { name: source.slice(0, 60), source, context: data };
}
