// Accessibility of all states of the page, light and dark, wide and narrow.

export async function axe(s) {
  for (const colorScheme of ['light', 'dark']) {
    const colors = colorScheme === 'dark'
    await s.open({ colorScheme })
    await s.checkAccessible('the list, ' + colorScheme, { colors })
    await s.screenshot('list-' + colorScheme)
    for (const [filter, text, tabs] of [
      ['server:old tool:slow', 'slow', ['summary', 'request', 'response', 'raw', 'timing']],
      ['server:web tool:slow', 'slow', ['http', 'sse']],
      ['tool:no_such_tool', 'no_such_tool', ['summary', 'response']],
      ['side:upstream tool:slow', 'slow', ['translated']],
    ]) {
      await s.filter(filter)
      await s.openDetail(text)
      for (const t of tabs) {
        await s.tab(t)
        await s.checkAccessible(`the tab ${t} of ${filter}, ${colorScheme}`, { within: '#detail', colors })
        await s.screenshot(`${t}-${colorScheme}`)
      }
    }
    await s.filter('finding:*')
    await s.page.locator('#grid .canvas .row').first().click()
    await s.tab('findings')
    await s.page.locator('#panel .finding').first().waitFor()
    await s.checkAccessible('the page with the tab findings, ' + colorScheme, { colors })
    await s.screenshot('findings-' + colorScheme)
    await s.filter('')
    await s.page.keyboard.press('Escape')
    for (const [button, name] of [['b-tools', 'tools'], ['b-sessions', 'sessions'], ['b-export', 'export'], ['b-help', 'help']]) {
      await s.page.click('#' + button)
      await s.page.locator('dialog[open]').waitFor()
      await s.wait('the dialog ' + name, () => !document.querySelector('dialog .busy'))
      await s.checkAccessible(`the dialog ${name}, ${colorScheme}`, { within: 'dialog', colors })
      await s.screenshot(name + '-' + colorScheme)
      await s.page.keyboard.press('Escape')
      await s.page.locator('dialog[open]').waitFor({ state: 'detached' })
    }
    await s.page.keyboard.press('x')
    await s.checkAccessible('the frames, ' + colorScheme, { within: '#list', colors })
    await s.screenshot('frames-' + colorScheme)
  }
}

// narrow: on a phone everything is reachable. The page is never wider than the screen.
export async function narrow(s) {
  for (const [width, height, colorScheme] of [[320, 640, 'light'], [320, 640, 'dark'], [768, 700, 'light'], [3840, 2160, 'dark']]) {
    const colors = colorScheme === 'dark'
    await s.open({ viewport: { width, height }, colorScheme, reducedMotion: 'no-preference' })
    const look = async (part, within) => {
      const what = `${part}, ${width} px, ${colorScheme}`
      await checkWidth(s, what)
      if (width === 320) await s.checkAccessible(what, { within, colors })
      await s.screenshot(`${part.replaceAll(' ', '-')}-${width}-${colorScheme}`)
    }
    await look('the list')
    await s.filter('server:old tool:slow')
    await s.openDetail('slow')
    for (const t of ['request', 'raw', 'timing', 'summary']) {
      await s.tab(t)
      await look('the tab ' + t, t === 'summary' ? undefined : '#detail')
    }
    if (width > 320 || colors) continue
    await s.page.click('#d-back')
    for (const b of ['tools', 'sessions', 'help', 'export']) {
      await s.page.click('#b-' + b)
      await s.page.locator('dialog[open]').waitFor()
      await s.wait('the dialog', () => !document.querySelector('dialog .busy'))
      await look('the dialog ' + b, 'dialog')
      await s.page.keyboard.press('Escape')
      await s.page.locator('dialog[open]').waitFor({ state: 'detached' })
    }
  }
}

async function checkWidth(s, what) {
  const [wide, width] = await s.page.evaluate(() => [Math.max(document.documentElement.scrollWidth, document.body.scrollWidth), innerWidth])
  s.check(wide <= width, `${what}: page is ${wide} px wide, want ${width} at most`)
}
