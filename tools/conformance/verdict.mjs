// The result of one scenario.
import fs from 'node:fs';
import path from 'node:path';

// These checks are made of every message, so they pass where nothing was tried.
const free = /^wire-schema-/;

// judge reads what a scenario has left in dir.
//
//   PASS  something was checked, and nothing failed, not even a SHOULD
//   FAIL  a check failed, or warned
//   EXIT  the client did not end as it should, or the suite's own process did not
//   VOID  nothing was checked
export function judge(kind, dir, { code, late, output }) {
  const checks = findChecks(dir).flatMap(file => JSON.parse(fs.readFileSync(file, 'utf8')));
  const counts = { SUCCESS: 0, FAILURE: 0, WARNING: 0, SKIPPED: 0, INFO: 0 };
  for (const c of checks) counts[c.status]++;

  const failing = new Map(); // by id, the gravest first
  for (const status of ['FAILURE', 'WARNING']) {
    for (const c of checks) {
      if (c.status !== status || failing.has(c.id)) continue;
      const text = (c.errorMessage || c.description || '').replace(/\s+/g, ' ').slice(0, 300);
      failing.set(c.id, { id: c.id, status, message: text });
    }
  }
  const passing = new Set(checks.filter(c => c.status === 'SUCCESS' && !free.test(c.id) && !failing.has(c.id)).map(c => c.id));

  const notes = [];
  if (late) notes.push('the suite did not end and was killed');
  if (kind === 'client') {
    if (/CLIENT TIMED OUT/.test(output)) notes.push('the client timed out');
    const exit = /CLIENT EXITED WITH ERROR \(code [^)]*\)/.exec(output);
    if (exit && /OVERALL: FAILED/i.test(output)) notes.push(exit[0].toLowerCase());
  }
  let verdict = 'PASS';
  if (failing.size) verdict = 'FAIL';
  else if (notes.length) verdict = 'EXIT';
  else if (!passing.size) {
    verdict = 'VOID';
    notes.push(checks.length ? `no check passed, ${counts.SKIPPED} skipped` : `no checks: ${output.trim().split('\n').at(-1).slice(0, 200)}`);
  } else if (code !== 0) {
    verdict = 'EXIT';
    notes.push(`the suite's exit status is ${code}`);
  }
  return { verdict, counts, failing: [...failing.values()], passing: passing.size, notes };
}

function findChecks(dir) {
  return fs
    .readdirSync(dir, { recursive: true })
    .filter(name => path.basename(name) === 'checks.json')
    .map(name => path.join(dir, name));
}
