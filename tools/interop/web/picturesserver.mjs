// A server for the pictures: node picturesserver.mjs NAME. It responds with the script of that
// name, after a delay.
import { createInterface } from 'node:readline'

const [, , name] = process.argv
const era = { modern: '2026-07-28', legacy: '2025-11-25', old: '2025-06-18' }
const tool = (name, description, properties, required) => ({ name, description, inputSchema: { type: 'object', properties, required } })
const string = { type: 'string' }
const text = (t) => ({ content: [{ type: 'text', text: t }] })
const identity = { 'io.modelcontextprotocol/serverInfo': { name, version: '1.4.2' } }

function send(message) {
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
}

const pause = (ms) => new Promise((r) => setTimeout(r, ms))
const hello = (revision, capabilities) => ({ protocolVersion: revision, capabilities, serverInfo: { name, version: '1.4.2' } })

const files = {
  tools: [
    tool('search', 'Search the text of all files below a folder.', { query: string, path: string }, ['query']),
    tool('read_file', 'Read a file.', { path: string }, ['path']),
    tool('write_file', 'Write a file.', { path: string, text: string }, ['path', 'text']),
  ],
  async initialize() {
    await pause(38)
    process.stderr.write('files 1.4.2: serving /home/ada/src, 3812 files\n')
    return hello(era.legacy, { tools: { listChanged: true }, logging: {} })
  },
  async call({ name, arguments: a, _meta }) {
    if (name === 'search') {
      for (let i = 1; i <= 3; i++) {
        await pause(110)
        if (_meta?.progressToken !== undefined) send({ method: 'notifications/progress', params: { progressToken: _meta.progressToken, progress: i * 1270, total: 3812, message: `${i * 1270} files` } })
      }
      return text('src/wire/frame.go:88: // a frame ends where its line does\nsrc/wire/frame.go:131: if len(line) > limit {\nsrc/wire/frame_test.go:40: long lines are refused')
    }
    if (name === 'write_file') {
      await pause(24)
      process.stderr.write('write /home/ada/src/notes.md: no space left on device\n')
      return { ...text('no space left on device'), isError: true }
    }
    await pause(9)
    return text('package wire\n\nimport "bufio"\n\n// A Framer cuts a stream into frames.\ntype Framer struct {\n\tr   *bufio.Reader\n\tmax int\n}\n')
  },
}

const calendar = {
  tools: [tool('find_slot', 'Find a time at which all are free.', { minutes: { type: 'integer' } }, ['minutes']), tool('book', 'Book a meeting.', { title: string, at: string }, ['title', 'at'])],
  async initialize() {
    console.log('calendar: connected to the store')
    await pause(64)
    return hello(era.old, { tools: {} })
  },
  async call({ name }) {
    if (name === 'find_slot') {
      await pause(142)
      return { content: [{ type: 'text', text: 'Tuesday, 10:00' }], structuredContent: ['2026-11-24T10:00'] }
    }
    const answer = await ask('elicitation/create', { message: 'Book "Review" on Tuesday at 10:00?', requestedSchema: { type: 'object', properties: { notify: { type: 'boolean', title: 'Tell the others' } } } })
    await pause(80)
    return text(answer.action === 'accept' ? 'booked' : 'not booked')
  },
}

const deploy = {
  modern: true,
  tools: [tool('plan', 'Say what a release would change.', { service: string }, ['service']), tool('release', 'Release a service.', { service: string, version: string }, ['service', 'version']), tool('rollback', 'Go back to the release before.', { service: string }, ['service'])],
  async call({ name, inputResponses, _meta }) {
    if (name === 'plan') {
      await pause(215)
      return text('2 instances are replaced, 1 migration')
    }
    if (name === 'rollback') return new Promise(() => {})
    if (!inputResponses) {
      await pause(96)
      return { resultType: 'input_required', inputRequests: { confirm: { method: 'elicitation/create', params: { mode: 'form', message: 'Release api 2.8.0 to production?', requestedSchema: { type: 'object', properties: { confirm: { type: 'boolean', title: 'Yes, release it' } }, required: ['confirm'] } } } }, requestState: 'eyJyZWxlYXNlIjoiYXBpIn0' }
    }
    for (let i = 1; i <= 2; i++) {
      await pause(260)
      send({ method: 'notifications/progress', params: { progressToken: _meta.progressToken, progress: i, total: 2, message: `instance ${i} of 2 is up` } })
    }
    return text('api 2.8.0 runs on 2 instances')
  },
}

const script = { files, calendar, deploy }[name]
const asked = new Map()

function ask(method, params) {
  const id = 's' + (asked.size + 1)
  send({ id, method, params })
  return new Promise((resolve) => asked.set(id, resolve))
}

async function answer(m) {
  switch (m.method) {
    case 'initialize':
      if (!script.initialize) throw { code: -32022, message: 'unsupported protocol version', data: { supported: [era.modern], requested: m.params.protocolVersion } }
      return script.initialize()
    case 'server/discover':
      await pause(31)
      return { supportedVersions: [era.modern], capabilities: { tools: {} }, ttlMs: 60000, cacheScope: 'public' }
    case 'tools/list':
      await pause(6)
      return { tools: script.tools, ...(script.modern ? { ttlMs: 60000, cacheScope: 'public' } : {}) }
    case 'tools/call':
      if (!script.tools.some((t) => t.name === m.params.name)) throw { code: -32602, message: 'unknown tool: ' + m.params.name }
      return script.call(m.params)
  }
  throw { code: -32601, message: 'method not found' }
}

for await (const line of createInterface({ input: process.stdin })) {
  const m = JSON.parse(line)
  if (m.result && asked.has(m.id)) asked.get(m.id)(m.result)
  if (!m.method || m.id === undefined) continue
  answer(m).then(
    (result) => send({ id: m.id, result: script.modern ? { resultType: 'complete', ...result, _meta: { ...result._meta, ...identity } } : result }),
    (error) => send({ id: m.id, error }),
  )
}
