// Captures that want to harm: nothing of theirs runs, and nothing stops the page.

// The page may need the processor so long for one task, in ms, while it shows
// what is hostile.
const longest = 300

export async function hostile(s) {
  await s.open({ colorScheme: 'dark', reducedMotion: 'no-preference' })
  await s.page.evaluate(() => (globalThis.title = document.title))
  await s.watchTasks()
  await everyRow(s)
  await inDialogs(s)
  await tooMuch(s)
  const tasks = await s.tasks()
  s.note('with hostile captures: ' + tasks.said)
  s.check(tasks.longest < longest, `a task took ${tasks.longest.toFixed(0)} ms of the processor`)
  const left = await s.page.evaluate(() => ({
    polluted: 'polluted' in {},
    title: document.title === globalThis.title,
    elements: document.querySelectorAll('img:not([src^="blob:"]), iframe, object, embed, meta[http-equiv], a[href^="javascript" i]').length,
  }))
  s.equal(left, { polluted: false, title: true, elements: 0 }, 'what hostile texts have left in the page')
}

// everyRow opens each of the rows and each of their tabs.
async function everyRow(s) {
  await s.filter('server:hostile | server:hostilehttp')
  await s.page.keyboard.press('g')
  await s.page.keyboard.press('Enter')
  const count = Number(await s.page.getAttribute('#grid', 'aria-rowcount')) - 1
  s.check(count >= s.with.rows, `there are ${count} rows, want ${s.with.rows} and more`)
  // The page's own parts do the clicking, which is quicker than one step each from here.
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
      await pause(45) // the page requests the detail a moment after the row was selected
      if (!(await settle())) return 'row ' + i + ' does not open'
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
  s.check(typeof opened === 'number' && opened >= s.with.rows, 'rows that were opened: ' + opened)
  s.note('hostile rows that were opened: ' + opened)
  await s.shoot('rows')
  const shown = await s.page.evaluate(() => document.body.innerText)
  const raw = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u0080-\u009f\u202a-\u202e\u2066-\u2069\u200b]/.exec(shown)
  s.check(!raw, 'a character that cannot be seen stands in the page as it is: U+' + raw?.[0].charCodeAt(0).toString(16) + ' in ' + JSON.stringify(shown.slice(Math.max(0, raw?.index - 30), raw?.index + 30)))
}

async function inDialogs(s) {
  for (const key of ['c', 's', 'e']) {
    await s.page.keyboard.press(key)
    await s.page.locator('dialog[open]').waitFor()
    await s.wait('the dialog', () => !document.querySelector('dialog .busy'))
    await s.shoot('dialog-' + key)
    await s.page.keyboard.press('Escape')
    await s.page.locator('dialog[open]').waitFor({ state: 'detached' })
  }
}

// tooMuch opens what is too long and too deep. The page answers meanwhile.
async function tooMuch(s) {
  await s.filter('server:old')
  await s.page.keyboard.press('g')
  for (let i = Number(await s.page.getAttribute('#grid', 'aria-rowcount')) - 1; i > 0; i--) {
    for (const tab of ['2', '3', '4', '1']) {
      await s.page.keyboard.press('Enter')
      await s.page.keyboard.press(tab)
      const began = Date.now()
      await s.wait('what is too much', () => document.querySelector('#panel:not([aria-busy])')?.childElementCount > 0, undefined, 20000)
      const took = Date.now() - began
      if (took > 3000) s.fail(`a tab took ${took} ms`)
      if (tab !== '1') await s.shoot(`much-${i}-${tab}`)
    }
    for (const mode of ['Tree', 'Raw']) {
      await s.page.keyboard.press('2')
      const b = s.page.locator(`#panel .segments button:has-text("${mode}")`)
      if (await b.count()) await b.first().click()
    }
    await s.page.keyboard.press('j')
  }
}
