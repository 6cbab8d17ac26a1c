// The expected results of the scenarios: which may fail, and how many checks must pass.
import fs from 'node:fs';
import path from 'node:path';

// readExpected reads a leg's list of what may fail. It is the part of YAML that the suites take
// too: "server:" and "client:", and under each items "- scenario" or "- scenario:check", with the
// reason in a comment above.
export function readExpected(dir, leg) {
  const file = path.join(dir, `expected-failures-${leg}.yml`);
  const entries = [];
  let kind, reason;
  for (const [i, line] of fs.readFileSync(file, 'utf8').split('\n').entries()) {
    const where = `${path.basename(file)}:${i + 1}`;
    const heading = /^(server|client):( \[\])?$/.exec(line);
    const item = /^ {2}- ([^\s:]+)(?::(\S+))?$/.exec(line);
    if (heading) [kind, reason] = [heading[1], false];
    else if (/^ *#/.test(line)) reason = true;
    else if (item && kind) {
      if (!reason) throw new Error(`${where}: the reason is missing, a comment above`);
      entries.push({ kind, scenario: item[1], check: item[2], where });
    } else if (line.trim()) throw new Error(`${where}: what is this?`);
    else reason = false;
  }
  return entries;
}

// compare marks the results that check less than they used to, and those that are as bad as
// expected, and returns what else there is to complain about: entries that no longer apply, and
// unknown scenarios. whole says that the results are complete for the leg.
export function compare(results, entries, checksFile, leg, { record, whole }) {
  const complaints = record ? recordChecks(results, checksFile, leg) : fewerChecks(results, checksFile, leg);
  if (whole) {
    const known = new Set(results.map(r => keyOf(leg, r)));
    for (const e of entries) {
      if (!known.has(keyOf(leg, { kind: e.kind, name: e.scenario }))) complaints.push(`stale: ${e.where}: there is no ${e.scenario}`);
    }
  }
  for (const r of results) {
    const own = entries.filter(e => e.kind === r.kind && e.scenario === r.name);
    const all = own.some(e => !e.check);
    const ids = new Set(r.failing.map(f => f.id));
    for (const e of own) {
      if (e.check ? !ids.has(e.check) : r.verdict === 'PASS') {
        complaints.push(`stale: ${e.where}: ${e.scenario}${e.check ? ':' + e.check : ''} does not fail`);
      }
    }
    const listed = new Set(own.map(e => e.check));
    r.expected = all || (r.verdict === 'FAIL' && [...ids].every(id => listed.has(id)));
  }
  return complaints;
}

// The file of checks has a line for each scenario: leg, server or client, name, and how many
// different checks must pass.
function readChecks(file) {
  const lines = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').trim().split('\n') : [];
  return new Map(lines.filter(Boolean).map(line => [line.slice(0, line.lastIndexOf('\t')), Number(line.slice(line.lastIndexOf('\t') + 1))]));
}

const keyOf = (leg, r) => [leg, r.kind, r.name].join('\t');

function fewerChecks(results, file, leg) {
  const known = readChecks(file);
  const complaints = [];
  for (const r of results) {
    const least = known.get(keyOf(leg, r));
    if (least === undefined) complaints.push(`${r.kind} ${r.name} is not in ${path.basename(file)}: run with --record`);
    else if (r.passing < least && r.verdict === 'PASS') {
      r.verdict = 'LESS';
      r.notes.push(`${r.passing} checks passed, which used to be ${least}`);
    }
  }
  return complaints;
}

function recordChecks(results, file, leg) {
  const known = readChecks(file);
  for (const r of results) known.set(keyOf(leg, r), r.passing);
  fs.writeFileSync(file, [...known].map(([key, n]) => `${key}\t${n}\n`).sort().join(''));
  return [];
}
