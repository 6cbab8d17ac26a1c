// The list: live rows, the filter, the detail with its tabs, the keyboard.

// rows: a row appears within 200 ms of its line on the wire. The test takes the time before it
// writes the line, the page when the text appears, both with the clock of this machine.
export async function rows(s) {
  await s.open()
  await s.page.evaluate(() => {
    const seen = (globalThis.seen = {})
    const look = () => {
      for (const m of document.querySelector('#grid .canvas').textContent.matchAll(/probe-\d+-/g)) seen[m[0]] ??= performance.timeOrigin + performance.now()
    }
    new MutationObserver(look).observe(document.querySelector('#grid .canvas'), { subtree: true, childList: true, characterData: true })
  })
  const delays = []
  for (let i = 0; i < 15; i++) {
    const probe = 'probe-' + i + '-'
    const tap = i % 2 ? 'new' : 'old'
    const meta = tap === 'new' ? `,"_meta":{${s.with.meta.slice(1)}}` : ''
    const [at] = await s.call('sendLines', { tap, wait: true, lines: [JSON.parse(`{"jsonrpc":"2.0","id":${100 + i},"method":"tools/call","params":{"name":"echo","arguments":{"text":"${probe}"}${meta}}}`)] })
    await s.wait('a row for ' + probe, (p) => p in globalThis.seen, probe)
    delays.push((await s.page.evaluate((p) => globalThis.seen[p], probe)) - at)
  }
  delays.sort((a, b) => a - b)
  const median = delays[delays.length >> 1]
  s.note(`rows appear after ${delays.map((ms) => ms.toFixed(0)).join(' ')} ms; median ${median.toFixed(0)} ms`)
  s.check(median <= 200, `rows appear ${median.toFixed(0)} ms after the wire, want 200 at most`)
  s.check(delays[0] > 0, 'delay is negative: the clocks differ')
  await s.wait('all responses', () => [...document.querySelectorAll('#grid .canvas .row')].filter((r) => r.textContent.includes('probe-')).every((r) => r.querySelector('.c-status').textContent === 'ok'))
  s.check((await s.status()).includes('4 servers live'), 'status line: ' + (await s.status()))
  await s.screenshot('list')
}

// filter: the matching rows, and the error of an invalid filter with its position.
export async function filter(s) {
  await s.open()
  const all = await s.page.getAttribute('#grid', 'aria-rowcount')
  await s.filter('tool:word_count')
  await s.wait('two rows', () => document.getElementById('grid').getAttribute('aria-rowcount') === '3')
  s.equal(await s.row('word_count').count(), 2, 'rows of tool:word_count')
  await s.filter('tool:slow status:ok -server:web -side:downstream -side:upstream')
  await s.wait('one row', () => document.getElementById('grid').getAttribute('aria-rowcount') === '2')
  await s.filter('"gone with the wire"')
  await s.wait('the row with the text', () => document.getElementById('grid').getAttribute('aria-rowcount') === '2' && document.querySelector('#grid .canvas').textContent.includes('echo'))

  await s.page.fill('#filter', 'tool:echo dur>soon')
  await s.wait('the error', () => !document.getElementById('filter-error').hidden)
  s.equal(await s.page.getAttribute('#filter', 'aria-invalid'), 'true', 'aria-invalid of an invalid filter')
  const mark = s.page.locator('#filter-error mark')
  s.equal(await mark.count(), 1, 'marks of the position of the error')
  s.note('error of an invalid filter: ' + (await s.text('#filter-error')).replaceAll('\n', ' '))
  const [border, red] = await s.page.evaluate(() => {
    const probe = document.createElement('i')
    probe.className = 'bad'
    document.body.append(probe)
    const red = getComputedStyle(probe).color
    probe.remove()
    return [getComputedStyle(document.getElementById('filter')).borderTopColor, red]
  })
  s.equal(border, red, 'border of an invalid filter')
  s.equal(await s.row('echo').count(), 1, 'rows with an invalid filter, which are those of the last valid one')
  await s.screenshot('wrong')
  await s.checkAccessible('an invalid filter')

  await s.filter('tool:nothing_like_it')
  await s.wait('the empty list', () => document.getElementById('empty').dataset.state === 'filtered')
  await s.screenshot('nothing')
  await s.page.click('#empty button')
  await s.wait('all rows', (n) => document.getElementById('grid').getAttribute('aria-rowcount') === n, all)
  s.equal(await s.page.inputValue('#filter'), '', 'cleared filter')
}

// The texts of tabs: [filter, text of the row, tab, pattern].
const tabTexts = [
  ['tool:add', 'b=2', 'summary', /add/],
  ['tool:add', 'b=2', 'request', /"tools\/call"[^]*"add"/],
  ['tool:add', 'b=2', 'response', /"result"[^]*3/],
  ['tool:add', 'b=2', 'raw', /"jsonrpc"/],
  ['tool:add', 'b=2', 'http', /was not sent over HTTP/],
  ['tool:add', 'b=2', 'sse', /no event stream/],
  ['tool:add', 'b=2', 'timing', /Server/],
  ['server:web tool:slow', 'slow', 'http', /POST[^]*200[^]*text\/event-stream/],
  ['server:web tool:slow', 'slow', 'sse', /notifications\/progress/],
  ['tool:no_such_tool', 'no_such_tool', 'response', /-32602/],
  ['side:downstream tool:slow', 'slow', 'translated', /downstream #\d+[^]*⇄[^]*upstream #\d+[^]*− _meta[^]*upstream #\d+[^]*⇄[^]*downstream #\d+[^]*\+ resultType/],
]

// detail: the tabs of rows.
export async function detail(s) {
  await s.open()
  await s.filter('tool:add')
  await s.openDetail('b=2')
  const translatedVisible = () => s.page.locator('#tab-translated').isVisible()
  s.check(!(await translatedVisible()), 'tab of translations is visible without a bridge')
  await s.page.keyboard.press('9')
  await s.page.locator('#panel', { hasText: /No bridge/ }).waitFor({ timeout: 5000 })
  s.check(await translatedVisible(), 'selected tab is not visible')
  let last = ''
  for (const [filter, text, tab, want] of tabTexts) {
    if (filter + text !== last) {
      await s.filter(filter)
      await s.openDetail(text)
      last = filter + text
    }
    const panel = await s.tab(tab)
    await panel.filter({ hasText: want }).waitFor({ timeout: 5000 }).catch(async () => s.fail(`${filter}: tab ${tab} = ${JSON.stringify((await panel.innerText()).slice(0, 600))}, want ${want}`))
    s.equal(await s.page.locator('#tabs [aria-selected="true"]').count(), 1, 'selected tabs')
    await s.screenshot(tab)
  }
  s.check(/slow/.test(await s.text('#d-title')), 'title of the detail lacks slow')
  const halves = await s.page.locator('#panel .pairs').first().evaluate((box) => ({ differ: box.querySelectorAll('.differs').length, same: box.querySelectorAll('.old.equal').length, tops: getComputedStyle(box).display !== 'grid' || [...box.querySelectorAll('.old.equal')].every((el) => el.offsetTop === el.nextElementSibling.offsetTop) }))
  s.check(halves.differ > 3 && halves.same > 3 && halves.tops, 'messages before and after the translation are not side by side: ' + JSON.stringify(halves))
  await s.filter('tool:slow (side:downstream | side:upstream)')
  await s.openDetail('slow')
  await s.page.keyboard.press('o')
  await s.wait('the row of the upstream side', () => document.querySelector('#grid .row.selected.upstream'))
  await s.page.keyboard.press('o')
  await s.wait('the row of the downstream side', () => document.querySelector('#grid .row.selected.downstream'))

  await s.filter('finding:*')
  await s.page.locator('#grid .canvas .row').first().click()
  const findings = await s.tab('findings')
  await findings.locator('.finding').first().waitFor().catch(() => s.fail('tab Findings has no finding'))
  await s.screenshot('findings')
  await s.filter('tool:add')
  await s.openDetail('b=2')
  await s.tab('raw')
  await s.page.click('#panel button:has-text("Hex")')
  s.check(/^000000 {2}7b 22/.test(await s.text('#panel .hex')), 'bytes: ' + (await s.text('#panel .hex')).slice(0, 60))
  await s.tab('request')
  for (const mode of ['Tree', 'Raw', 'Pretty']) await s.page.click(`#panel .segments button:has-text("${mode}")`)

  await s.filter('server:old tool:slow')
  await s.row('slow').first().locator('.fold').click()
  await s.wait('the unfolded rows', () => document.querySelectorAll('#grid .canvas .row[aria-level="2"]').length >= 1)
  await s.screenshot('unfolded')
}

// keys: the keys of the terminal work in the page.
export async function keys(s) {
  await s.open({ permissions: ['clipboard-read', 'clipboard-write'] }, 'f=server%3Aold+method%3Atools%2Fcall')
  const { page } = s
  const hash = (name) => page.evaluate((n) => new URLSearchParams(location.hash.slice(1)).get(n), name)
  const hashIs = (name, want) => s.wait(`${name}=${want} in the address`, ([n, w]) => new URLSearchParams(location.hash.slice(1)).get(n) === w, [name, want])
  const at = (want) => s.wait('line ' + want, (w) => document.querySelector('#grid .row[aria-selected="true"]')?.getAttribute('aria-rowindex') === w, String(want))
  const count = Number(await page.getAttribute('#grid', 'aria-rowcount'))

  await page.keyboard.press('g')
  await at(2)
  await page.keyboard.press('j')
  await page.keyboard.press('ArrowDown')
  await at(4)
  await page.keyboard.press('k')
  await page.keyboard.press('ArrowUp')
  await at(2)
  await page.keyboard.press('G')
  await at(count)
  await page.keyboard.press('Home')
  await at(2)
  await page.keyboard.press('n') // the failed call, and then the error
  await at(5)
  await page.keyboard.press('n')
  await at(6)
  await page.keyboard.press('N')
  await at(5)

  await page.keyboard.press('Enter')
  await hashIs('tab', 'summary')
  for (const [i, tab] of ['summary', 'request', 'response', 'raw', 'http', 'sse', 'timing', 'findings', 'translated'].entries()) {
    await page.keyboard.press(String(i + 1))
    await hashIs('tab', tab)
  }
  await page.keyboard.press('2')
  await s.wait('the message', () => document.querySelector('#panel .lines'))
  await page.keyboard.press('y')
  await s.wait('the note of the copy', () => document.getElementById('toasts').textContent.includes('Copied'))
  const copied = await page.evaluate(() => navigator.clipboard.readText())
  s.equal(JSON.parse(copied).method, 'tools/call', 'method of the copied message')
  await page.keyboard.press('Y')
  await s.wait('the command', async () => (await navigator.clipboard.readText()).startsWith('mcpwire call'))
  s.note('as a command: ' + (await page.evaluate(() => navigator.clipboard.readText())).slice(0, 120))
  await page.keyboard.press('Escape')
  await hashIs('tab', null)

  await page.keyboard.press('f')
  await hashIs('follow', null)
  await page.keyboard.press('f')
  await hashIs('follow', '0')
  await page.keyboard.press('x')
  await hashIs('frames', '1')
  await s.wait('the frames', (n) => Number(document.getElementById('grid').getAttribute('aria-rowcount')) > n, count)
  await page.keyboard.press('x')
  await hashIs('frames', null)
  for (const time of ['start', 'delta', null]) {
    await page.keyboard.press('t')
    await hashIs('time', time)
  }
  await page.keyboard.press('l')
  await hashIs('findings', '1')
  await page.keyboard.press('l')
  await hashIs('findings', null)

  await page.keyboard.press('p')
  await s.wait('the pause', () => document.getElementById('b-pause').getAttribute('aria-pressed') === 'true')
  await s.call('sendLines', { tap: 'old', wait: true, lines: [{ jsonrpc: '2.0', id: 300, method: 'tools/call', params: { name: 'add', arguments: { a: 30, b: 300 } } }] })
  await s.wait('the status of waiting rows', () => /waiting/.test(document.getElementById('status').textContent))
  s.equal(Number(await page.getAttribute('#grid', 'aria-rowcount')), count, 'rows during the pause')
  await page.keyboard.press('p')
  await s.wait('the waiting row', (n) => Number(document.getElementById('grid').getAttribute('aria-rowcount')) === n + 1, count)

  for (const [key, title] of [['c', 'Sessions'], ['s', 'Tools'], ['?', 'Help'], ['e', 'Export']]) {
    await page.keyboard.press(key)
    await page.locator('dialog[open] h2', { hasText: title }).waitFor({ timeout: 3000 }).catch(() => s.fail(`key ${key}: dialog ${title} did not open`))
    await s.screenshot('dialog-' + title.toLowerCase())
    await page.keyboard.press('Escape')
    await page.locator('dialog[open]').waitFor({ state: 'detached' })
  }
  await page.keyboard.press('/')
  s.equal(await page.evaluate(() => document.activeElement.id), 'filter', 'focus after /')
  await page.keyboard.press('Escape')
  await page.keyboard.press('?')
  await page.locator('dialog[open]').waitFor()
  s.equal(await page.evaluate(() => new Promise((done) => {
    const dialog = document.querySelector('dialog[open]')
    dialog.addEventListener('close', () => setTimeout(() => done(document.activeElement.id)))
    dialog.close()
    document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))
  })), 'filter', 'focus after / while a dialog closes')
  await page.keyboard.press('Escape')
  await page.keyboard.press('w')
  await s.wait('the error of a restart', () => /cannot be restarted/.test(document.getElementById('toasts').textContent))
  s.check((await hash('f')) !== null, 'filter is missing in the address')

  await s.filter('server:old tool:slow')
  await page.keyboard.press('g')
  await page.keyboard.press('ArrowRight')
  await s.wait('the unfolded rows', () => document.querySelectorAll('#grid .canvas .row[aria-level="2"]').length >= 1)
  await page.keyboard.press('ArrowLeft')
  await s.wait('the folded row', () => document.querySelectorAll('#grid .canvas .row[aria-level="2"]').length === 0)
}

// empty: a page without traffic shows what to do, in both themes.
export async function empty(s) {
  for (const colorScheme of ['light', 'dark']) {
    await s.open({ colorScheme })
    s.check(/mcpwire tap/.test(await s.text('#empty')), 'empty page: ' + (await s.text('#empty')))
    await s.checkAccessible('the empty page, ' + colorScheme, { colors: colorScheme === 'dark' })
    await s.screenshot(colorScheme)
  }
}

// back: the Back of the browser undoes a picture, a detail and a filter, one at a time, also on a phone,
// where the detail is a whole screen.
export async function back(s) {
  for (const width of [1400, 390]) {
    await s.open({ viewport: { width, height: 800 } })
    const is = async (want, what) => {
      await s.wait(`${want} ${what} at ${width} px`, (want) => [document.getElementById('filter').value, document.getElementById('main').dataset.split === 'alone' ? '' : 'detail', document.getElementById('picture').hidden ? '' : 'picture'].join() === want, want)
      await s.page.waitForTimeout(300) // the address is written with a delay
    }
    await s.page.locator('#filter').pressSequentially('tool:add', { delay: 100 })
    await s.page.press('#filter', 'Enter')
    await s.wait('the rows', () => document.getElementById('grid').getAttribute('aria-rowcount') === '3')
    await s.page.locator('#grid .canvas .row').first().click()
    await is('tool:add,detail,', 'a row')
    await s.page.keyboard.press('Shift+S')
    await is('tool:add,detail,picture', 'a picture')
    for (const want of ['tool:add,detail,', 'tool:add,,', ',,']) {
      await s.page.goBack()
      await is(want, 'after Back')
    }
    await s.page.goForward()
    await is('tool:add,,', 'after Forward')
  }
}
