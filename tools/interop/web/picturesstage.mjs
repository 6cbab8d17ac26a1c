// The hosts for the pictures. Each runs servers of picturesserver.mjs behind mcpwire tap, bridge or
// gateway, and sends the requests of a script.
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

export const pause = (ms) => new Promise((r) => setTimeout(r, ms))

// A Host is a host with a server behind a tap or another command.
class Host {
  constructor(exe, env, name, before = ['tap', '--name', name]) {
    this.name = name
    this.child = spawn(exe, before.includes('gateway') ? before : [...before, '--', 'node', 'picturesserver.mjs', name], { env, cwd: import.meta.dirname, stdio: ['pipe', 'pipe', 'ignore'] })
    this.waiting = new Map()
    this.id = 0
    createInterface({ input: this.child.stdout }).on('line', (line) => this.receive(line))
  }

  receive(line) {
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

  // request sends a request and waits for the response.
  request(method, params) {
    const id = ++this.id
    this.write({ id, method, params })
    return new Promise((resolve) => this.waiting.set(id, resolve))
  }

  call(name, args, more) {
    return this.request('tools/call', { name, arguments: args, ...more })
  }

  async initialize(protocolVersion, capabilities) {
    await this.request('initialize', { protocolVersion, capabilities, clientInfo: { name: 'editor', version: '3.1.0' } })
    this.write({ method: 'notifications/initialized' })
    await this.request('tools/list', {})
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

// runSession runs the session and returns its hosts, whose servers still run. One request of the
// last host is pending then.
export async function runSession(exe, env) {
  const [files, calendar, deploy] = ['files', 'calendar', 'deploy'].map((n) => new Host(exe, env, n))
  await files.initialize('2025-11-25', { roots: {} })
  await files.call('search', { query: 'frame', path: 'src' }, { _meta: { progressToken: 'search-1' } })
  await files.call('read_file', { path: 'src/wire/frame.go' })
  await calendar.initialize('2025-11-25', { elicitation: {} })
  await calendar.call('find_slot', { minutes: 30 })
  await files.call('write_file', { path: 'notes.md', text: 'Frames end where their line does.' })
  await files.call('find_file', { name: 'frame.go' })
  await calendar.call('book', { title: 'Review', at: '2026-11-24T10:00' })
  await deploy.request('server/discover', { _meta: meta })
  await deploy.request('tools/list', { _meta: meta })
  await deploy.call('plan', { service: 'api' }, { _meta: meta })
  const args = { service: 'api', version: '2.8.0' }
  const first = await deploy.call('release', args, { _meta: { ...meta, progressToken: 'release-1' } })
  await pause(1100)
  await deploy.call('release', args, { inputResponses: { confirm: { action: 'accept', content: { confirm: true } } }, requestState: first.result.requestState, _meta: { ...meta, progressToken: 'release-2' } })
  await files.call('read_file', { path: 'src/wire/frame_test.go' })
  deploy.call('rollback', { service: 'api' }, { _meta: meta })
  return [files, calendar, deploy]
}

// runBridged runs a session of a host and a server of different eras through a bridge, which
// records both sides in a file. It returns the host.
export async function runBridged(exe, env, file) {
  const deploy = new Host(exe, env, 'deploy', ['bridge', '--capture', file])
  await deploy.initialize('2025-11-25', { elicitation: {} })
  await deploy.call('plan', { service: 'api' })
  await deploy.call('release', { service: 'api', version: '2.8.0' }, { _meta: { progressToken: 'release-1' } })
  return deploy
}

// runGateway runs a session of a legacy host and three servers of both eras through a gateway,
// which records both sides in a file. It returns the host, whose last call is pending then.
export async function runGateway(exe, env, file, config) {
  const server = (name, era) => `  ${name}: {command: [node, picturesserver.mjs, ${name}], cwd: ${JSON.stringify(import.meta.dirname)}, era: ${era}}\n`
  writeFileSync(config, 'listWait: 10s\nupstreams:\n' + server('files', 'legacy') + server('calendar', 'legacy') + server('deploy', 'modern'))
  const host = new Host(exe, env, 'gateway', ['gateway', '--stdio', '--capture', file, config])
  await host.initialize('2025-11-25', { elicitation: {} })
  await pause(1500)
  await host.call('files__search', { query: 'frame', path: 'src' }, { _meta: { progressToken: 'search-1' } })
  await host.call('calendar__find_slot', { minutes: 30 })
  await host.call('deploy__plan', { service: 'api' })
  await host.call('deploy__release', { service: 'api', version: '2.8.0' }, { _meta: { progressToken: 'release-1' } })
  await host.call('files__read_file', { path: 'src/wire/frame.go' })
  host.call('deploy__rollback', { service: 'api' })
  return host
}
