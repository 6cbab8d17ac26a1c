// The maximum number of rows: the list scrolls without long tasks.

// maxTask limits the processor time of one task of the page, in ms.
const maxTask = 200

export async function many(s) {
  const began = Date.now()
  await s.open({ reducedMotion: 'no-preference', viewport: { width: 1400, height: 900 } })
  await s.watchTasks()
  await s.wait('all rows', (n) => Number(document.getElementById('grid').getAttribute('aria-rowcount')) >= n * 0.999, s.with.rows, 90000)
  await s.wait('the end of reading', () => document.getElementById('progress').hidden, undefined, 60000)
  s.note(`${s.with.rows} rows appear after ${((Date.now() - began) / 1000).toFixed(1)} s`)
  await report(s, 'while the rows appear')
  const heap = await s.page.evaluate(() => performance.memory?.usedJSHeapSize)
  s.note(`heap of the page: ${(heap / 1e6).toFixed(0)} MB`)
  await s.screenshot('end')

  await s.page.evaluate(() => {
    const f = (globalThis.frames_ = [])
    let last = performance.now()
    const tick = (t) => {
      f.push(t - last)
      last = t
      globalThis.ticking = requestAnimationFrame(tick)
    }
    globalThis.ticking = requestAnimationFrame(tick)
  })
  await s.page.mouse.move(500, 400)
  await s.page.keyboard.press('Home')
  for (let i = 0; i < 120; i++) {
    await s.page.mouse.wheel(0, i < 80 ? 400 : 8000)
    await s.page.waitForTimeout(8)
  }
  for (const key of ['End', 'Home', 'End', 'PageUp', 'PageUp', 'Home', 'PageDown', 'G', 'g']) {
    await s.page.keyboard.press(key)
    await s.page.waitForTimeout(60)
  }
  for (let i = 0; i < 60; i++) await s.page.keyboard.press('j')
  await s.page.evaluate(async () => {
    // Drag the scroll bar from one end to the other.
    const body = document.querySelector('#grid .body')
    for (let i = 0; i <= 60; i++) {
      body.scrollTop = (body.scrollHeight * i) / 60
      await new Promise((r) => requestAnimationFrame(r))
    }
  })
  await report(s, 'while scrolling')
  s.check((await s.page.locator('#grid .canvas .row').count()) < 200, 'too many rows are elements')

  const t = Date.now()
  await s.filter('status:error')
  await s.wait('the errors', () => Number(document.getElementById('grid').getAttribute('aria-rowcount')) === 1031, undefined, 20000).catch(async (e) => s.fail(e.message + ': ' + (await s.page.getAttribute('#grid', 'aria-rowcount'))))
  s.note(`a filter shows its rows after ${Date.now() - t} ms`)
  await s.page.keyboard.press('x')
  await s.page.keyboard.press('x')
  await s.filter('')
  await s.wait('all rows again', (n) => Number(document.getElementById('grid').getAttribute('aria-rowcount')) >= n * 0.999, s.with.rows, 60000)
  await report(s, 'while a filter is set and cleared')
  await s.tasks()
}

// report notes the durations of tasks and frames since its last call. Only the processor time of a
// task fails the scene, because wall-clock time and frames depend on the load of the machine.
async function report(s, when) {
  const tasks = await s.tasks()
  const frames = await s.page.evaluate(() => {
    const out = globalThis.frames_ ? [...globalThis.frames_] : []
    if (globalThis.frames_) globalThis.frames_.length = 0
    return out
  })
  let text = `${when}: ${tasks.text}`
  if (frames.length) {
    frames.sort((a, b) => a - b)
    const at = (q) => frames[Math.floor((frames.length - 1) * q)].toFixed(1)
    text += `; ${frames.length} frames, median ${at(0.5)} ms, 95 % ${at(0.95)} ms, longest ${at(1)} ms`
  }
  s.note(text)
  s.check(tasks.longest <= maxTask, `${when}: processor time of a task = ${tasks.longest.toFixed(0)} ms, want at most ${maxTask}`)
  await s.watchTasks()
}

// whole: a filter finds rows of a long capture that are no longer in memory, and counts say of how
// many rows they speak.
export async function whole(s) {
  const { errors, kept } = s.with
  const count = (n) => n.toLocaleString('en')
  await s.open({ viewport: { width: 1400, height: 900 } })
  await s.wait('all rows', (n) => Number(/rows of ([\d,]+)/.exec(document.getElementById('status').textContent)?.[1].replaceAll(',', '')) > n, s.with.rows, 90000)
  const rows = Number(/rows of ([\d,]+)/.exec(await s.status())[1].replaceAll(',', ''))
  s.check(rows > s.with.rows && rows < s.with.rows + 10 && (await s.status()).includes(`The newest ${count(kept)} rows`), 'status line: ' + (await s.status()))
  s.check((await s.text('#evicted')).includes(`${count(rows - kept)} earlier ones`), 'the note of earlier rows: ' + (await s.text('#evicted')))
  await s.wait('the facets', (text) => document.querySelector('[data-facet="status:error"]')?.textContent.includes(text), count(errors), 20000)
  await s.screenshot('newest')
  for (const [filter, want] of [['status:error', errors], ['"part-7.go"', 1]]) {
    await s.filter(filter)
    await s.wait('the count of ' + filter, (text) => document.getElementById('filter-count').textContent === text, `${count(want)} of ${count(rows)}`, 90000)
    s.equal(await s.page.getAttribute('#grid', 'aria-rowcount'), String(want + 1), 'rows of ' + filter)
    s.check(await s.page.locator('#evicted').isHidden(), 'the note of earlier rows is there with a filter that searched all')
  }
  await s.page.locator('#grid .canvas .row').first().click()
  await s.wait('the detail of an early row', () => document.querySelector('#panel:not([aria-busy])')?.textContent.includes('called'))
  await s.screenshot('found')
}
