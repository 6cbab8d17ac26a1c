// A scene: a page in the browser, and the failures of its checks. A dialog, a window, a request to
// another origin, an error in the console and a violation of the page's policy are failures too.
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
    this.expected = [] // patterns of page errors that are not failures
    this.page = null
    this.axeTime = 0 // ms
  }

  fail(text) {
    this.failures.push(text)
  }

  note(text) {
    this.notes.push(text)
  }

  // check records a failure if holds is false. The scene continues.
  check(holds, text) {
    if (!holds) this.fail(text)
  }

  equal(got, want, what) {
    const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
    if (a !== b) this.fail(`${what}: got ${a}, want ${b}`)
  }

  // pageError records a failure of the page unless it is expected.
  pageError(text) {
    if (!this.expected.some((e) => e.test(text))) this.fail(text)
  }

  // newContext returns a new browser context, without cookies and storage.
  async newContext(options) {
    const context = await this.browser.newContext({ viewport: { width: 1400, height: 800 }, reducedMotion: 'reduce', acceptDownloads: true, ...options })
    context.setDefaultTimeout(10000)
    this.contexts.push(context)
    await context.exposeBinding('pwned', (_, what) => this.fail('text ran as code: ' + what))
    await context.addInitScript(() => {
      // Scenes use these to interrupt streams and to count the streams that began with all rows.
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
      this.pageError('a dialog: ' + d.message())
      d.dismiss().catch(() => {})
    })
    page.on('popup', (p) => this.pageError('a window: ' + p.url()))
    page.on('pageerror', (e) => this.pageError('an error in the page: ' + (e.stack || e)))
    page.on('console', (m) => ['error', 'warning'].includes(m.type()) && this.pageError('in the console: ' + m.text() + ' ' + m.location().url))
    page.on('request', (r) => {
      const u = new URL(r.url())
      if (!['data:', 'blob:'].includes(u.protocol) && this.origin && u.origin !== this.origin) this.pageError('a request to another origin: ' + r.url())
    })
  }

  // open opens the page of mcpwire watch. hash has no #.
  async open(options, hash) {
    const u = new URL(this.with.url)
    this.origin = u.origin
    const context = await this.newContext(options)
    this.page = await context.newPage()
    await this.page.goto(this.with.url + (hash ? '#' + hash : ''))
    await this.synced()
    return this.page
  }

  // synced waits until the page has loaded all rows.
  async synced(page) {
    await (page || this.page).waitForFunction(() => {
      const empty = document.getElementById('empty')
      return empty && empty.dataset.state !== undefined && empty.dataset.state !== 'loading'
    })
  }

  // wait waits until f returns true in the page.
  wait(what, f, arg, timeout) {
    return this.page.waitForFunction(f, arg, { timeout: timeout || 10000, polling: 50 }).catch((e) => {
      throw new Error(what + ': timeout (' + String(e.message).split('\n')[0] + ')')
    })
  }

  // row returns the rows of the list that contain a text.
  row(text) {
    return this.page.locator('#grid .canvas .row', { hasText: text })
  }

  // filter sets the filter and waits for its rows.
  async filter(text) {
    await this.page.fill('#filter', text)
    await this.page.press('#filter', 'Enter')
    await this.wait('the filter ' + text, (t) => new URLSearchParams(location.hash.slice(1)).get('f') === (t || null), text)
    await this.synced()
  }

  // openDetail opens the detail of the first row with a text.
  async openDetail(text) {
    await this.row(text).first().click()
    await this.wait('the detail of ' + text, () => document.querySelector('#panel:not([aria-busy])')?.childElementCount > 0)
  }

  // tab selects a tab of the detail and returns its panel.
  async tab(id) {
    await this.page.click('#tab-' + id)
    await this.wait('the tab ' + id, (id) => document.getElementById('tab-' + id).getAttribute('aria-selected') === 'true', id)
    return this.page.locator('#panel')
  }

  // watchTasks starts to measure the tasks of the page.
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

  // tasks stops the measurement. It returns the longest processor time of a task in ms, and a text
  // with all results.
  async tasks() {
    const byClock = await this.page.evaluate(() => new Promise((r) => setTimeout(() => r(globalThis.longTasks), 100)))
    this.tracing = false
    const { traceEvents } = JSON.parse((await this.browser.stopTracing()).toString())
    const mains = new Set(traceEvents.filter((e) => e.name === 'thread_name' && e.args.name === 'CrRendererMain').map((e) => e.pid + '/' + e.tid))
    const cpu = traceEvents.filter((e) => e.tdur >= 0 && e.name === 'ThreadControllerImpl::RunTask' && mains.has(e.pid + '/' + e.tid)).map((e) => e.tdur / 1000)
    this.check(cpu.length > 0, 'the trace has no tasks')
    const longest = cpu.reduce((a, b) => Math.max(a, b), 0)
    const text = `${cpu.length} tasks, of the processor ${cpu.filter((ms) => ms > 50).length} over 50 ms, the longest ${longest.toFixed(0)} ms; by the clock ${byClock.length} over 50 ms, the longest ${Math.max(0, ...byClock).toFixed(0)} ms`
    return { longest, text }
  }

  text(selector) {
    return this.page.locator(selector).first().innerText()
  }

  status() {
    return this.text('#status')
  }

  // checkAccessible checks the page with axe. The options: within is the selector of the part to
  // check; page is another page; colors checks only the contrast, for a page that differs from a
  // checked one only in its colors.
  async checkAccessible(what, opts) {
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

  // screenshot saves a screenshot if WATCH_SHOTS is set.
  async screenshot(name, page) {
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
