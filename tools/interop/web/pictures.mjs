// Makes the pictures of the README: node pictures.mjs MCPWIRE CHROMIUM DIRECTORY.
// doc/pictures/make runs it.
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'
import { compress } from './picturespng.mjs'
import { pause, runSession, runBridged, runGateway } from './picturesstage.mjs'
import { Terminal } from './picturesterm.mjs'

const [, , exe, chromiumPath, folder] = process.argv
const maxSize = 150 * 1024 // of a picture, in bytes
const home = mkdtempSync(join(tmpdir(), 'mw'))
const env = { ...process.env, MCPWIRE_HOME: home }
const cleanups = []

// savePicture saves a screenshot of a page or an element.
async function savePicture(place, name) {
  const path = join(folder, name + '.png')
  const png = compress(await place.screenshot())
  if (png.length > maxSize) throw new Error(`${path} has ${png.length} bytes, limit ${maxSize}`)
  writeFileSync(path, png)
  console.log(path, Math.round(png.length / 1024) + ' KB')
}

// watchWeb starts mcpwire watch and returns the URL of the page.
async function watchWeb(...more) {
  const child = spawn(exe, ['watch', '--web=127.0.0.1:0', ...more], { env, stdio: ['ignore', 'pipe', 'ignore'] })
  cleanups.push(() => child.kill())
  for await (const line of createInterface({ input: child.stdout })) return line
}

async function pagePicture(browser, address, colorScheme) {
  const page = await browser.newPage({ viewport: { width: 1720, height: 790 }, colorScheme, reducedMotion: 'reduce' })
  await page.addInitScript(() => localStorage.setItem('mcpwire.split', '66'))
  await page.goto(address)
  const row = page.locator('#grid .canvas .row', { hasText: 'release' }).first()
  await row.locator('.fold').click()
  await row.click()
  await page.click('#tab-timing')
  await page.locator('#panel .chart').waitFor()
  await pause(300)
  await savePicture(page, 'watch-web-' + colorScheme)
  await page.close()
}

// bridgePicture takes a picture of the translation of a call by a bridge.
async function bridgePicture(browser, address, colorScheme) {
  const page = await browser.newPage({ viewport: { width: 1720, height: 790 }, colorScheme, reducedMotion: 'reduce' })
  await page.addInitScript(() => localStorage.setItem('mcpwire.split', '42'))
  await page.goto(address)
  await page.locator('#grid .canvas .row', { hasText: 'release' }).first().click()
  await page.click('#tab-translated')
  await pause(600)
  await savePicture(page, 'watch-bridge-' + colorScheme)
  await page.close()
}

// gatewayPicture takes a picture of the sequence of a session through a gateway.
async function gatewayPicture(browser, address, colorScheme) {
  const page = await browser.newPage({ viewport: { width: 1720, height: 900 }, colorScheme, reducedMotion: 'reduce' })
  await page.goto(address)
  await page.locator('#grid .canvas .row').first().waitFor()
  await page.evaluate(() => (location.hash = 'f=method%3A%3Dtools%2Fcall&view=sequence'))
  await pause(1200)
  await savePicture(page, 'watch-gateway-' + colorScheme)
  await page.close()
}

// draw writes an SVG picture of captures, which has the colors of both themes.
function draw(kind, name, ...captures) {
  const path = join(folder, name + '.svg')
  writeFileSync(path, execFileSync(exe, ['export', ...captures, '--to', kind], { env, encoding: 'utf8' }))
  console.log(path)
}

async function terminalPicture(browser, look) {
  const t = new Terminal(exe, env, look)
  cleanups.push(() => t.stop())
  await pause(2500)
  for (const keys of terminalKeys) {
    t.press(...keys)
    await pause(250)
  }
  await pause(1200)
  const page = await browser.newPage({ viewport: { width: 1200, height: 700 } })
  await page.setContent(t.page())
  await savePicture(page.locator('pre'), 'watch-terminal-' + look)
  await page.close()
}

// terminalKeys are the keys before the picture of the terminal: they select, unfold and open the
// release.
const terminalKeys = [['G'], ['k'], ['k'], ['Right'], ['Enter']]

try {
  const hosts = await runSession(exe, env)
  cleanups.push(() => hosts.forEach((h) => h.stop()))
  const address = await watchWeb()
  const browser = await chromium.launch({ executablePath: chromiumPath, args: ['--no-sandbox', '--disable-gpu', '--font-render-hinting=none'] })
  cleanups.push(() => browser.close())
  for (const look of ['light', 'dark']) await pagePicture(browser, address, look)
  for (const look of ['light', 'dark']) await terminalPicture(browser, look)
  draw('overview', 'overview', ...readdirSync(join(home, 'captures')).map((f) => join(home, 'captures', f)))
  const file = join(home, 'bridge.mcpcap.ndjson')
  const bridged = await runBridged(exe, env, file)
  bridged.stop()
  await pause(800)
  const bridgeAddress = await watchWeb(file)
  for (const look of ['light', 'dark']) await bridgePicture(browser, bridgeAddress, look)
  draw('sequence', 'sequence', file)
  const gatewayFile = join(home, 'gateway.mcpcap.ndjson')
  const host = await runGateway(exe, env, gatewayFile, join(home, 'gateway.yaml'))
  cleanups.push(() => host.stop())
  await pause(800)
  const gatewayAddress = await watchWeb(gatewayFile)
  for (const look of ['light', 'dark']) await gatewayPicture(browser, gatewayAddress, look)
} finally {
  for (const cleanup of cleanups.reverse()) await cleanup()
  await pause(500)
  rmSync(home, { recursive: true, force: true })
}
