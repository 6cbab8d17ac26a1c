// Access control, and the state of the page after a reload or a restart of the server.

// access: requests without the token get an error. The token sets a cookie that scripts cannot
// read, and that pages of other origins cannot use.
export async function access(s) {
  const u = new URL(s.with.url)
  s.origin = u.origin
  s.expected.push(/status of 401/, /status of 403/)
  const withoutToken = await s.newContext()
  for (const path of ['/', '/static/main.js', '/api/stream', '/api/tools', '/api/save', '/api/export.html', '/?token=wrong', '/?token=']) {
    const r = await withoutToken.request.get(u.origin + path, { maxRedirects: 0 })
    s.check(r.status() === 401 || r.status() === 403, `${path} without the token: status = ${r.status()}, want 401 or 403`)
    s.check(!(await r.text()).includes('tools/call'), `${path} without the token: response contains traffic`)
  }
  const r = await withoutToken.request.get(s.with.url, { headers: { Host: 'evil.test' }, maxRedirects: 0 }).catch(() => null)
  s.check(r === null || r.status() >= 400, `another host: status = ${r?.status()}, want 4xx or no response`)
  const page = await withoutToken.newPage()
  await page.goto(u.origin + '/')
  s.check(/mcpwire watch/.test(await page.locator('body').innerText()), 'page without the token: ' + (await page.locator('body').innerText()))
  await s.screenshot('rejected', page)

  await s.open()
  s.check(!s.page.url().includes('token'), 'the address still has the token: ' + s.page.url())
  const [cookie] = await s.page.context().cookies()
  s.equal([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/'], 'attributes of the cookie')
  s.equal(await s.page.evaluate(() => document.cookie), '', 'cookies that scripts can read')
  s.check(!s.page.url().includes('key='), 'the address still has the key: ' + s.page.url())
  for (const [init, want] of [[{ method: 'POST' }, 403], [{ method: 'POST', headers: { 'X-Mcpwire': '1' } }, 401], [{}, 401]]) {
    const status = await s.page.evaluate(async (i) => (await fetch('/api/diff', i)).status, init)
    s.equal(status, want, 'status of a request without the key')
  }
  for (const path of ['/api/stream', '/api/save', '/api/tools']) { // the browser's cookie alone
    s.equal((await s.page.context().request.get(u.origin + path)).status(), 401, path + ' with the cookie alone')
  }
  // A tab that the user opens with the address of the page gets the key from the first one.
  const second = await s.page.context().newPage()
  await second.goto(u.origin + '/')
  await second.locator('#grid .row').first().waitFor()
  await second.close()
  const policy = (await s.page.context().request.get(u.origin + '/')).headers()['content-security-policy'] || ''
  s.check(/script-src 'self'|default-src 'none'/.test(policy) && !/unsafe/.test(policy), 'content security policy: ' + policy)

  // A page with another port in the same browser, which has the cookie.
  const other = await s.page.context().newPage()
  await other.route('http://127.0.0.1:1/**', (r) => r.fulfill({ contentType: 'text/html', body: '<!doctype html><title>x</title>' }))
  s.expected.push(/request to another origin/, /CORS|ERR_FAILED|ERR_BLOCKED|Failed to load resource/)
  await other.goto('http://127.0.0.1:1/page')
  const got = await other.evaluate(async (origin) => {
    const out = []
    for (const init of [{}, { mode: 'no-cors' }, { credentials: 'include' }, { method: 'POST', headers: { 'X-Mcpwire': '1' }, credentials: 'include' }]) {
      out.push(await fetch(origin + '/api/tools', init).then((r) => r.text(), () => 'rejected'))
    }
    return out
  }, u.origin)
  s.check(got.every((text) => text === 'rejected' || text === ''), 'page of another origin reads ' + JSON.stringify(got))
}

// reload: a reloaded page has the same state, which is in the address. The page reconnects after a
// lost connection and after a restart of the server.
export async function reload(s) {
  await s.open()
  await s.filter('tool:add server:old')
  await s.openDetail('b=5')
  await s.tab('response')
  await s.page.waitForTimeout(200) // the page writes the address with a delay
  const before = await state(s)
  await s.page.reload()
  await s.synced()
  await s.wait('the detail', () => document.querySelector('#panel .lines'))
  s.equal(await state(s), before, 'state of the page after a reload')

  s.expected.push(/Failed to load resource/)
  await resume(s)
  const link = s.page.locator('#offline')
  await s.call('restartWatch', { start: false })
  await link.filter({ hasText: 'lost' }).waitFor()
  await s.checkAccessible('a lost connection')
  await s.screenshot('offline')
  s.equal(await s.row('add').count() > 0, true, 'rows exist without a connection')
  s.with.url = await s.call('restartWatch', { start: true })
  await link.waitFor({ state: 'hidden', timeout: 20000 }).catch(async () => s.fail('after a restart: ' + (await link.innerText())))
  await s.synced()
  await s.screenshot('restarted')
  const hash = new URL(s.page.url()).hash
  await s.page.goto(s.with.url + hash)
  await s.synced()
  await s.wait('the detail', () => document.querySelector('#panel .lines'))
  s.equal(await state(s), before, 'state of the page after a restart of the server')
}

// resume interrupts the event stream of the page and adds a row. The page must request the missed
// events and keep its rows.
async function resume(s) {
  const before = await s.page.getAttribute('#grid', 'aria-rowcount')
  const urls = []
  let broken = true
  await s.page.route('**/api/stream*', (r) => {
    urls.push(r.request().url())
    return broken ? r.abort() : r.continue()
  })
  await s.page.evaluate(() => {
    globalThis.resets = 0
    for (const source of globalThis.sources) if (source.readyState === 1) source.dispatchEvent(new Event('error'))
  })
  await s.page.locator('#offline').filter({ hasText: 'lost' }).waitFor()
  await s.call('sendLines', { tap: 'old', wait: true, lines: [{ jsonrpc: '2.0', id: 700, method: 'tools/call', params: { name: 'add', arguments: { a: 7, b: 700 } } }] })
  broken = false
  await s.page.click('#offline button')
  await s.page.locator('#offline').waitFor({ state: 'hidden' })
  await s.wait('the missed row', (n) => Number(document.getElementById('grid').getAttribute('aria-rowcount')) === Number(n) + 1, before)
  s.check(urls.length > 0 && urls.every((u) => /[?&]after=/.test(u)), 'request of the stream lacks after: ' + urls)
  s.equal(await s.page.evaluate(() => globalThis.resets), 0, 'resets of the page')
  await s.page.unroute('**/api/stream*')
}

// restart: a page has the rows of running taps after a restart of the server.
export async function restart(s) {
  const old = s.with.url
  s.with.url = await s.call('restartWatch', { start: false }).then(() => s.call('restartWatch', { start: true }))
  s.equal(s.with.url, old, 'address after a restart')
  await s.open({}, 'f=server%3Aold')
  s.check((await s.row('add').count()) > 0, 'rows of a tap that runs longer than the server are missing')
  await s.call('sendLines', { tap: 'old', wait: true, lines: [{ jsonrpc: '2.0', id: 900, method: 'tools/call', params: { name: 'echo', arguments: { text: 'after the restart' } } }] })
  await s.row('after the restart').first().waitFor()
}

function state(s) {
  return s.page.evaluate(() => {
    const p = new URLSearchParams(location.hash.slice(1))
    const row = document.querySelector('#grid .row[aria-selected="true"]')
    return [p.get('f'), p.get('row'), p.get('tab'), document.getElementById('filter').value, row?.querySelector('.c-what')?.textContent, document.querySelector('#tabs [aria-selected="true"]').id]
  })
}
