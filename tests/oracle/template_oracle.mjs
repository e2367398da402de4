// Renders the cases of template_cases.mjs with @huggingface/jinja and with our engine, and compares every byte.
//   node template_oracle.mjs DRIVER WORK-FOLDER     the test
//   node template_oracle.mjs --record               writes what the oracle renders to templates/recorded.json, for the test without node
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { featureCases, modelCases } from './template_cases.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const recordedFile = join(here, 'templates', 'recorded.json');
if (!existsSync(join(here, 'node_modules', '@huggingface', 'jinja'))) {
  console.log('skipped: tests/oracle/node_modules has no @huggingface/jinja; run npm ci there');
  process.exit(77);
}
const { Template } = await import('@huggingface/jinja');

// One moment for strftime_now.
process.env.TZ = 'UTC';
const now = 1754483696;
const SystemDate = Date;
globalThis.Date = class extends SystemDate {
  constructor(...args) {
    super(...(args.length > 0 ? args : [now * 1000]));
  }
};

const source = (name) => readFileSync(name === 'builtin' ? join(here, '../../data/builtin/chat_template.jinja') : join(here, 'templates', name), 'utf8');
const parsed = new Map();
function oracle(text, context) {
  try {
    if (!parsed.has(text)) parsed.set(text, new Template(text));
    return { text: parsed.get(text).render(structuredClone(context)) };
  } catch (error) {
    return { error: error.message };
  }
}

const cases = [...modelCases(), ...featureCases()];
const expected = cases.map((c) => oracle(c.source ?? source(c.template), c.context));

if (process.argv[2] === '--record') {
  const lines = cases.map((c, i) => JSON.stringify({ ...c, now, expect: expected[i] }));
  writeFileSync(recordedFile, `[\n${lines.join(',\n')}\n]\n`);
  console.log(`recorded ${cases.length} cases`);
  process.exit(0);
}

const [driver, work] = process.argv.slice(2);
const casesFile = join(work, 'template_cases.json');
writeFileSync(casesFile, JSON.stringify(cases.map((c) => ({ template: c.source ?? source(c.template), context: c.context, now }))));
const ours = JSON.parse(execFileSync(driver, [casesFile], { encoding: 'utf8', maxBuffer: 1 << 28 }));

let failures = 0;
function fail(c, what, detail) {
  failures += 1;
  if (failures <= 20) console.log(`FAILED ${c.template ?? 'feature'}: ${c.name}: ${what}\n  ${detail.map((d) => d.slice(0, 2000)).join('\n  ')}`);
}
cases.forEach((c, i) => {
  const want = expected[i];
  const got = ours[i];
  if ((want.text === undefined) !== (got.text === undefined)) {
    fail(c, 'one engine refuses', [JSON.stringify(want), JSON.stringify(got)]);
  } else if (want.text === undefined && c.template && !got.error.endsWith(`: ${want.error}`)) {
    fail(c, 'the message of raise_exception is lost', [want.error, got.error]);
  } else if (want.text !== got.text) {
    fail(c, 'texts differ', [JSON.stringify(want.text), JSON.stringify(got.text)]);
  }
});

const recorded = JSON.parse(readFileSync(recordedFile, 'utf8'));
const same = recorded.length === cases.length && recorded.every((r, i) => JSON.stringify(r.expect) === JSON.stringify(expected[i]) && JSON.stringify(r.context) === JSON.stringify(cases[i].context));
if (!same) {
  failures += 1;
  console.log('FAILED templates/recorded.json is not what the oracle renders now: run node template_oracle.mjs --record');
}
const refused = expected.filter((e) => e.text === undefined).length;
console.log(`${cases.length} renders compared with @huggingface/jinja (${refused} refused by both), ${failures} failures`);
process.exit(failures === 0 ? 0 : 1);
