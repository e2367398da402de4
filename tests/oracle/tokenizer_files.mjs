// tokenizer.json files made for the comparison: GPT-2 from its original two files, and variants of one file that use other parts of the format.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const kByteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };

/** The tokenizer.json of GPT-2, from encoder.json and vocab.bpe. */
export function gpt2File(folder) {
  const vocab = JSON.parse(readFileSync(join(folder, 'encoder.json'), 'utf8'));
  const merges = readFileSync(join(folder, 'vocab.bpe'), 'utf8').split('\n').slice(1).filter((line) => line.length > 0);
  return {
    version: '1.0', truncation: null, padding: null,
    added_tokens: [{ id: 50256, content: '<|endoftext|>', single_word: false, lstrip: false, rstrip: false, normalized: true, special: true }],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, vocab, merges },
  };
}

const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers: [...pretokenizers, kByteLevel] });
const split = (pattern, behavior = 'Isolated', invert = false) => ({ type: 'Split', pattern: typeof pattern === 'string' ? { Regex: pattern } : { String: pattern.text }, behavior, invert });

/** Files that differ from `base` in one part each. */
export function variants(base) {
  const out = {};
  const add = (name, change) => { out[name] = { ...base, ...change }; };
  const pre = (name, ...steps) => add(name, { pre_tokenizer: sequence(...steps) });
  const addedTokens = (list) => {
    let next = base.added_tokens.length + Object.keys(base.model.vocab).length;
    const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: false };
    return [...base.added_tokens, ...list.map((token) => ({ id: base.model.vocab[token.content] ?? next++, ...flags, ...token }))];
  };

  // Patterns of other families.
  pre('gpt4o', split("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"));
  pre('kimi', split("[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"));
  pre('qwen35', split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"));
  pre('starcoder', { type: 'Digits', individual_digits: true }, { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true });
  out.starcoder.pre_tokenizer.pretokenizers.pop();
  pre('falcon', { type: 'Punctuation', behavior: 'Contiguous' }, { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }, { type: 'Digits', individual_digits: false }, split('[0-9][0-9][0-9]'));
  out.falcon.pre_tokenizer.pretokenizers.pop();
  // The same pattern with another spelling goes to PCRE2.
  pre('llama3_regex', split("(?:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"));
  // Parts of the dialect.
  pre('words', split('\\w+|[^\\w\\s]+'));
  pre('not_words', split('\\W'));
  pre('negated_in_class', split('[\\S\\n]+'));
  pre('not_letter_in_class', split('[\\P{L}a]+'));
  pre('no_digits', split('[^\\d\\n]+|\\D'));
  pre('anchors', split('^ *.|.$'));
  pre('dot_all', split('(?m:a.)'));
  pre('intersection', split('[\\p{L}&&[a-zA-Z\\u4e00-\\u9fff]]+|[^\\p{L}&&[^x]]'));
  pre('braces', split('[a-z]{2,}|{|\\{x|[0-9]{,2}1'));
  pre('empty_matches', split('x*'));
  pre('look_behind', split('(?<=[a-z])(?=[A-Z])|(?<!\\s)\\n'));
  pre('no_case', split('(?i:the|k|\u00e9|ss)'));
  // Behaviours.
  for (const behavior of ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']) {
    for (const invert of [false, true]) pre(`${behavior}_${invert}`, split('[ a-e]', behavior, invert));
    pre(`string_${behavior}`, split({ text: ' ' }, behavior));
  }
  // Other steps.
  pre('digits_together', { type: 'Digits', individual_digits: false });
  pre('whitespace', { type: 'Whitespace' });
  pre('whitespace_split', { type: 'WhitespaceSplit' });
  pre('punctuation', { type: 'Punctuation' });
  pre('delimiter', { type: 'CharDelimiterSplit', delimiter: '-' });
  add('prefix_space', { pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true } });
  pre('split_then_prefix', { type: 'Digits', individual_digits: false }, { ...kByteLevel, add_prefix_space: true });
  out.split_then_prefix.pre_tokenizer.pretokenizers.pop();
  // Normalizers.
  for (const type of ['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase']) add(type, { normalizer: { type } });
  add('strip', { normalizer: { type: 'Strip', strip_left: true, strip_right: true } });
  add('strip_right', { normalizer: { type: 'Strip', strip_left: false, strip_right: true } });
  add('replace_string', { normalizer: { type: 'Sequence', normalizers: [{ type: 'Replace', pattern: { String: ' ' }, content: '__' }, { type: 'Prepend', prepend: '>' }] } });
  add('replace_regex', { normalizer: { type: 'Sequence', normalizers: [{ type: 'NFKC' }, { type: 'Replace', pattern: { Regex: '\\s{2,}|[.,]' }, content: '' }, { type: 'Lowercase' }] } });
  // Added tokens.
  const flagged = [{ content: '<lr>', lstrip: true, rstrip: true }, { content: '<|im_end|>', rstrip: true, special: true }, { content: '<|', lstrip: true }, { content: 'ing', single_word: true }, { content: 'the', single_word: true, normalized: true },
    { content: '\u00e9', normalized: true }, { content: '<|im_start|>', lstrip: true, special: true }, { content: 'B', single_word: true, lstrip: true }, { content: '  ' }, { content: '\u212b', normalized: true }, { content: 'e\u0301x' }];
  add('added_flags', { added_tokens: addedTokens(flagged) });
  add('added_normalized', { added_tokens: addedTokens(flagged), normalizer: { type: 'Sequence', normalizers: [{ type: 'NFC' }, { type: 'Lowercase' }] } });
  add('added_prefix', { added_tokens: addedTokens(flagged), pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true } });
  add('ignore_merges', { model: { ...base.model, ignore_merges: true } });
  return out;
}
