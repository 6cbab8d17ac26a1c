package tui

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// A span is a text in a style. The text is safe: it has no control characters and no line breaks.
type span struct {
	style style
	text  string
}

// A line is a line of text before wrapping.
type line []span

// maxText limits the bytes of a peer's text in a line. No screen shows more.
const maxText = 4096

// safe escapes text of a peer for one line.
func safe(s string) string {
	return printable.Line(clip.String(s, maxText))
}

// safeLong is like safe for text with a limited length.
func safeLong(s string) string { return printable.Line(s) }

// textLines returns the lines of a text, made safe.
func textLines(st style, text string) (out []line) {
	for l := range strings.Lines(text) {
		out = append(out, line{{st, safeLong(strings.TrimSuffix(l, "\n"))}})
	}
	return out
}

// ascii reports whether each byte of a safe text takes one column.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// width returns the number of columns of a safe text.
func width(s string) int {
	if ascii(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// cut cuts a safe text to n columns and marks a cut with "…".
func cut(s string, n int) string {
	switch {
	case n <= 0:
		return ""
	case ascii(s):
		if len(s) <= n {
			return s
		}
		return s[:n-1] + "…"
	}
	return ansi.Truncate(s, n, "…")
}

// pad cuts or fills a safe text to exactly n columns.
func pad(s string, n int) string {
	s = cut(s, n)
	return s + spaces(n-width(s))
}

// padLeft is like pad, but aligns the text at the right.
func padLeft(s string, n int) string {
	s = cut(s, n)
	return spaces(n-width(s)) + s
}

func spaces(n int) string { return strings.Repeat(" ", max(0, n)) }

func (l line) text() string {
	if len(l) == 1 {
		return l[0].text
	}
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return b.String()
}

func (l line) plain() line {
	out := slices.Clone(l)
	for i := range out {
		out[i].style = ""
	}
	return out
}

func (l line) width() (n int) {
	for _, s := range l {
		n += width(s.text)
	}
	return n
}

// cut cuts a line to a number of columns and marks a cut with "…".
func (l line) cut(columns int) line {
	var out line
	left := columns
	for i, s := range l {
		w := width(s.text)
		if w < left || w == left && l[i+1:].width() == 0 {
			out, left = append(out, s), left-w
			continue
		}
		if s.text = ansi.Truncate(s.text, left-1, ""); left > 0 {
			out = append(out, span{s.style, s.text + "…"})
			left -= width(s.text) + 1
		}
		break
	}
	if left > 0 && len(out) > 0 {
		out = append(out, span{"", spaces(left)})
	}
	return out
}

// draw returns a line with escape sequences, in exactly the given number of columns.
func (l line) draw(columns int) string { return l.drawOver("", columns) }

// drawOver is like draw with a style below those of the spans.
func (l line) drawOver(base style, columns int) string {
	if n := l.width(); n > columns {
		l = l.cut(columns)
	}
	var b strings.Builder
	left := columns
	for _, s := range l {
		writeStyled(&b, base.plus(s.style), s.text)
		left -= width(s.text)
	}
	writeStyled(&b, base, spaces(left))
	return b.String()
}

func writeStyled(b *strings.Builder, s style, text string) {
	switch {
	case text == "":
	case s == "":
		b.WriteString(text)
	default:
		b.WriteString("\x1b[")
		b.WriteString(string(s))
		b.WriteString("m")
		b.WriteString(text)
		b.WriteString("\x1b[m")
	}
}

// splitColumns splits a safe text so that head takes at most the given columns. A character that
// does not fit goes to rest.
func splitColumns(s string, columns int) (head, rest string) {
	i, n := 0, 0
	for i < len(s) && n < columns {
		// The next character could combine with this one.
		if s[i] < 0x80 && (i+1 == len(s) || s[i+1] < 0x80) {
			i, n = i+1, n+1
			continue
		}
		cluster, w := ansi.FirstGraphemeCluster(s[i:], ansi.GraphemeWidth)
		if n+w > columns || cluster == "" {
			break
		}
		i, n = i+len(cluster), n+w
	}
	return s[:i], s[i:]
}

// breakAtWord moves a line break to the beginning of the current word, if the word is short.
func breakAtWord(head, rest string) (string, string) {
	if rest[0] == ' ' {
		return head, rest[1:]
	}
	if i := strings.LastIndexByte(head, ' '); i > 0 && len(head)-i < 24 && strings.TrimLeft(head[:i], " ") != "" {
		return head[:i+1], head[i+1:] + rest
	}
	return head, rest
}

// wrap wraps a line at a number of columns. Further lines are indented by at most a third of the
// columns.
func (l line) wrap(columns, indent int) []line {
	columns = max(columns, 2)
	indent = min(indent, columns/3)
	var out []line
	var current line
	left := columns
	for _, s := range l {
		for text := s.text; text != ""; {
			head, rest := splitColumns(text, left)
			if head == "" && left == columns { // it fits on no line
				_, size := utf8.DecodeRuneInString(text)
				head, rest = "?", text[size:]
			}
			if rest != "" {
				head, rest = breakAtWord(head, rest)
			}
			if head != "" {
				current = append(current, span{s.style, head})
				left -= width(head)
			}
			if text = rest; text != "" {
				out = append(out, current)
				current, left = line{{"", spaces(indent)}}, columns-indent
				if indent == 0 {
					current = nil
				}
			}
		}
	}
	return append(out, current)
}

// A style is the parameters of an SGR escape sequence. Empty means the terminal's default.
type style string

// plus returns a style with t on top of s.
func (s style) plus(t style) style {
	if s == "" || t == "" {
		return s + t
	}
	return s + ";" + t
}

const (
	bold      style = "1"
	faint     style = "2"
	underline style = "4"
	reverse   style = "7"
)

// A theme has the styles of the screen.
type theme struct {
	// text is the style of important text.
	text style
	// dim is the style of less important text.
	dim style
	// rule is the style of lines between parts of the screen.
	rule style
	// request is the style of → and of success.
	request style
	// response is the style of ←.
	response style
	// serverRequest is the style of ⇠, a request of the server.
	serverRequest style
	// failure is the style of ✖.
	failure style
	// toolFail is the style of !.
	toolFail style
	// notification is the style of •.
	notification style
	// stderr is the style of ~.
	stderr style
	// finding is the style of ▲.
	finding style
	// pending is the style of ….
	pending style
	mark    style
	// bar is the style of the waterfall.
	bar style
	// waiting is the style of a bar while the server waits for the client.
	waiting style
	// title is the style of the first line.
	title style
	// head is the style of column heads.
	head style
	// selected is the style of the cursor's line.
	selected style
	// selectedBlurred is the style of the cursor's line when another part has the focus.
	selectedBlurred style
	// tab is the style of the open tab.
	tab style
	// match is the style of search results.
	match style
	// key is the style of keys in the help and of member names in JSON.
	key style
	// str is the style of strings in JSON.
	str    style
	number style
	// invalid is the style of a filter bar with an error.
	invalid style
	// servers are the styles of servers' names, by [trace.Session.ServerIndex]. Without any, names
	// are dim.
	servers []style
	// added is the style of additions in a comparison.
	added style
	// selectedOverrides makes selected replace all other styles of its line.
	selectedOverrides bool
}

// Colors is the color support of a terminal.
type Colors uint8

// The levels of color support.
const (
	Colors256 Colors = iota // 256 or more
	Colors16                // the palette
	NoColor
)

// newTheme returns the theme for a dark or light background.
func newTheme(c Colors, dark bool) *theme {
	switch {
	case c == Colors16:
		return theme16()
	case c == NoColor:
		return themeMono()
	case dark:
		return theme256(palette{text: "252", dim: "245", rule: "239", blue: "75", green: "114", cyan: "80", red: "203", orange: "215", violet: "146", amber: "221",
			sel: "237", unsel: "235", back: "236", servers: []string{"75", "215", "114", "177", "80", "222", "211", "150"}})
	}
	return theme256(palette{text: "235", dim: "243", rule: "250", blue: "25", green: "28", cyan: "30", red: "160", orange: "130", violet: "97", amber: "94",
		sel: "253", unsel: "255", back: "254", servers: []string{"25", "130", "28", "91", "30", "94", "125", "64"}})
}

// themeMono returns a theme without colors.
func themeMono() *theme {
	return &theme{dim: faint, rule: faint, title: bold, head: underline, selected: reverse, selectedBlurred: bold, tab: reverse, match: reverse, invalid: reverse, selectedOverrides: true, mark: bold,
		waiting: faint, stderr: faint, failure: bold, toolFail: bold, finding: bold}
}

// theme16 returns a theme of palette colors. Yellow is hard to read on a light background, so only
// symbols and short words use it.
func theme16() *theme {
	t := themeMono()
	t.request, t.response, t.serverRequest, t.failure, t.toolFail, t.notification = "34", "32", "36", "31", "33", "35"
	t.finding, t.pending, t.mark, t.bar, t.key, t.str, t.number = "33", "36", "35;1", "34", "34", "32", "35"
	t.invalid, t.added, t.match = "41;37", "32", reverse
	t.servers = []style{"34", "35", "36", "32"}
	return t
}

// A palette has color numbers of the 256-color table.
type palette struct {
	text, dim, rule, blue, green, cyan, red, orange, violet, amber string
	sel, unsel, back                                               string
	servers                                                        []string
}

func theme256(p palette) *theme {
	fg := func(c string) style { return style("38;5;" + c) }
	bg := func(c string) style { return style("48;5;" + c) }
	var servers []style
	for _, c := range p.servers {
		servers = append(servers, fg(c))
	}
	return &theme{
		servers: servers,
		text:    fg(p.text), dim: fg(p.dim), rule: fg(p.rule), request: fg(p.blue), response: fg(p.green), serverRequest: fg(p.cyan), failure: fg(p.red), toolFail: fg(p.orange),
		notification: fg(p.violet), stderr: fg(p.dim), finding: fg(p.amber), pending: fg(p.cyan), mark: fg(p.orange).plus(bold), bar: fg(p.blue), waiting: fg(p.rule),
		title: fg(p.text).plus(bg(p.back)), head: fg(p.dim).plus(bold), selected: bg(p.sel), selectedBlurred: bg(p.unsel), tab: fg(p.text).plus(bg(p.sel)).plus(bold),
		match: reverse, key: fg(p.blue), str: fg(p.green), number: fg(p.violet), invalid: style("48;5;160;38;5;231"), added: fg(p.green),
	}
}
