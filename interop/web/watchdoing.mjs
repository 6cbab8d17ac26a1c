// What the page does: differences, sending again, export, save, opening a file.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createHash } from 'node:crypto'

// diff: two rows are marked, and what differs is shown.
export async function diff(s) {
  await s.open({}, 'f=server%3Aold+tool%3Aadd')
  await s.page.keyboard.press('g')
  await s.page.keyboard.press('m')
  await s.page.keyboard.press('j')
  await s.page.keyboard.press('m')
  s.equal(await s.page.locator('#grid .row.marked').count(), 2, 'marked rows')
  await s.page.keyboard.press('d')
  const dialog = s.page.locator('dialog[open]')
  await dialog.locator('table.diff').first().waitFor()
  const text = await dialog.innerText()
  s.check(text.includes('/params/arguments/b') && /\b2\b[^]*\b5\b/.test(text), 'the differences are ' + text)
  s.check(text.includes('/result/'), 'the differences of the responses are missing')
  await s.accessible('the differences')
  await s.shoot('open')
}

// resend: a request goes to a fresh copy of the server, its answer's row opens,
// and the session of the host has nothing of it.
export async function resend(s) {
  await s.open({}, 'f=server%3Aold+tool%3Aadd')
  await s.pick('"b":5')
  await s.page.waitForTimeout(200) // the address is written a moment later
  const heard = await s.call('heard', { tap: 'old' })
  await s.page.keyboard.press('r')
  const dialog = s.page.locator('dialog[open]')
  await dialog.locator('.answer', { hasText: 'serve' }).waitFor()
  await s.accessible('the dialog to send again', { within: 'dialog' })
  await s.shoot('dialog')
  await sent(s, dialog, heard)
}

// edit: as resend, with another message: by its form, and as JSON.
export async function edit(s) {
  await s.open({}, 'f=server%3Aold+tool%3Aadd')
  await s.pick('"b":5')
  await s.page.waitForTimeout(200) // the address is written a moment later
  const heard = await s.call('heard', { tap: 'old' })
  await s.page.keyboard.press('E')
  const dialog = s.page.locator('dialog[open]')
  const field = dialog.getByRole('textbox', { name: 'b', exact: true })
  await field.waitFor()
  s.equal(await field.inputValue(), '5', 'the recorded argument in the form')
  await field.fill('many')
  await dialog.locator('.field-problem:visible').waitFor()
  for (const colors of [false, true]) await s.accessible('the form with a problem', { within: 'dialog', colors })
  await s.shoot('form')
  await dialog.locator('button', { hasText: /^Send$/ }).click()
  await dialog.locator('button', { hasText: 'Send anyway' }).waitFor()
  await field.fill('6')
  await dialog.locator('text=The arguments are valid').waitFor()
  await dialog.locator('button', { hasText: /^JSON$/ }).click()
  s.check(/"b":\s*6/.test(await dialog.locator('textarea').inputValue()), 'the arguments as JSON have what the form has')
  await dialog.locator('button', { hasText: /^Message$/ }).click()
  const area = dialog.locator('textarea')
  const message = await area.inputValue()
  s.check(message.includes('"tools/call"') && /"b":\s*6/.test(message), 'the message to edit is ' + message)
  await area.fill('{')
  await dialog.locator('text=not valid JSON').waitFor()
  await s.accessible('the message', { within: 'dialog' })
  await area.fill(message.replace(/"b":\s*6/, '"b": 41'))
  await dialog.locator('text=The arguments are valid').waitFor()
  await dialog.locator('button', { hasText: /^Send$/ }).click()
  await dialog.locator('.call-place', { hasText: '42' }).waitFor({ timeout: 20000 }).catch(async () => s.fail('sending came to ' + (await dialog.innerText())))
  await s.accessible('the result', { within: 'dialog' })
  await dialog.locator('button', { hasText: 'Differences from the recorded' }).click()
  await dialog.locator('table.diff', { hasText: '/params/arguments/b' }).waitFor()
  await s.accessible('the differences from the recorded', { within: 'dialog' })
  await s.shoot('differences')
  await sent(s, dialog, heard)
  const panel = s.page.locator('#panel')
  await panel.filter({ hasText: '42' }).waitFor().catch(async () => s.fail('the answer is ' + (await panel.innerText())))
}

// run: a tool of a server is chosen, filled in and run; the history fills the form again.
export async function run(s) {
  for (const colorScheme of ['light', 'dark']) {
    await s.open({ viewport: { width: 1440, height: 900 }, colorScheme })
    const { page } = s
    await page.locator('#grid .canvas .row').first().waitFor()
    await page.keyboard.press('Shift+T')
    const dialog = page.locator('dialog[open]')
    await dialog.locator('#call-tool:enabled').waitFor()
    const value = await page.$$eval('#call-tool optgroup[label="old"] option', (list) => list.find((o) => o.textContent === 'echo').value)
    await page.selectOption('#call-tool', value)
    const field = dialog.getByRole('textbox', { name: 'text', exact: true })
    await field.waitFor()
    await s.accessible('the tool runner, ' + colorScheme, { within: 'dialog', colors: true })
    await field.fill('**bold** and <b>HTML</b>')
    await dialog.locator('text=The arguments are valid').waitFor()
    await dialog.locator('button', { hasText: /^Send$/ }).click()
    await dialog.locator('.call-place strong', { hasText: 'bold' }).waitFor({ timeout: 20000 }).catch(async () => s.fail('running came to ' + (await dialog.innerText())))
    s.check((await dialog.locator('.call-place').innerText()).includes('<b>HTML</b>'), 'HTML is not text')
    await s.accessible('the result, ' + colorScheme, { within: 'dialog', colors: true })
    await s.shoot('result-' + colorScheme)
    await field.fill('')
    const runs = await page.$$eval('.call select[aria-label="Fill in from a call"] option', (list) => list.map((o) => o.value).filter((v) => v.startsWith('run')))
    await page.selectOption('.call select[aria-label="Fill in from a call"]', runs[0])
    await s.wait('the arguments of the run', () => [...document.querySelectorAll('.call textarea')].some((t) => t.value.includes('**bold**')))
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
  }
  await s.open({ viewport: { width: 390, height: 800 } })
  await s.page.locator('#grid .canvas .row').first().waitFor()
  await s.page.keyboard.press('Shift+T')
  await s.page.locator('#call-tool:enabled').waitFor()
  s.equal(await s.page.getByRole('textbox', { name: 'a', exact: true }).inputValue(), '', 'the field of a number')
  await s.accessible('the tool runner on a phone', { within: 'dialog' })
  s.check(await s.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the screen')
  await s.shoot('narrow')
}

async function sent(s, dialog, heard) {
  const before = captureOf(s)
  const shown = dialog.locator('button', { hasText: 'Show the row' })
  if (!(await shown.count())) await dialog.locator('button', { hasText: /^Send$/ }).click()
  await dialog.locator('text=Response received').waitFor({ timeout: 20000 }).catch(async () => s.fail('sending came to ' + (await dialog.innerText())))
  await s.shoot('answered')
  await shown.click()
  await dialog.waitFor({ state: 'detached' })
  await s.wait('the answer', () => document.querySelector('#tab-response').getAttribute('aria-selected') === 'true' && document.querySelector('#panel .lines'))
  await s.wait('the row of another capture', (c) => {
    const row = new URLSearchParams(location.hash.slice(1)).get('row')
    return row && !row.startsWith(c + '/') && document.querySelector('#panel .lines')
  }, before)
  const sources = await s.page.evaluate(async () => (await fetch('/api/sources')).json())
  s.equal(sources.find((c) => c.id === captureOf(s))?.name, 'old resent', 'the capture of the row that opens')
  await s.shoot('row')
  s.equal(await s.call('heard', { tap: 'old' }), heard, 'lines that the host has got')
}

// captureOf is the capture of the row that is selected.
function captureOf(s) {
  return new URLSearchParams(new URL(s.page.url()).hash.slice(1)).get('row')?.split('/')[0]
}

// exporting: the file opens alone, without network, does what a reader needs,
// holds no secret, and is accessible.
export async function exporting(s) {
  await s.open({}, 'f=-server%3Aweb')
  await s.page.keyboard.press('e')
  const [download] = await Promise.all([s.page.waitForEvent('download'), s.page.click('dialog[open] a:has-text("A page")')])
  const path = join(s.dir, 'export.html')
  await download.saveAs(path)
  s.equal(/\.html$/.test(download.suggestedFilename()), true, 'the name ' + download.suggestedFilename())
  const html = readFileSync(path, 'utf8')
  s.note('the exported page has ' + html.length + ' characters')
  s.check(!html.includes(s.with.secret), 'the exported page holds the secret')
  s.check(html.includes('~redacted:'), 'the exported page has nothing hidden in it')
  s.check(!/(src|href)=["']?https?:/.test(html.replace(/<script type="application\/json"[^]*?<\/script>/, '')), 'the exported page loads something')

  for (const colorScheme of ['light', 'dark']) {
    const asked = []
    const context = await s.newContext({ offline: true, colorScheme })
    s.origin = null
    context.on('request', (r) => r.url().startsWith('file:') || r.url().startsWith('data:') || asked.push(r.url()))
    const page = await context.newPage()
    await page.goto(pathToFileURL(path).href)
    await s.synced(page)
    s.check((await page.locator('#grid .canvas .row').count()) > 10, 'the exported page has few rows')
    s.check(/Exported/.test(await page.locator('#exportnote').innerText()), 'the exported page does not say that it is one')
    await page.fill('#filter', 'tool:add')
    await page.press('#filter', 'Enter')
    await page.waitForFunction(() => [...document.querySelectorAll('#grid .canvas .row')].every((r) => r.textContent.includes('add')))
    await page.locator('#grid .canvas .row', { hasText: '"b":5' }).first().click()
    await page.click('#tab-response')
    await page.waitForFunction(() => document.querySelector('#panel .lines'))
    await s.accessible('the exported page, ' + colorScheme, { page, colors: colorScheme === 'dark' })
    await s.shoot('open-' + colorScheme, page)
    await page.fill('#filter', '(server:=old | server:=new) tool:add')
    await page.press('#filter', 'Enter')
    await page.waitForFunction(() => document.querySelector('#grid .canvas .row') && [...document.querySelectorAll('#grid .canvas .row')].every((r) => r.textContent.includes('add')))
    await page.keyboard.press('Escape')
    await page.click('#b-overview')
    await page.locator('#picture svg', { hasText: 'Latency by tool' }).waitFor()
    await page.click('#picture button:has-text("Sequence")')
    await page.locator('#picture svg', { hasText: 'old-host' }).waitFor()
    await s.shoot('picture-' + colorScheme, page)
    s.check((await page.locator('#picture svg[data-kind]').innerHTML()).includes(s.with.secret) === false, 'a picture holds the secret')
    s.equal(asked, [], 'what the exported page asks for')
  }
}

// save: the capture of what the filter shows, without the secret.
export async function save(s) {
  await s.open({}, 'f=server%3Afrank')
  await s.page.keyboard.press('e')
  const [download] = await Promise.all([s.page.waitForEvent('download'), s.page.click('dialog[open] a:has-text("The capture")')])
  const path = join(s.dir, 'saved.mcpcap.ndjson')
  await download.saveAs(path)
  s.check(download.suggestedFilename().endsWith('.mcpcap.ndjson'), 'the name ' + download.suggestedFilename())
  const text = readFileSync(path, 'utf8')
  const lines = text.trim().split('\n').map((l) => JSON.parse(l))
  s.equal(lines[0].k, 'head', 'the first line of what was saved')
  s.check(lines.some((l) => l.msg?.params?.name === 'echo'), 'the call is not in what was saved')
  s.check(!text.includes(s.with.secret), 'what was saved holds the secret')
  s.check(!text.includes('gone with the wire'), 'what was saved holds what the filter hides')
}

// drop: a capture that is dropped on the page is opened, and any other file gets an error.
export async function drop(s) {
  await s.open({}, 'f=server%3Adropped')
  const at = new Date(Date.now() - 60000).toISOString()
  const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'from_a_file', arguments: {} } }
  const answer = { jsonrpc: '2.0', id: 1, result: { content: [{ type: 'text', text: 'ok' }] } }
  const lines = [
    { k: 'head', v: 1, id: createHash('sha256').update(at).digest('hex').slice(0, 20).toUpperCase(), at, tool: 'test', transport: 'stdio', name: 'dropped', redact: 'default' },
    { n: 1, t: 0.001, k: 'msg', dir: 'c2s', frame: 'lf', len: JSON.stringify(call).length, msg: call },
    { n: 2, t: 0.004, k: 'msg', dir: 's2c', frame: 'lf', len: JSON.stringify(answer).length, msg: answer },
    { k: 'tail', events: 2 },
  ]
  await dropFile(s, 'dropped.mcpcap.ndjson', lines.map((l) => JSON.stringify(l)).join('\n') + '\n')
  await s.row('from_a_file').waitFor().catch(async () => s.fail('the file does not open: ' + (await s.text('#toasts'))))
  await s.shoot('opened')
  s.expected.push(/Failed to load resource/)
  await dropFile(s, 'letter.txt', 'Dear Sir or Madam')
  await s.page.locator('#toasts .toast.bad').waitFor().catch(() => s.fail('a file that is no capture is taken without a word'))
  s.note('a file that is no capture: ' + (await s.page.locator('#toasts .toast.bad').first().innerText().catch(() => '')))
  await s.shoot('refused')
}

function dropFile(s, name, text) {
  return s.page.evaluate(([name, text]) => {
    const data = new DataTransfer()
    data.items.add(new File([text], name))
    const target = document.getElementById('list')
    for (const type of ['dragenter', 'dragover', 'drop']) target.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }))
  }, [name, text])
}
