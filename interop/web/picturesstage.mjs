// The hosts for the pictures: each runs a server of picturesserver.mjs through
// mcpwire tap, or bridge, and talks to it as a script says.
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

export const pause = (ms) => new Promise((r) => setTimeout(r, ms))

// A Host is a host with a server behind a tap, or with another command before the server.
class Host {
  constructor(exe, env, name, before = ['tap', '--name', name]) {
    this.name = name
    this.child = spawn(exe, before.includes('gateway') ? before : [...before, '--', 'node', 'picturesserver.mjs', name], { env, cwd: import.meta.dirname, stdio: ['pipe', 'pipe', 'ignore'] })
    this.waiting = new Map()
    this.id = 0
    createInterface({ input: this.child.stdout }).on('line', (line) => this.take(line))
  }

  take(line) {
    let m
    try {
      m = JSON.parse(line)
    } catch {
      return
    }
    if (m.method && m.id !== undefined) setTimeout(() => this.write({ id: m.id, result: { action: 'accept', content: m.params.requestedSchema.properties.confirm ? { confirm: true } : { notify: true } } }), 900)
    else if (this.waiting.has(m.id)) this.waiting.get(m.id)(m)
  }

  write(m) {
    this.child.stdin.write(JSON.stringify({ jsonrpc: '2.0', ...m }) + '\n')
  }

  // ask sends a request and waits for the answer.
  ask(method, params) {
    const id = ++this.id
    this.write({ id, method, params })
    return new Promise((resolve) => this.waiting.set(id, resolve))
  }

  call(name, args, more) {
    return this.ask('tools/call', { name, arguments: args, ...more })
  }

  async greet(protocolVersion, capabilities) {
    await this.ask('initialize', { protocolVersion, capabilities, clientInfo: { name: 'editor', version: '3.1.0' } })
    this.write({ method: 'notifications/initialized' })
    await this.ask('tools/list', {})
  }

  stop() {
    this.child.stdin.end()
  }
}

const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  'io.modelcontextprotocol/clientInfo': { name: 'editor', version: '3.1.0' },
}

// play plays the session and returns its hosts, whose servers still run. One
// request of the last waits for its answer then.
export async function play(exe, env) {
  const [files, calendar, deploy] = ['files', 'calendar', 'deploy'].map((n) => new Host(exe, env, n))
  await files.greet('2025-11-25', { roots: {} })
  await files.call('search', { query: 'frame', path: 'src' }, { _meta: { progressToken: 'search-1' } })
  await files.call('read_file', { path: 'src/wire/frame.go' })
  await calendar.greet('2025-11-25', { elicitation: {} })
  await calendar.call('find_slot', { minutes: 30 })
  await files.call('write_file', { path: 'notes.md', text: 'Frames end where their line does.' })
  await files.call('find_file', { name: 'frame.go' })
  await calendar.call('book', { title: 'Review', at: '2026-11-24T10:00' })
  await deploy.ask('server/discover', { _meta: meta })
  await deploy.ask('tools/list', { _meta: meta })
  await deploy.call('plan', { service: 'api' }, { _meta: meta })
  const args = { service: 'api', version: '2.8.0' }
  const first = await deploy.call('release', args, { _meta: { ...meta, progressToken: 'release-1' } })
  await pause(1100)
  await deploy.call('release', args, { inputResponses: { confirm: { action: 'accept', content: { confirm: true } } }, requestState: first.result.requestState, _meta: { ...meta, progressToken: 'release-2' } })
  await files.call('read_file', { path: 'src/wire/frame_test.go' })
  deploy.call('rollback', { service: 'api' }, { _meta: meta })
  return [files, calendar, deploy]
}

// playBridged plays a session of a host and a server of different eras, and
// records both sides in a file. It returns the host.
export async function playBridged(exe, env, file) {
  const deploy = new Host(exe, env, 'deploy', ['bridge', '--capture', file])
  await deploy.greet('2025-11-25', { elicitation: {} })
  await deploy.call('plan', { service: 'api' })
  await deploy.call('release', { service: 'api', version: '2.8.0' }, { _meta: { progressToken: 'release-1' } })
  return deploy
}

// playGateway plays a session of a legacy host and three servers of both eras behind a gateway, and
// records both sides in a file. The last call waits for its answer then. It returns the host.
export async function playGateway(exe, env, file, config) {
  const server = (name, era) => `  ${name}: {command: [node, picturesserver.mjs, ${name}], cwd: ${JSON.stringify(import.meta.dirname)}, era: ${era}}\n`
  writeFileSync(config, 'listWait: 10s\nupstreams:\n' + server('files', 'legacy') + server('calendar', 'legacy') + server('deploy', 'modern'))
  const host = new Host(exe, env, 'gateway', ['gateway', '--stdio', '--capture', file, config])
  await host.greet('2025-11-25', { elicitation: {} })
  await pause(1500)
  await host.call('files__search', { query: 'frame', path: 'src' }, { _meta: { progressToken: 'search-1' } })
  await host.call('calendar__find_slot', { minutes: 30 })
  await host.call('deploy__plan', { service: 'api' })
  await host.call('deploy__release', { service: 'api', version: '2.8.0' }, { _meta: { progressToken: 'release-1' } })
  await host.call('files__read_file', { path: 'src/wire/frame.go' })
  host.call('deploy__rollback', { service: 'api' })
  return host
}
