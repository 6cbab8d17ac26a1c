// Runs scenarios of the conformance suites, each in its own CLI process, and judges them. See run,
// which starts this, and README.md.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { parse as parseYAML } from 'yaml';
import { compare, readExpected } from './expected.mjs';
import { judge } from './verdict.mjs';

const here = import.meta.dirname;
const { values: opts } = parseArgs({
  options: {
    server: { type: 'string', multiple: true },
    client: { type: 'string', multiple: true },
    out: { type: 'string' },
    legs: { type: 'string' },
    scenario: { type: 'string', default: '' },
    jobs: { type: 'string', default: '4' },
    record: { type: 'boolean', default: false },
  },
});

// What a scenario may take, of which the client has the first part; and what its process may.
const scenarioTimeout = 30_000;
const processTimeout = 60_000;

const suites = { '0.1': 'conformance-0.1', '0.2': 'conformance-0.2' };
const cli = version => path.join(here, 'node_modules', suites[version], 'dist/index.js');
const requirements = revision =>
  parseYAML(fs.readFileSync(path.join(here, 'node_modules', suites['0.2'], 'requirements', revision + '.yaml'), 'utf8'));

// The servers' addresses and the client's commands, by the names that legs have for them.
const named = list => new Map(list.map(item => [item.slice(0, item.indexOf('=')), item.slice(item.indexOf('=') + 1)]));
const servers = named(opts.server);
const clients = named(opts.client);

// A leg is a list of scenarios of one suite, run with one server and one client: those of this
// name, by default without a bridge. A bridge between peers of one era changes nothing: such a leg
// has the other leg's expectations plus its own list. Across eras, logins are left out, because the
// translator does not handle them. A leg with a kind has only the scenarios of that kind: the
// processes of a cluster share one address.
const legs = {
  '016': { title: '0.1.16, everything', version: '0.1', flags: [], scenarios: () => listed('0.1') },
  2025: required('2025-11-25'),
  2026: required('2026-07-28'),
  rest: { title: '0.2.0-alpha.12, what is in no set', version: '0.2', flags: [], scenarios: unclaimed },
  '2025-bridge': { ...required('2025-11-25'), server: 'bridge', client: 'bridge', as: '2025' },
  '2026-bridge': { ...required('2026-07-28'), server: 'bridge', client: 'bridge', as: '2026' },
  '2025-cluster': { ...required('2025-11-25', isServer), server: 'cluster', as: '2025', kind: 'server' },
  '2026-cluster': { ...required('2026-07-28', isServer), server: 'cluster', as: '2026', kind: 'server' },
  '2025-gateway': { ...required('2025-11-25', isServer), server: 'gateway', as: '2025', kind: 'server' },
  '2026-gateway': { ...required('2026-07-28', isServer), server: 'gateway', as: '2026', kind: 'server' },
  '2025-gateway-across': { ...required('2025-11-25', isServer), server: 'modern-gateway', as: '2025-across', kind: 'server' },
  '2026-gateway-across': { ...required('2026-07-28', isServer), server: 'legacy-gateway', as: '2026-across', kind: 'server' },
  '2025-across': { ...required('2025-11-25', isNoLogin), server: 'modern-behind', client: 'legacy-behind' },
  '2026-across': { ...required('2026-07-28', isNoLogin), server: 'legacy-behind', client: 'modern-behind' },
};

// The order in which legs are reported.
const defaultLegs = [
  ...['016', '2025', '2026', 'rest', '2025-bridge', '2026-bridge', '2025-across', '2026-across', '2025-cluster', '2026-cluster'],
  ...['2025-gateway', '2026-gateway', '2025-gateway-across', '2026-gateway-across'],
];

function isServer(scenario) {
  return scenario.kind === 'server';
}

function isNoLogin(scenario) {
  return !scenario.name.startsWith('auth/');
}

function required(revision, filter = () => true) {
  return {
    title: `0.2.0-alpha.12, set ${revision}`,
    version: '0.2',
    flags: ['--spec-version', revision, '--force'],
    scenarios: () => {
      const set = requirements(revision);
      const scored = kind => set[kind].map(name => ({ kind, name, scored: true }));
      const others = set.not_scored.map(s => ({ kind: s.leg, name: s.scenario, scored: false }));
      return [...scored('server'), ...scored('client'), ...others].filter(filter);
    },
  };
}

// listed returns all scenarios of a suite.
async function listed(version) {
  const { output } = await execute([cli(version), 'list'], processTimeout);
  const found = [];
  let kind;
  for (const line of output.split('\n')) {
    const heading = /^(Server|Client|Authorization server) scenarios/.exec(line);
    if (heading) kind = { Server: 'server', Client: 'client' }[heading[1]];
    const item = /^ {2}- (\S+)/.exec(line);
    if (item && kind) found.push({ kind, name: item[1], scored: true });
  }
  return found;
}

// unclaimed returns the scenarios that are in neither set.
async function unclaimed() {
  const key = s => s.kind + ' ' + s.name;
  const claimed = new Set([...legs[2025].scenarios(), ...legs[2026].scenarios()].map(key));
  return (await listed('0.2')).filter(s => !claimed.has(key(s))).map(s => ({ ...s, scored: false }));
}

// Everything that this process has started, so that nothing outlives it.
const running = new Set();
function killAll() {
  for (const child of running) killGroup(child);
}
function killGroup(child) {
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {} // it is gone
}
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
process.on('exit', killAll);

// execute runs Node.js with the arguments in its own process group, so that a client that hangs
// ends with it.
function execute(args, timeout) {
  return new Promise(resolve => {
    const child = spawn(process.execPath, args, { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(child);
    let output = '';
    let late = false;
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', text => (output += text));
    const timer = setTimeout(() => {
      late = true;
      killGroup(child);
    }, timeout);
    child.on('close', code => {
      clearTimeout(timer);
      killGroup(child);
      running.delete(child);
      resolve({ code, late, output });
    });
  });
}

// run runs one scenario and returns its judgment.
async function run(leg, scenario) {
  const { version, flags, server = 'direct', client = 'direct' } = legs[leg];
  const { kind, name } = scenario;
  const dir = path.join(opts.out, leg, kind, name.replaceAll('/', '__'));
  fs.rmSync(dir, { recursive: true, force: true });
  fs.mkdirSync(dir, { recursive: true });
  const subject =
    kind === 'server' ? ['--url', servers.get(server)] : ['--command', clients.get(client), '--timeout', String(scenarioTimeout)];
  const begin = performance.now();
  const done = await execute([cli(version), kind, ...subject, '--scenario', name, ...flags, '-o', dir], processTimeout);
  fs.writeFileSync(path.join(dir, 'output.txt'), done.output);
  return { leg, ...scenario, ...judge(kind, dir, done), seconds: (performance.now() - begin) / 1000 };
}

// Scenarios that measure time, or change what others look at, have the machine for themselves. The
// slow ones begin first, so that none is left alone at the end.
const alone = /^(sse-retry|server-stateless|server-sse-polling)$/;
const slow = /^tasks-|multiple-streams|scope-retry/;

async function all(jobs) {
  const results = [];
  const queue = jobs.filter(j => !alone.test(j.scenario.name));
  queue.sort((a, b) => slow.test(b.scenario.name) - slow.test(a.scenario.name));
  const worker = async list => {
    for (let job; (job = list.shift()); ) results.push(await run(job.leg, job.scenario));
  };
  await Promise.all(Array.from({ length: Number(opts.jobs) }, () => worker(queue)));
  await worker(jobs.filter(j => alone.test(j.scenario.name)));
  return results;
}

// repeat runs the scenarios of a cluster that were not as expected once more, each alone: the suite
// waits 1.5 seconds for a notification, and three processes and NATS may be slower on a busy machine.
// It prints which ones, as each may be a fault: this is how one of the proxy was found.
async function repeat(results) {
  for (const leg of wanted.filter(name => name.endsWith('-cluster'))) {
    const as = legs[leg].as ?? leg;
    const expected = [...new Set([as, leg])].flatMap(name => readExpected(here, name));
    compare(results.filter(r => r.leg === leg), expected, path.join(here, 'checks.tsv'), as, { whole: false });
    for (const [i, r] of results.entries()) {
      if (r.leg !== leg || r.verdict === 'PASS' || r.expected) continue;
      console.log(`once more, alone: ${leg} ${r.name} (${r.verdict}: ${r.failing.map(f => f.id).join(', ')})`);
      const { kind, name, scored } = r;
      results[i] = await run(leg, { kind, name, scored });
    }
  }
}

function report(leg, results) {
  let bad = 0;
  for (const kind of ['server', 'client']) {
    const part = results.filter(r => r.kind === kind);
    if (!part.length) continue;
    const count = filter => part.filter(filter).length;
    const sum = of => part.reduce((n, r) => n + of(r), 0);
    const scored = count(r => r.scored);
    const other = part.length - scored;
    console.log(
      `${leg} ${kind} (${legs[leg].title}): ${count(r => r.scored && r.verdict === 'PASS')}/${scored} pass` +
        (other ? `, not scored ${count(r => !r.scored && r.verdict === 'PASS')}/${other}` : '') +
        `; checks: ${sum(r => r.counts.SUCCESS)} ok, ${sum(r => r.counts.FAILURE)} failed, ${sum(r => r.counts.WARNING)} warnings`,
    );
    for (const r of part) {
      if (r.verdict !== 'PASS') {
        const why = [...r.failing.map(f => f.id + (f.message ? ` (${f.message})` : '')), ...r.notes].join('; ');
        console.log(`  ${r.expected ? 'expected ' : ''}${r.verdict} ${r.name}: ${why}`);
      }
      if (r.verdict !== 'PASS' && !r.expected) bad++;
    }
  }
  return bad;
}

const pattern = new RegExp(opts.scenario);
const wanted = opts.legs?.split(',') ?? defaultLegs;
const jobs = [];
for (const leg of wanted) {
  if (!(leg in legs)) {
    console.error(`conformance: there is no leg ${leg}`);
    process.exit(2);
  }
  for (const scenario of await legs[leg].scenarios()) if (pattern.test(scenario.name)) jobs.push({ leg, scenario });
}
if (!jobs.length) {
  console.error('conformance: no scenario has that name');
  process.exit(2);
}
const begin = performance.now();
const results = await all(jobs);
if (!opts.record) await repeat(results);
const order = new Map(jobs.map((j, i) => [j.leg + j.scenario.kind + j.scenario.name, i]));
results.sort((a, b) => order.get(a.leg + a.kind + a.name) - order.get(b.leg + b.kind + b.name));
fs.writeFileSync(path.join(opts.out, 'results.json'), JSON.stringify(results, null, 1));

let bad = 0;
for (const leg of wanted) {
  const part = results.filter(r => r.leg === leg);
  const as = legs[leg].as ?? leg;
  const expected = [...new Set([as, leg])].flatMap(name => readExpected(here, name)).filter(e => (legs[leg].kind ?? e.kind) === e.kind);
  const complaints = compare(part, expected, path.join(here, 'checks.tsv'), as, { record: opts.record && as === leg, whole: !opts.scenario });
  bad += report(leg, part) + complaints.length;
  for (const c of complaints) console.log(`  ${c}`);
}
const slowest = results.toSorted((a, b) => b.seconds - a.seconds).slice(0, 3);
console.log(
  `${results.length} scenarios in ${((performance.now() - begin) / 1000).toFixed(0)} s, the slowest: ` +
    slowest.map(r => `${r.leg} ${r.name} ${r.seconds.toFixed(1)} s`).join(', '),
);
console.log(bad ? `${bad} not as expected` : 'all as expected');
process.exit(bad ? 1 : 0);
