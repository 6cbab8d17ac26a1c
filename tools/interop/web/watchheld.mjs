// Messages that a tap with --intercept holds: the bar and the dialog.

// held: the user edits a call and holds its response, answers a call, drops one, and changes the
// filter.
export async function held(s) {
  s.expected.push(/status of 422/) // an invalid filter
  for (const [round, colorScheme] of ['light', 'dark'].entries()) {
    await s.open({ viewport: { width: 1440, height: 900 }, colorScheme })
    const { page } = s
    const id = (n) => 10 * (round + 1) + n
    const call = (n, text, wait) => s.call('sendLines', { tap: 'stop', lines: [{ jsonrpc: '2.0', id: id(n), method: 'tools/call', params: { name: 'echo', arguments: { text } } }], wait })
    await call(1, 'first')
    await page.locator('#held .held-line', { hasText: 'echo' }).waitFor()
    await s.checkAccessible('the bar of held messages, ' + colorScheme, { within: '#held', colors: true })
    await s.screenshot('bar-' + colorScheme)
    await page.keyboard.press('i')
    const dialog = page.locator('dialog[open]')
    const area = dialog.locator('textarea')
    await s.wait('the held message', () => document.querySelector('dialog textarea')?.value.includes('first'))
    await s.checkAccessible('the dialog of held messages, ' + colorScheme, { within: 'dialog', colors: true })
    await s.screenshot('dialog-' + colorScheme)
    s.equal(await page.evaluate(() => document.activeElement.tagName), 'TEXTAREA', 'focus in the dialog')
    const until = await page.locator('dialog .held-left').getAttribute('data-until')
    await page.keyboard.type(' ')
    await s.wait('the message to wait', (until) => {
      const left = document.querySelector('dialog .held-left')
      return left.textContent === 'waits while you type' && Number(left.dataset.until) > Number(until)
    }, until)
    await area.fill((await area.inputValue()).replace('first', 'edited'))
    await dialog.locator('button', { hasText: 'hold the response' }).click()
    await s.wait('the held response', () => document.querySelector('dialog textarea')?.value.includes('"result"'))
    s.check((await area.inputValue()).includes('edited'), 'response: ' + (await area.inputValue()))
    await dialog.locator('button', { hasText: 'Pass on' }).click()
    await dialog.locator('text=No message is held now').waitFor()

    await call(2, 'second')
    await s.wait('the second message', () => document.querySelector('dialog textarea')?.value.includes('second'))
    await dialog.locator('button', { hasText: 'Answer' }).click()
    await s.checkAccessible('the response form, ' + colorScheme, { within: 'dialog', colors: true })
    await area.fill('{"jsonrpc":"2.0","id":' + id(2) + ',"result":{"content":[{"type":"text","text":"by hand"}]}}')
    await dialog.locator('button', { hasText: 'Send the response' }).click()
    await dialog.locator('text=No message is held now').waitFor()

    await call(3, 'third')
    await s.wait('the third message', () => document.querySelector('dialog textarea')?.value.includes('third'))
    await dialog.locator('button', { hasText: 'Drop' }).click()
    await dialog.locator('text=No message is held now').waitFor()
    await dialog.locator('.held-filters input').fill('tool:((')
    await dialog.locator('button', { hasText: 'Set' }).click()
    await page.locator('.toast.bad', { hasText: 'column' }).waitFor()
    await dialog.locator('.held-filters input').fill('tool:other')
    await dialog.locator('button', { hasText: 'Set' }).click()
    await page.locator('.toast', { hasText: 'held from now on' }).waitFor()
    await call(4, 'fourth', true)
    // The responses to initialize and to three calls of each round, without the dropped one.
    s.equal(await s.call('countLines', { tap: 'stop' }), 1 + 3 * (round + 1), 'lines of the host after the message was dropped')
    await dialog.locator('.held-filters input').fill('tool:echo')
    await dialog.locator('button', { hasText: 'Set' }).click()
    await page.keyboard.press('Escape')

    // Both versions are in the capture, and the tab of translations compares them.
    await s.filter('side:downstream edited')
    await s.row('echo').first().click()
    await page.keyboard.press('Enter')
    await page.click('#tab-translated')
    await page.locator('#panel .translated', { hasText: 'edited' }).waitFor()
    s.check((await page.locator('#panel').innerText()).includes('first'), 'tab lacks the received message')
    await s.screenshot('translated-' + colorScheme)
    await s.filter('"by hand"')
    s.check((await s.row('echo').count()) >= 1, 'row of the answered call is missing')
  }
}
