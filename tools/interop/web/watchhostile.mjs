// Malicious captures: the page runs none of their code and stays responsive.

// maxTask limits the processor time of one task of the page, in ms.
const maxTask = 300

export async function hostile(s) {
  await s.open({ colorScheme: 'dark', reducedMotion: 'no-preference' })
  await s.page.evaluate(() => (globalThis.title = document.title))
  await s.watchTasks()
  await everyRow(s)
  await inDialogs(s)
  await largeRows(s)
  const tasks = await s.tasks()
  s.note('with hostile captures: ' + tasks.text)
  s.check(tasks.longest < maxTask, `processor time of a task = ${tasks.longest.toFixed(0)} ms, want less than ${maxTask}`)
  const left = await s.page.evaluate(() => ({
    polluted: 'polluted' in {},
    title: document.title === globalThis.title,
    elements: document.querySelectorAll('img:not([src^="blob:"]), iframe, object, embed, meta[http-equiv], a[href^="javascript" i]').length,
  }))
  s.equal(left, { polluted: false, title: true, elements: 0 }, 'effects of hostile texts')
}

// everyRow opens all rows and all their tabs.
async function everyRow(s) {
  await s.filter('server:hostile | server:hostilehttp')
  await s.page.keyboard.press('g')
  await s.page.keyboard.press('Enter')
  const count = Number(await s.page.getAttribute('#grid', 'aria-rowcount')) - 1
  s.check(count >= s.with.rows, `rows = ${count}, want at least ${s.with.rows}`)
  // A script in the page sends the keys, which is faster than commands from here.
  const opened = await s.page.evaluate(async () => {
    const pause = (ms) => new Promise((r) => setTimeout(r, ms))
    const key = (k) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true, cancelable: true }))
    const settle = async () => {
      for (let i = 0; i < 40; i++) {
        await pause(15)
        const panel = document.getElementById('panel')
        if (panel.childElementCount && !panel.querySelector('.busy')) return true
      }
      return false
    }
    let opened = 0
    let last = ''
    for (let i = 0; i < 400; i++) {
      await pause(45) // the page requests the detail with a delay after the selection
      if (!(await settle())) return 'row ' + i + ' did not open'
      opened++
      for (let tab = 1; tab <= 9; tab++) {
        key(String(tab))
        await pause(1)
      }
      key('j')
      await pause(5)
      const now = document.querySelector('#grid .row[aria-selected="true"]')?.getAttribute('aria-rowindex')
      if (now === last) break
      last = now
    }
    return opened
  })
  s.check(typeof opened === 'number' && opened >= s.with.rows, `opened rows = ${opened}, want at least ${s.with.rows}`)
  s.note('opened hostile rows: ' + opened)
  await s.screenshot('rows')
  const shown = await s.page.evaluate(() => document.body.innerText)
  const raw = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u0080-\u009f\u202a-\u202e\u2066-\u2069\u200b]/.exec(shown)
  s.check(!raw, 'page contains an invisible character: U+' + raw?.[0].charCodeAt(0).toString(16) + ' in ' + JSON.stringify(shown.slice(Math.max(0, raw?.index - 30), raw?.index + 30)))
}

// inDialogs opens the dialogs that show texts of captures.
async function inDialogs(s) {
  for (const key of ['c', 's', 'e']) {
    await s.page.keyboard.press(key)
    await s.page.locator('dialog[open]').waitFor()
    await s.wait('the dialog', () => !document.querySelector('dialog .busy'))
    await s.screenshot('dialog-' + key)
    await s.page.keyboard.press('Escape')
    await s.page.locator('dialog[open]').waitFor({ state: 'detached' })
  }
}

// largeRows opens the rows of very long and very deep messages. Each tab must open in 3 s.
async function largeRows(s) {
  await s.filter('server:old')
  await s.page.keyboard.press('g')
  for (let i = Number(await s.page.getAttribute('#grid', 'aria-rowcount')) - 1; i > 0; i--) {
    for (const tab of ['2', '3', '4', '1']) {
      await s.page.keyboard.press('Enter')
      await s.page.keyboard.press(tab)
      const began = Date.now()
      await s.wait('a large message', () => document.querySelector('#panel:not([aria-busy])')?.childElementCount > 0, undefined, 20000)
      const took = Date.now() - began
      if (took > 3000) s.fail(`time to open a tab = ${took} ms, want at most 3000`)
      if (tab !== '1') await s.screenshot(`large-${i}-${tab}`)
    }
    for (const mode of ['Tree', 'Raw']) {
      await s.page.keyboard.press('2')
      const b = s.page.locator(`#panel .segments button:has-text("${mode}")`)
      if (await b.count()) await b.first().click()
    }
    await s.page.keyboard.press('j')
  }
}
