// Who gets in, and what stays when the page or the server begins anew.

// access: without the token there is nothing, with it there is a cookie that
// scripts cannot read, and a page of elsewhere has nothing of it.
export async function access(s) {
  const u = new URL(s.with.url)
  s.origin = u.origin
  s.expected.push(/status of 401/, /status of 403/)
  const stranger = await s.newContext()
  for (const path of ['/', '/static/main.js', '/api/stream', '/api/tools', '/api/save', '/api/export.html', '/?token=wrong', '/?token=']) {
    const r = await stranger.request.get(u.origin + path, { maxRedirects: 0 })
    s.check(r.status() === 401 || r.status() === 403, `without the token ${path} is ${r.status()}, want 401 or 403`)
    s.check(!(await r.text()).includes('tools/call'), `without the token ${path} tells something`)
  }
  for (const [what, headers] of [['another host', { Host: 'evil.test' }]]) {
    const r = await stranger.request.get(s.with.url, { headers, maxRedirects: 0 }).catch(() => null)
    s.check(r === null || r.status() >= 400, `${what} gets ${r?.status()}`)
  }
  const page = await stranger.newPage()
  await page.goto(u.origin + '/')
  s.check(/mcpwire watch/.test(await page.locator('body').innerText()), 'a page without the token says ' + (await page.locator('body').innerText()))
  await s.shoot('refused', page)

  await s.open()
  s.check(!s.page.url().includes('token'), 'the token stays in the address: ' + s.page.url())
  const [cookie] = await s.page.context().cookies()
  s.equal([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/'], 'the cookie')
  s.equal(await s.page.evaluate(() => document.cookie), '', 'the cookie that scripts see')
  for (const init of [{ method: 'POST' }, { method: 'POST', headers: { 'X-Mcpwire': '0' } }]) {
    const status = await s.page.evaluate(async (i) => (await fetch('/api/diff', i)).status, init)
    s.equal(status, 403, 'a POST without the header')
  }
  const policy = (await s.page.context().request.get(u.origin + '/')).headers()['content-security-policy'] || ''
  s.check(/script-src 'self'|default-src 'none'/.test(policy) && !/unsafe/.test(policy), 'the policy: ' + policy)

  // A page of another port of the same browser, which has the cookie.
  const other = await s.page.context().newPage()
  await other.route('http://127.0.0.1:1/**', (r) => r.fulfill({ contentType: 'text/html', body: '<!doctype html><title>x</title>' }))
  s.expected.push(/request to elsewhere/, /CORS|ERR_FAILED|ERR_BLOCKED|Failed to load resource/)
  await other.goto('http://127.0.0.1:1/page')
  const got = await other.evaluate(async (origin) => {
    const out = []
    for (const init of [{}, { mode: 'no-cors' }, { credentials: 'include' }, { method: 'POST', headers: { 'X-Mcpwire': '1' }, credentials: 'include' }]) {
      out.push(await fetch(origin + '/api/tools', init).then((r) => r.text(), () => 'refused'))
    }
    return out
  }, u.origin)
  s.check(got.every((text) => text === 'refused' || text === ''), 'a page of elsewhere reads ' + JSON.stringify(got))
}

// reload: a page that is loaded again shows what it did: the address has it.
// A connection that breaks is taken up where it was.
export async function reload(s) {
  await s.open()
  await s.filter('tool:add server:old')
  await s.pick('"b":5')
  await s.tab('response')
  await s.page.waitForTimeout(200) // the address is written a moment later
  const before = await state(s)
  await s.page.reload()
  await s.synced()
  await s.wait('the detail', () => document.querySelector('#panel .lines'))
  s.equal(await state(s), before, 'the page after it was loaded again')

  s.expected.push(/Failed to load resource/)
  await resume(s)
  const link = s.page.locator('#offline')
  await s.call('again', { start: false })
  await link.filter({ hasText: 'lost' }).waitFor()
  await s.accessible('a lost connection')
  await s.shoot('offline')
  s.equal(await s.row('add').count() > 0, true, 'rows are still there')
  s.with.url = await s.call('again', { start: true })
  await link.waitFor({ state: 'hidden', timeout: 20000 }).catch(async () => s.fail('after a restart the page says ' + (await link.innerText())))
  await s.synced()
  await s.shoot('restarted')
  const hash = new URL(s.page.url()).hash
  await s.page.goto(s.with.url + hash)
  await s.synced()
  await s.wait('the detail', () => document.querySelector('#panel .lines'))
  s.equal(await state(s), before, 'the page after the server was started again')
}

// resume breaks the stream of a page and adds a row meanwhile. The page must request the missed
// events, and keep its rows.
async function resume(s) {
  const before = await s.page.getAttribute('#grid', 'aria-rowcount')
  const asked = []
  let broken = true
  await s.page.route('**/api/stream*', (r) => {
    asked.push(r.request().url())
    return broken ? r.abort() : r.continue()
  })
  await s.page.evaluate(() => {
    globalThis.resets = 0
    for (const source of globalThis.sources) if (source.readyState === 1) source.dispatchEvent(new Event('error'))
  })
  await s.page.locator('#offline').filter({ hasText: 'lost' }).waitFor()
  await s.call('feed', { tap: 'old', wait: true, lines: [{ jsonrpc: '2.0', id: 700, method: 'tools/call', params: { name: 'add', arguments: { a: 7, b: 700 } } }] })
  broken = false
  await s.page.click('#offline button')
  await s.page.locator('#offline').waitFor({ state: 'hidden' })
  await s.wait('the row that was missed', (n) => Number(document.getElementById('grid').getAttribute('aria-rowcount')) === Number(n) + 1, before)
  s.check(asked.length > 0 && asked.every((u) => /[?&]after=/.test(u)), 'the page does not say where it was: ' + asked)
  s.equal(await s.page.evaluate(() => globalThis.resets), 0, 'how often the page has begun anew')
  await s.page.unroute('**/api/stream*')
}

// restart: the pages that are open while a server ends and comes back go on.
export async function restart(s) {
  const old = s.with.url
  s.with.url = await s.call('again', { start: false }).then(() => s.call('again', { start: true }))
  s.equal(s.with.url, old, 'the address after a restart')
  await s.open({}, 'f=server%3Aold')
  s.check((await s.row('add').count()) > 0, 'the rows of a tap that runs longer than the page are there')
  await s.call('feed', { tap: 'old', wait: true, lines: [{ jsonrpc: '2.0', id: 900, method: 'tools/call', params: { name: 'echo', arguments: { text: 'after the restart' } } }] })
  await s.row('after the restart').first().waitFor()
}

function state(s) {
  return s.page.evaluate(() => {
    const p = new URLSearchParams(location.hash.slice(1))
    const row = document.querySelector('#grid .row[aria-selected="true"]')
    return [p.get('f'), p.get('row'), p.get('tab'), document.getElementById('filter').value, row?.querySelector('.c-what')?.textContent, document.querySelector('#tabs [aria-selected="true"]').id]
  })
}
