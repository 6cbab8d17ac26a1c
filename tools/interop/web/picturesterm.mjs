// The terminal for the pictures: mcpwire watch in tmux, and its screen as a page.
import { execFileSync } from 'node:child_process'

const columns = 109 // with this width, the detail is below the table and the table has a waterfall
const lines = 42

// The two themes: background, text, and the sixteen colors of the palette.
const looks = {
  dark: { bg: '#15171c', fg: '#d8dce3', palette: ['#15171c', '#ff7b72', '#7bd594', '#e3b341', '#79b8ff', '#d2a8ff', '#66d3ea', '#d8dce3', '#8b949e', '#ff9089', '#9be9a8', '#f2cc60', '#a5d6ff', '#e2c5ff', '#8be9fd', '#ffffff'] },
  light: { bg: '#ffffff', fg: '#1a1d23', palette: ['#1a1d23', '#b0211a', '#17692f', '#765200', '#0a54c4', '#7a1f8c', '#00647a', '#6e7781', '#57606a', '#a40e26', '#1a7f37', '#633c01', '#0969da', '#8250df', '#1b7c83', '#24292f'] },
}

// A Terminal runs mcpwire watch.
export class Terminal {
  constructor(exe, env, look) {
    this.look = looks[look]
    this.socket = 'mcpwire-pictures-' + process.pid + '-' + look
    this.env = { ...env, TERM: 'xterm-256color', COLORTERM: 'truecolor' }
    this.tmux('-f', '/dev/null', 'new-session', '-d', '-x', String(columns), '-y', String(lines), 'sh')
    this.tmux('set', '-g', 'default-terminal', 'tmux-256color')
    this.tmux('set', '-g', 'status', 'off')
    this.tmux('set', '-ga', 'terminal-overrides', ',*:Tc')
    this.tmux('set', '-g', 'window-style', `bg=${this.look.bg},fg=${this.look.fg}`)
    this.tmux('respawn-window', '-k', exe + ' watch')
  }

  tmux(...args) {
    return execFileSync('tmux', ['-L', this.socket, ...args], { env: this.env, encoding: 'utf8' })
  }

  // press sends keys, as tmux names them.
  press(...keys) {
    this.tmux('send-keys', ...keys)
  }

  // page returns the screen as HTML.
  page() {
    return document(this.tmux('capture-pane', '-e', '-p', '-N'), this.look)
  }

  stop() {
    this.tmux('kill-server')
  }
}

function document(screen, look) {
  const body = screen.replace(/\n$/, '').split('\n').map((l) => line(l, look)).join('\n')
  return `<!doctype html><meta charset="utf-8"><style>
html, body { margin: 0; background: ${look.bg}; }
pre { display: inline-block; margin: 0; padding: 12px 14px; color: ${look.fg}; background: ${look.bg}; font: 14px/18px "DejaVu Sans Mono", monospace; }
span { display: inline-block; height: 18px; vertical-align: top; white-space: pre; }
i { display: inline-block; width: 1ch; font-style: normal; text-align: center; }
</style><pre>${body}</pre>`
}

// line returns a line with color sequences as HTML.
function line(text, look) {
  let style = {}
  let out = ''
  for (const [, codes, run] of text.matchAll(/(?:\x1b\[([\d;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.)?([^\x1b]*)/g)) {
    if (codes !== undefined) style = apply(style, codes, look)
    if (run) out += span(run, style, look)
  }
  return out
}

// apply returns the style after a sequence.
function apply(style, codes, look) {
  const s = { ...style }
  const list = codes.split(/[;:]/).map(Number)
  for (let i = 0; i < list.length; i++) {
    const c = list[i]
    if (c === 0) Object.keys(s).forEach((k) => delete s[k])
    else if (c === 1) s.bold = true
    else if (c === 2) s.faint = true
    else if (c === 3) s.italic = true
    else if (c === 4) s.underline = true
    else if (c === 7) s.reverse = true
    else if (c === 22) s.bold = s.faint = false
    else if (c === 23) s.italic = false
    else if (c === 24) s.underline = false
    else if (c === 27) s.reverse = false
    else if (c >= 30 && c <= 37) s.fg = look.palette[c - 30]
    else if (c >= 90 && c <= 97) s.fg = look.palette[c - 82]
    else if (c >= 40 && c <= 47) s.bg = look.palette[c - 40]
    else if (c >= 100 && c <= 107) s.bg = look.palette[c - 92]
    else if (c === 39) delete s.fg
    else if (c === 49) delete s.bg
    else if (c === 38 || c === 48) {
      const [color, used] = extended(list.slice(i + 1), look)
      s[c === 38 ? 'fg' : 'bg'] = color
      i += used
    }
  }
  return s
}

// extended returns an indexed or RGB color, and the number of codes that it has.
function extended([kind, a, b, c], look) {
  if (kind === 2) return [`rgb(${a},${b},${c})`, 4]
  if (a < 16) return [look.palette[a], 2]
  if (a >= 232) return [`rgb(${Array(3).fill(8 + 10 * (a - 232)).join()})`, 2]
  const step = (n) => (n ? 55 + 40 * n : 0)
  return [`rgb(${step(Math.floor((a - 16) / 36))},${step(Math.floor((a - 16) / 6) % 6)},${step((a - 16) % 6)})`, 2]
}

function span(run, s, look) {
  let [fg, bg] = [s.fg || look.fg, s.bg]
  if (s.reverse) [fg, bg] = [bg || look.bg, fg]
  const css = [`color:${fg}`, bg && `background:${bg}`, s.bold && 'font-weight:bold', s.faint && 'opacity:.65', s.italic && 'font-style:italic', s.underline && 'text-decoration:underline'].filter(Boolean).join(';')
  const escaped = run.replace(/[&<>]|[^\x00-\x7f]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[c] || `<i>${c}</i>`)
  return `<span style="${css}">${escaped}</span>`
}
