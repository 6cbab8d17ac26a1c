// A scene: a page in a browser that the test has started, and what did not hold.
// Whatever a page does that none of ours should do is a failure of its scene:
// a dialog, a window, a request to elsewhere, an error in the console, a
// violation of its policy.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export class Scene {
  constructor(browser, call, line) {
    this.browser = browser
    this.call = call
    this.with = line.with
    this.dir = line.dir
    this.shots = line.shots
    this.name = line.scene
    this.notes = []
    this.failures = []
    this.contexts = []
    this.expected = [] // patterns of complaints that are no failures
    this.page = null
    this.axeTime = 0 // ms
  }

  fail(text) {
    this.failures.push(text)
  }

  note(text) {
    this.notes.push(text)
  }

  // check fails the scene, which goes on, if something does not hold.
  check(holds, text) {
    if (!holds) this.fail(text)
  }

  equal(got, want, what) {
    const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
    if (a !== b) this.fail(`${what}: got ${a}, want ${b}`)
  }

  // complain notes what a page should not do.
  complain(text) {
    if (!this.expected.some((e) => e.test(text))) this.fail(text)
  }

  // newContext is a browser without cookies and memory.
  async newContext(options) {
    const context = await this.browser.newContext({ viewport: { width: 1400, height: 800 }, reducedMotion: 'reduce', acceptDownloads: true, ...options })
    context.setDefaultTimeout(10000)
    this.contexts.push(context)
    await context.exposeBinding('pwned', (_, what) => this.fail('a text has run: ' + what))
    await context.addInitScript(() => {
      // A scene may break the streams, and know which began with all rows.
      globalThis.sources = []
      globalThis.resets = 0
      const Source = globalThis.EventSource
      globalThis.EventSource = class extends Source {
        constructor(url) {
          super(url)
          globalThis.sources.push(this)
          this.addEventListener('hello', (e) => JSON.parse(e.data).reset && globalThis.resets++)
        }
      }
      document.addEventListener('securitypolicyviolation', (e) => console.error('policy violated: ' + e.violatedDirective + ' ' + e.blockedURI))
    })
    context.on('page', (page) => this.guard(page))
    return context
  }

  guard(page) {
    page.on('dialog', (d) => {
      this.complain('a dialog: ' + d.message())
      d.dismiss().catch(() => {})
    })
    page.on('popup', (p) => this.complain('a window: ' + p.url()))
    page.on('pageerror', (e) => this.complain('an error in the page: ' + (e.stack || e)))
    page.on('console', (m) => ['error', 'warning'].includes(m.type()) && this.complain('in the console: ' + m.text() + ' ' + m.location().url))
    page.on('request', (r) => {
      const u = new URL(r.url())
      if (!['data:', 'blob:'].includes(u.protocol) && this.origin && u.origin !== this.origin) this.complain('a request to elsewhere: ' + r.url())
    })
  }

  // open opens the page of the test. hash is without #.
  async open(options, hash) {
    const u = new URL(this.with.url)
    this.origin = u.origin
    const context = await this.newContext(options)
    this.page = await context.newPage()
    await this.page.goto(this.with.url + (hash ? '#' + hash : ''))
    await this.synced()
    return this.page
  }

  // synced waits until the page has all rows.
  async synced(page) {
    await (page || this.page).waitForFunction(() => {
      const empty = document.getElementById('empty')
      return empty && empty.dataset.state !== undefined && empty.dataset.state !== 'loading'
    })
  }

  // wait waits until f holds in the page.
  wait(what, f, arg, timeout) {
    return this.page.waitForFunction(f, arg, { timeout: timeout || 10000, polling: 50 }).catch((e) => {
      throw new Error(what + ': it did not happen (' + String(e.message).split('\n')[0] + ')')
    })
  }

  // row returns the line of the list that contains a text.
  row(text) {
    return this.page.locator('#grid .canvas .row', { hasText: text })
  }

  // show puts a filter into the box and waits for what it shows.
  async filter(text) {
    await this.page.fill('#filter', text)
    await this.page.press('#filter', 'Enter')
    await this.wait('the filter ' + text, (t) => new URLSearchParams(location.hash.slice(1)).get('f') === (t || null), text)
    await this.synced()
  }

  // pick opens the detail of the only, or the first, line with a text.
  async pick(text) {
    await this.row(text).first().click()
    await this.wait('the detail of ' + text, () => document.querySelector('#panel:not([aria-busy])')?.childElementCount > 0)
  }

  // tab shows a tab of the detail.
  async tab(id) {
    await this.page.click('#tab-' + id)
    await this.wait('the tab ' + id, (id) => document.getElementById('tab-' + id).getAttribute('aria-selected') === 'true', id)
    return this.page.locator('#panel')
  }

  // watchTasks begins to note how long the page's tasks take.
  async watchTasks() {
    await this.page.evaluate(() => {
      globalThis.longTasks ??= []
      globalThis.longTasks.length = 0
      globalThis.taskObserver ??= new PerformanceObserver((l) => globalThis.longTasks.push(...l.getEntries().map((e) => e.duration)))
      globalThis.taskObserver.observe({ entryTypes: ['longtask'] })
    })
    await this.browser.startTracing(this.page, { categories: ['toplevel'] })
    this.tracing = true
  }

  // tasks is what came of it: longest is the most time of the processor that a
  // task needed, in ms; said has more than that in words.
  async tasks() {
    const byClock = await this.page.evaluate(() => new Promise((r) => setTimeout(() => r(globalThis.longTasks), 100)))
    this.tracing = false
    const { traceEvents } = JSON.parse((await this.browser.stopTracing()).toString())
    const mains = new Set(traceEvents.filter((e) => e.name === 'thread_name' && e.args.name === 'CrRendererMain').map((e) => e.pid + '/' + e.tid))
    const cpu = traceEvents.filter((e) => e.tdur >= 0 && e.name === 'ThreadControllerImpl::RunTask' && mains.has(e.pid + '/' + e.tid)).map((e) => e.tdur / 1000)
    this.check(cpu.length > 0, 'the trace has no tasks')
    const longest = cpu.reduce((a, b) => Math.max(a, b), 0)
    const said = `${cpu.length} tasks, of the processor ${cpu.filter((ms) => ms > 50).length} over 50 ms, the longest ${longest.toFixed(0)} ms; by the clock ${byClock.length} over 50 ms, the longest ${Math.max(0, ...byClock).toFixed(0)} ms`
    return { longest, said }
  }

  text(selector) {
    return this.page.locator(selector).first().innerText()
  }

  status() {
    return this.text('#status')
  }

  // accessible holds what the page shows against axe. opts: within is a
  // selector of the part that has changed since the last time; page; colors
  // looks at the contrast alone, for a page that differs from one that was
  // looked at in nothing else.
  async accessible(what, opts) {
    const page = opts?.page || this.page
    const began = Date.now()
    if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axeSource + ';0')
    const found = await page.evaluate(async ([within, colors]) => {
      const r = await globalThis.axe.run(within || document, { resultTypes: ['violations'], ...(colors ? { runOnly: ['color-contrast'] } : {}) })
      return r.violations.map((v) => v.id + ' (' + v.impact + '): ' + v.help + ': ' + v.nodes.slice(0, 4).map((n) => n.target.join(' ') + ' ' + n.any.concat(n.all, n.none).map((c) => c.message).join('; ')).join(' | '))
    }, [opts?.within, opts?.colors])
    this.axeTime += Date.now() - began
    for (const f of found) this.fail(what + ': ' + f)
  }

  // shoot saves a screenshot if the test has a folder for it.
  async shoot(name, page) {
    page ||= this.page
    if (!this.shots || !page) return
    await page.screenshot({ path: join(this.shots, this.name + '-' + name + '.png') }).catch((e) => this.note(String(e)))
  }

  async end() {
    if (this.axeTime) this.note(`axe took ${this.axeTime} ms`)
    if (this.tracing) await this.browser.stopTracing()
    for (const c of this.contexts) await c.close().catch(() => {})
  }
}
