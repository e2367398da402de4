// Texts on which tokenizers are compared: many scripts, emoji, code, white space runs, look-alikes of special tokens; and seeded mixtures of them.

export const kTexts = [
  '', ' ', '  ', '\n', '\r\n', '\t', ' \n', '\n ', 'a', ' a', 'a ', '  a', 'a  ', '   a   b   ',
  'Hello, world! It\'s 12345 days\n\n  caf\u00e9 \u4f60\u597d \ud83d\ude00<|im_end|>',
  'Hello world', 'hello   world\t\ttabs\n\n\nnewlines\r\n\r\nmixed \n \n  \n   x',
  // Contractions in every case, the long s, typographic apostrophes, and near misses.
  'I\'m you\'re he\'s we\'ll they\'d I\'ve can\'t I\'M YOU\'RE HE\'S WE\'LL THEY\'D I\'VE CAN\'T \'s\'t\'re\'ve\'m\'ll\'d \'\u017f \'\u017fa it\u2019s \'l \'v \'r \'\'s \'sx \'LLx \'Re\'vE',
  '\'S\'T\'RE\'VE\'M\'LL\'D', 'x\'s 1\'s .\'s \'s', '"\'tis"', 'O\'Reilly\'s',
  // Numbers.
  '1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 1e10 0xFF \u0661\u0662\u0663\u0664 \u0967\u0968\u0969\u096a \u2160\u2161\u2162 \u00b2\u00b3\u00b9 \u00bd\u00bc \u2460\u2461 \uff11\uff12\uff13\uff14 1st 2nd a1b2c3',
  // Scripts.
  'The quick brown fox jumps over the lazy dog. Portez ce vieux whisky au juge blond qui fume. Zw\u00f6lf Boxk\u00e4mpfer jagen Viktor quer \u00fcber den gro\u00dfen Sylter Deich.',
  '\u0421\u044a\u0435\u0448\u044c \u0435\u0449\u0451 \u044d\u0442\u0438\u0445 \u043c\u044f\u0433\u043a\u0438\u0445 \u0444\u0440\u0430\u043d\u0446\u0443\u0437\u0441\u043a\u0438\u0445 \u0431\u0443\u043b\u043e\u043a, \u0434\u0430 \u0432\u044b\u043f\u0435\u0439 \u0447\u0430\u044e.',
  '\u039e\u03b5\u03c3\u03ba\u03b5\u03c0\u03ac\u03b6\u03c9 \u03c4\u1f74\u03bd \u03c8\u03c5\u03c7\u03bf\u03c6\u03b8\u03cc\u03c1\u03b1 \u03b2\u03b4\u03b5\u03bb\u03c5\u03b3\u03bc\u03af\u03b1.',
  '\u05d3\u05d2 \u05e1\u05e7\u05e8\u05df \u05e9\u05d8 \u05d1\u05d9\u05dd \u05de\u05d0\u05d5\u05db\u05d6\u05d1 \u05d5\u05dc\u05e4\u05ea\u05e2 \u05de\u05e6\u05d0 \u05d7\u05d1\u05e8\u05d4. \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd',
  '\u0635\u0650\u0641 \u062e\u064e\u0644\u0642\u064e \u062e\u064e\u0648\u062f\u0650 \u0643\u064e\u0645\u0650\u062b\u0644\u0650 \u0627\u0644\u0634\u064e\u0645\u0633\u0650 \u0625\u0650\u0630 \u0628\u064e\u0632\u064e\u063a\u064e\u062a',
  '\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 \u0995\u09c7\u09ae\u09a8 \u0986\u099b\u09c7\u09a8? \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd \u0c28\u0c2e\u0c38\u0c4d\u0c15\u0c3e\u0c30\u0c02 \u0d28\u0d2e\u0d38\u0d4d\u0d15\u0d3e\u0d30\u0d02 \u0a38\u0a24 \u0a38\u0a4d\u0a30\u0a40 \u0a05\u0a15\u0a3e\u0a32',
  '\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u1019\u1004\u103a\u1039\u1002\u101c\u102c\u1015\u102b \u179f\u17bd\u179f\u17d2\u178f\u17b8 \u0ea5\u0eb2\u0ea7 \u0f56\u0f7c\u0f51\u0f0b\u0f61\u0f72\u0f42',
  '\u4f60\u597d\uff0c\u4e16\u754c\uff01\u6211\u4eec\u57282024\u5e743\u670815\u65e5\u89c1\u9762\u3002\u7e41\u9ad4\u4e2d\u6587\u6e2c\u8a66\u3002\ud840\udc00\ud840\udc01',
  '\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\u30ab\u30bf\u30ab\u30ca\u3068\u6f22\u5b57\u3068\u3072\u3089\u304c\u306a\u3002\uff76\uff80\uff76\uff85 \u30d1\u30fc\u30c6\u30a3\u30fc \u304b\u3099',
  '\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u1112\u1161\u11ab\u1100\u116e\u11a8 \uac00\u11a8 \uac01',
  '\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u0532\u0561\u0580\u0565\u0582 \u12a5\u1295\u12f0\u121d\u1295 \u13a3\u13b5\u13bb \u1401\u14c4\u1403\u1466 \u1820\u1821 \ud83a\udd00\ud83a\udd01 \ud800\udf30',
  // Normalisation: composed, decomposed, in wrong order, ligatures, compatibility characters.
  'caf\u00e9 cafe\u0301 \u212b \u00c5 A\u030a q\u0307\u0323 q\u0323\u0307 \u1e69 s\u0323\u0307 s\u0307\u0323 \ufb01 \ufb03 \u2126 \u03a9 \u1e9b\u0323 \u0344 \u0958 \u2adc \u0f73 \u1fee',
  '\uff21\uff22\uff23 \u33a1 \u2075 \u3300 \ufdfa \u01c4 \u1d400 \ud835\udc00\ud835\udc9c \u0132 \u2168 \u00a0nbsp\u00a0\u202f\u2009thin\u3000wide\u2028line\u2029para\u0085nel\u180emvs\u200bzw\u200dj\ufeffbom',
  // Emoji.
  '\ud83d\ude00\ud83d\ude03 \ud83d\udc4d\ud83c\udffd \ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67\u200d\ud83d\udc66 \ud83c\uddeb\ud83c\uddf7\ud83c\udde9\ud83c\uddea \u2764\ufe0f\u200d\ud83d\udd25 1\ufe0f\u20e3 \u2603\ufe0f \ud83e\udee8 \ud83e\udef7 \u00a9\ufe0f\u2122',
  // Code.
  'def f(x: int) -> str:\n    """doc"""\n    if x >= 10 and x != 42:\n        return f"{x!r:>10}"  # comment\n\n\treturn None\n',
  '#include <vector>\ntemplate<class T> auto f(T&& x)->decltype(x+1){return std::forward<T>(x)+1;}\n/* a */ // b\r\nint main(){int*p=&a[0];p->x++;}',
  '{"key": [1, 2.5e-3, null, true], "nested": {"a\\n": "\\u00e9"}}\n<html><body class="x">&amp;</body></html>\n$x^2 + \\frac{1}{2}$ SELECT * FROM t WHERE a=\'b\';',
  'for(;;){}!!!???...---===+++///***&&&|||~~~^^^%%%$$$###@@@```"""\'\'\'((()))[[[]]]{{{}}}<<<>>>,,,;;;:::\\\\\\',
  '_snake_case camelCase PascalCase kebab-case SCREAMING_SNAKE path/to/file.txt C:\\Users\\x https://example.com/a?b=c&d=e#f user@example.com #tag @user',
  // White space.
  '    indented\n        more\n\t\ttabs\n \t \t mixed\n\n\n\n\n', ' \u00a0 \u3000 \u2003 ', 'a\u0085b\u2028c\u2029d', '\n\n\n   \n\n', 'x\n\n', 'x \n', 'x\n y', 'x \n\n  y', '\r\r\n\n\r', 'a\r\rb', ' \r\n \r\n', '!\n\n!', '!!\r\n\r\n x', ' !\n',
  'trailing spaces   ', 'a' + ' '.repeat(200) + 'b', '\n'.repeat(50), '\t'.repeat(33) + 'x', ' '.repeat(129), '- '.repeat(40),
  // Look-alikes of special tokens, and special tokens next to everything.
  '<|endoftext|>', '<|endoftext|><|endoftext|>', ' <|endoftext|> ', 'a<|endoftext|>b', '<|endoftext|', '<|endoftext |>', '<<|endoftext|>>', '|endoftext|>', '<|endoftex<|endoftext|>t|>',
  '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nhello<|im_end|>', '<think>x</think><tool_call>{"name": "f"}</tool_call> < think> <think >',
  '[gMASK]<sop><|system|>no<|user|>yes<|assistant|>maybe<|observation|><|image|><|begin_of_image|><|end_of_image|>[MASK][sMASK]<eop>/nothink /nothink x/nothinking',
  '<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nYou are<|eot_id|><|reserved_special_token_5|><|reserved_special_token_2|><|python_tag|><|eom_id|>',
  '<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c>hi<\uff5cAssistant\uff5c>ok<\uff5cend\u2581of\u2581sentence\uff5c><\uff5ctool\u2581calls\u2581begin\uff5c><\uff5cfim\u2581hole\uff5c><|EOT|><\uff5cbegin of sentence\uff5c>',
  '<|fim_prefix|><|fim_middle|><|fim_suffix|><|repo_name|><|file_sep|><|vision_start|><|image_pad|><|vision_end|><arg_key>a</arg_key><arg_value>b</arg_value>',
  // Control characters, private use, unassigned, noncharacters, lone marks.
  '\u0000\u0001\u0007\u001b[31m\u007f', '\ue000\uf8ff \udb80\udc00', '\u0378\u0379 \ufffe\uffff', '\ufffd\ufffd', '\u0301\u0301x\u0301', '\u200f\u202ertl\u202c', 'Z\u0335\u0327\u0310\u0323a\u0336\u0341l\u0344g\u0345o\u0301\u0302\u0303\u0304\u0305\u0306',
];

/** A small generator of seeded numbers below n (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const kFragments = [' ', '  ', '\n', '\r\n', '\t', '\r', '\u00a0', '\u3000', '\u0085', '\u2028', 'a', 'B', 'the', ' The', 'ing', '\'', '\'s', '\'LL', '\'re', '\u2019', '1', '23', '456', '\u0664', '\u00b2', '.', ',', '!',
  '_', '-', '/', '\\', '"', '(', ')', '{', '}', '<', '>', '|', '<|', '|>', '#', '$', '+', '=', '\u00e9', 'e\u0301', '\u0323', '\u0307', '\u4f60', '\u597d', '\u3042', '\u30a2', '\uac00', '\u11a8', '\u0430', '\u0627', '\u064e', '\u0915',
  '\u094d', '\u0e2a', '\ud83d\ude00', '\u200d', '\ufe0f', '\ud840\udc00', '\u0000', '\u200b', '\ufffd', '\ue000', '\u0378', '<think>', '</think>', '<|im_end|>', '<|endoftext|>', '<|user|>', '[MASK]', '\u212b', '\ufb01'];

/** `count` mixtures of fragments. */
export function mixtures(seed, count) {
  const next = random(seed);
  const texts = [];
  for (let i = 0; i < count; ++i) {
    let text = '';
    for (let n = 1 + next(30); n > 0; --n) text += kFragments[next(kFragments.length)].repeat(next(8) === 0 ? 1 + next(6) : 1);
    texts.push(text);
  }
  return texts;
}

/** Every code point of `codes` (no surrogates) between letters, digits, spaces, signs and line ends, 32 to a text. */
export function sweep(codes) {
  const texts = [];
  for (let i = 0; i < codes.length; i += 32) {
    let text = '';
    for (const code of codes.slice(i, i + 32)) {
      const c = String.fromCodePoint(code);
      text += `a${c} ${c}${c}1${c}b! ${c}\n`;
    }
    texts.push(text);
  }
  return texts;
}
