// Drives a browser through the scenes that watch_test.go requests. Usage: node watch.mjs CHROMIUM.
// It reads lines of JSON: {scene, with, dir, shots} runs a scene, {reply, value, error} is the
// result of a call. It writes lines of JSON: {call, function, args} calls a function of the test,
// {notes, failures} ends a scene.
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'
import { Scene } from './watchscene.mjs'
import { access, reload, restart } from './watchlink.mjs'
import { back, detail, empty, filter, keys, rows } from './watchlist.mjs'
import { diff, drop, edit, exporting, resend, run, save } from './watchdoing.mjs'
import { axe, narrow } from './watchaxe.mjs'
import { hostile } from './watchhostile.mjs'
import { many, whole } from './watchmany.mjs'
import { held } from './watchheld.mjs'
import { columns, facets, menus, pictures, strip } from './watchviews.mjs'

const scenes = { access, axe, back, columns, detail, diff, drop, edit, empty, export: exporting, facets, filter, held, hostile, keys, many, menus, narrow, pictures, reload, resend, restart, rows, run, save, strip, whole }

const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--no-proxy-server'],
})
const calls = new Map()
let count = 0

function write(line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

// call calls a function of the test, and returns its result.
function call(name, args) {
  return new Promise((resolve, reject) => {
    calls.set(++count, { resolve, reject })
    write({ call: count, function: name, args: args ?? {} })
  })
}

async function runScene(line) {
  const scene = new Scene(browser, call, line)
  try {
    await scenes[line.scene](scene)
  } catch (e) {
    scene.fail(e.stack || String(e))
    await scene.screenshot('failed')
  }
  await scene.end()
  write({ notes: scene.notes, failures: scene.failures })
}

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text)
  if (line.scene) {
    runScene(line)
    continue
  }
  const waiting = calls.get(line.reply)
  calls.delete(line.reply)
  if (line.error) waiting.reject(new Error(line.error))
  else waiting.resolve(line.value)
}
await browser.close()
