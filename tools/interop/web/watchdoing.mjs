// Actions of the page: differences, resend, tool runner, export, save, opening a file.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createHash } from 'node:crypto'

// diff: the page shows the differences of two marked rows.
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
  s.check(text.includes('/params/arguments/b') && /\b2\b[^]*\b5\b/.test(text), 'differences: ' + text)
  s.check(text.includes('/result/'), 'differences of the responses are missing')
  await s.checkAccessible('the differences')
  await s.screenshot('open')
}

// resend: the page sends a request to a new process of the server, and opens the row of the
// response. The session of the host gets nothing.
export async function resend(s) {
  await s.open({}, 'f=server%3Aold+tool%3Aadd')
  await s.openDetail('b=5')
  await s.page.waitForTimeout(200) // the page writes the address with a delay
  const lines = await s.call('countLines', { tap: 'old' })
  await s.page.keyboard.press('r')
  const dialog = s.page.locator('dialog[open]')
  await dialog.locator('.answer', { hasText: 'serve' }).waitFor()
  await s.checkAccessible('the dialog to send again', { within: 'dialog' })
  await s.screenshot('dialog')
  await checkSent(s, dialog, lines)
}

// edit: like resend, with arguments that were edited in the form and as JSON.
export async function edit(s) {
  await s.open({}, 'f=server%3Aold+tool%3Aadd')
  await s.openDetail('b=5')
  await s.page.waitForTimeout(200) // the page writes the address with a delay
  const lines = await s.call('countLines', { tap: 'old' })
  await s.page.keyboard.press('E')
  const dialog = s.page.locator('dialog[open]')
  const field = dialog.getByRole('textbox', { name: 'b', exact: true })
  await field.waitFor()
  s.equal(await field.inputValue(), '5', 'the recorded argument in the form')
  await field.fill('many')
  await dialog.locator('.field-problem:visible').waitFor()
  for (const colors of [false, true]) await s.checkAccessible('the form with a problem', { within: 'dialog', colors })
  await s.screenshot('form')
  await dialog.locator('button', { hasText: /^Send$/ }).click()
  await dialog.locator('button', { hasText: 'Send anyway' }).waitFor()
  await field.fill('6')
  await dialog.locator('text=The arguments are valid').waitFor()
  await dialog.locator('button', { hasText: /^JSON$/ }).click()
  s.check(/"b":\s*6/.test(await dialog.locator('textarea').inputValue()), 'arguments as JSON differ from the form')
  await dialog.locator('button', { hasText: /^Message$/ }).click()
  const area = dialog.locator('textarea')
  const message = await area.inputValue()
  s.check(message.includes('"tools/call"') && /"b":\s*6/.test(message), 'message to edit: ' + message)
  await area.fill('{')
  await dialog.locator('text=not valid JSON').waitFor()
  await s.checkAccessible('the message', { within: 'dialog' })
  await area.fill(message.replace(/"b":\s*6/, '"b": 41'))
  await dialog.locator('text=The arguments are valid').waitFor()
  await dialog.locator('button', { hasText: /^Send$/ }).click()
  await dialog.locator('.call-place', { hasText: '42' }).waitFor({ timeout: 20000 }).catch(async () => s.fail('after sending: ' + (await dialog.innerText())))
  await s.checkAccessible('the result', { within: 'dialog' })
  await dialog.locator('button', { hasText: 'Differences from the recorded' }).click()
  await dialog.locator('table.diff', { hasText: '/params/arguments/b' }).waitFor()
  await s.checkAccessible('the differences from the recorded', { within: 'dialog' })
  await s.screenshot('differences')
  await checkSent(s, dialog, lines)
  const panel = s.page.locator('#panel')
  await panel.filter({ hasText: '42' }).waitFor().catch(async () => s.fail('response: ' + (await panel.innerText())))
}

// run: the tool runner calls a tool of a server, and fills the form with the arguments of a past
// call.
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
    await s.checkAccessible('the tool runner, ' + colorScheme, { within: 'dialog', colors: true })
    await field.fill('**bold** and <b>HTML</b>')
    await dialog.locator('text=The arguments are valid').waitFor()
    await dialog.locator('button', { hasText: /^Send$/ }).click()
    await dialog.locator('.call-place strong', { hasText: 'bold' }).waitFor({ timeout: 20000 }).catch(async () => s.fail('after running: ' + (await dialog.innerText())))
    s.check((await dialog.locator('.call-place').innerText()).includes('<b>HTML</b>'), 'HTML is not shown as text')
    await s.checkAccessible('the result, ' + colorScheme, { within: 'dialog', colors: true })
    await s.screenshot('result-' + colorScheme)
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
  await s.checkAccessible('the tool runner on a phone', { within: 'dialog' })
  s.check(await s.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'page is wider than the screen')
  await s.screenshot('narrow')
}

// checkSent checks the result of sending, opens its row, and checks that the host has got no more
// lines.
async function checkSent(s, dialog, lines) {
  const before = captureOf(s)
  const shown = dialog.locator('button', { hasText: 'Show the row' })
  if (!(await shown.count())) await dialog.locator('button', { hasText: /^Send$/ }).click()
  await dialog.locator('text=Response received').waitFor({ timeout: 20000 }).catch(async () => s.fail('after sending: ' + (await dialog.innerText())))
  await s.screenshot('answered')
  await shown.click()
  await dialog.waitFor({ state: 'detached' })
  await s.wait('the response', () => document.querySelector('#tab-response').getAttribute('aria-selected') === 'true' && document.querySelector('#panel .lines'))
  await s.wait('the row of another capture', (c) => {
    const row = new URLSearchParams(location.hash.slice(1)).get('row')
    return row && !row.startsWith(c + '/') && document.querySelector('#panel .lines')
  }, before)
  const row = new URLSearchParams(new URL(s.page.url()).hash.slice(1)).get('row')
  const file = await s.page.evaluate(async (row) => (await fetch('/api/payload/' + row, { headers: { 'X-Mcpwire': sessionStorage.getItem('mcpwire-key') } })).headers.get('Content-Disposition'), row)
  s.check(file?.includes('old-resent-'), 'the file of the payload is ' + file)
  await s.screenshot('row')
  s.equal(await s.call('countLines', { tap: 'old' }), lines, 'lines of the host')
}

// captureOf returns the capture of the selected row.
function captureOf(s) {
  return new URLSearchParams(new URL(s.page.url()).hash.slice(1)).get('row')?.split('/')[0]
}

// exporting: the exported page works without network, has filters, details and pictures, contains
// no secret, and is accessible.
export async function exporting(s) {
  await s.open({}, 'f=-server%3Aweb')
  await s.page.keyboard.press('e')
  const [download] = await Promise.all([s.page.waitForEvent('download'), s.page.click('dialog[open] a:has-text("A page")')])
  const path = join(s.dir, 'export.html')
  await download.saveAs(path)
  s.equal(/\.html$/.test(download.suggestedFilename()), true, 'the name ' + download.suggestedFilename())
  const html = readFileSync(path, 'utf8')
  s.note('the exported page has ' + html.length + ' characters')
  s.check(!html.includes(s.with.secret), 'exported page contains the secret')
  s.check(html.includes('~redacted:'), 'exported page has no redacted value')
  s.check(!/(src|href)=["']?https?:/.test(html.replace(/<script type="application\/json"[^]*?<\/script>/, '')), 'exported page loads an external resource')

  for (const colorScheme of ['light', 'dark']) {
    const requests = []
    const context = await s.newContext({ offline: true, colorScheme })
    s.origin = null
    context.on('request', (r) => r.url().startsWith('file:') || r.url().startsWith('data:') || requests.push(r.url()))
    const page = await context.newPage()
    await page.goto(pathToFileURL(path).href)
    await s.synced(page)
    s.check((await page.locator('#grid .canvas .row').count()) > 10, 'exported page has few rows')
    s.check(/Exported/.test(await page.locator('#exportnote').innerText()), 'exported page lacks its note')
    await page.fill('#filter', 'tool:add')
    await page.press('#filter', 'Enter')
    await page.waitForFunction(() => [...document.querySelectorAll('#grid .canvas .row')].every((r) => r.textContent.includes('add')))
    await page.locator('#grid .canvas .row', { hasText: 'b=5' }).first().click()
    await page.click('#tab-response')
    await page.waitForFunction(() => document.querySelector('#panel .lines'))
    await s.checkAccessible('the exported page, ' + colorScheme, { page, colors: colorScheme === 'dark' })
    await s.screenshot('open-' + colorScheme, page)
    await page.fill('#filter', '(server:=old | server:=new) tool:add')
    await page.press('#filter', 'Enter')
    await page.waitForFunction(() => document.querySelector('#grid .canvas .row') && [...document.querySelectorAll('#grid .canvas .row')].every((r) => r.textContent.includes('add')))
    await page.keyboard.press('Escape')
    await page.click('#b-overview')
    await page.locator('#picture svg', { hasText: 'Latency by tool' }).waitFor()
    await page.click('#picture button:has-text("Sequence")')
    await page.locator('#picture svg', { hasText: 'old-host' }).waitFor()
    await s.screenshot('picture-' + colorScheme, page)
    s.check((await page.locator('#picture svg[data-kind]').innerHTML()).includes(s.with.secret) === false, 'picture contains the secret')
    s.equal(requests, [], 'requests of the exported page')
  }
}

// save: the saved capture has the rows that the filter matches, without the secret.
export async function save(s) {
  await s.open({}, 'f=server%3Afrank')
  await s.page.keyboard.press('e')
  const [download] = await Promise.all([s.page.waitForEvent('download'), s.page.click('dialog[open] a:has-text("The capture")')])
  const path = join(s.dir, 'saved.mcpcap.ndjson')
  await download.saveAs(path)
  s.check(download.suggestedFilename().endsWith('.mcpcap.ndjson'), 'the name ' + download.suggestedFilename())
  const text = readFileSync(path, 'utf8')
  const lines = text.trim().split('\n').map((l) => JSON.parse(l))
  s.equal(lines[0].k, 'head', 'kind of the first line of the saved capture')
  s.check(lines.some((l) => l.msg?.params?.name === 'echo'), 'saved capture lacks the call')
  s.check(!text.includes(s.with.secret), 'saved capture contains the secret')
  s.check(!text.includes('gone with the wire'), 'saved capture contains rows that the filter excludes')
}

// drop: the page opens a capture that is dropped on it, and shows an error for another file.
export async function drop(s) {
  await s.open({}, 'f=server%3Adropped')
  const at = new Date(Date.now() - 60000).toISOString()
  const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'from_a_file', arguments: {} } }
  const response = { jsonrpc: '2.0', id: 1, result: { content: [{ type: 'text', text: 'ok' }] } }
  const lines = [
    { k: 'head', v: 1, id: createHash('sha256').update(at).digest('hex').slice(0, 20).toUpperCase(), at, tool: 'test', transport: 'stdio', name: 'dropped', redact: 'default' },
    { n: 1, t: 0.001, k: 'msg', dir: 'c2s', frame: 'lf', len: JSON.stringify(call).length, msg: call },
    { n: 2, t: 0.004, k: 'msg', dir: 's2c', frame: 'lf', len: JSON.stringify(response).length, msg: response },
    { k: 'tail', events: 2 },
  ]
  await dropFile(s, 'dropped.mcpcap.ndjson', lines.map((l) => JSON.stringify(l)).join('\n') + '\n')
  await s.row('from_a_file').waitFor().catch(async () => s.fail('file does not open: ' + (await s.text('#toasts'))))
  await s.screenshot('opened')
  s.expected.push(/Failed to load resource/)
  await dropFile(s, 'letter.txt', 'Dear Sir or Madam')
  await s.page.locator('#toasts .toast.bad').waitFor().catch(() => s.fail('file that is not a capture: no error'))
  s.note('error for a file that is not a capture: ' + (await s.page.locator('#toasts .toast.bad').first().innerText().catch(() => '')))
  await s.screenshot('rejected')
}

function dropFile(s, name, text) {
  return s.page.evaluate(([name, text]) => {
    const data = new DataTransfer()
    data.items.add(new File([text], name))
    const target = document.getElementById('list')
    for (const type of ['dragenter', 'dragover', 'drop']) target.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }))
  }, [name, text])
}
