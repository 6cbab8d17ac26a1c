package tui

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"mcpwire/internal/text/printable"
)

// A span is a text in a style. The text is safe: it has no control characters and no line breaks.
type span struct {
	style style
	text  string
}

// A line is what stands on one line of the screen, or is wrapped onto several.
type line []span

// maxText is how many bytes of one text of a peer are looked at for a line: more is on no screen.
const maxText = 4096

// safe returns text of peers as it may be shown on one line.
func safe(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return printable.Line(s)
}

// safeLong is safe for text that was limited before.
func safeLong(s string) string { return printable.Line(s) }

// ascii reports whether each byte of a safe text is one column.
func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// width returns how many columns a safe text takes.
func width(s string) int {
	if ascii(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// cut returns the beginning of a safe text that fits into so many columns, with "…" at its end if that is not all.
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

// pad returns a safe text in exactly so many columns, its end cut or filled.
func pad(s string, n int) string {
	s = cut(s, n)
	return s + spaces(n-width(s))
}

// padLeft is pad for numbers: they stand at the right.
func padLeft(s string, n int) string {
	s = cut(s, n)
	return spaces(n-width(s)) + s
}

func spaces(n int) string { return strings.Repeat(" ", max(0, n)) }

// text returns the text of a line.
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

func (l line) width() (n int) {
	for _, s := range l {
		n += width(s.text)
	}
	return n
}

// cut returns a line that takes so many columns at most, with "…" at its end if that is not all.
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

// appendTo appends a line as the terminal gets it, in exactly so many columns. Base is below the styles of the spans; if alone is set, instead of them.
func (l line) appendTo(b *strings.Builder, columns int, base style, alone bool) {
	if n := l.width(); n > columns {
		l = l.cut(columns)
	}
	left := columns
	for _, s := range l {
		st := base.plus(s.style)
		if alone {
			st = base
		}
		writeStyled(b, st, s.text)
		left -= width(s.text)
	}
	writeStyled(b, base, spaces(left))
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

// splitColumns splits a safe text so that its first part has so many columns at most. A character that is wider than that stays in the second.
func splitColumns(s string, columns int) (head, rest string) {
	i, n := 0, 0
	for i < len(s) && n < columns {
		if s[i] < 0x80 && (i+1 == len(s) || s[i+1] < 0x80) { // what follows could combine with it otherwise
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

// breakAtWord moves the place at which a text is broken in front of the word that it is in, if that is short.
func breakAtWord(head, rest string) (string, string) {
	if rest[0] == ' ' {
		return head, rest[1:]
	}
	if i := strings.LastIndexByte(head, ' '); i > 0 && len(head)-i < 24 && strings.TrimLeft(head[:i], " ") != "" {
		return head[:i+1], head[i+1:] + rest
	}
	return head, rest
}

// wrap breaks a line into lines of so many columns. Those after the first are indented, by a third of the columns at most.
func (l line) wrap(columns, indent int) []line {
	columns = max(columns, 2)
	indent = min(indent, columns/3)
	var out []line
	var current line
	left := columns
	for _, s := range l {
		for text := s.text; text != ""; {
			head, rest := splitColumns(text, left)
			if head == "" && left == columns { // it fits nowhere
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

// A style is parameters of the SGR escape sequence; "" is the terminal's own.
type style string

// plus returns a style with another one on top of it.
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

// A theme is the styles that everything on the screen is drawn in.
type theme struct {
	text              style // of what matters
	dim               style // of what is beside it
	rule              style // lines between parts of the screen
	request           style // → and what goes well
	response          style // ←
	serverRequest     style // ⇠ of the server's
	failure           style // ✖
	toolFail          style // !
	notification      style // •
	stderr            style // ~ of the process
	finding           style // ▲
	pending           style // …
	mark              style
	bar               style // of the waterfall
	waiting           style // the part of a bar in which a human or the client was waited for
	title             style // the first line
	head              style // the heads of columns
	selected          style // the line of the cursor
	selectedBlurred   style // the line of the cursor, when the keys are elsewhere
	tab               style // the tab that is open
	match             style // what a search found
	key               style // keys in the help, names of members in JSON
	str               style // strings in JSON
	number            style
	invalid           style // the filter bar with a mistake
	added             style // what was added, in a difference
	selectedOverrides bool  // the style of the cursor's line replaces all others on it
}

// Colors says how many colours a terminal has.
type Colors uint8

// The numbers of colours that make a difference.
const (
	Colors256 Colors = iota // 256 or more
	Colors16                // those of the palette
	NoColor
)

// newTheme returns the theme for a terminal with a dark or a light background.
func newTheme(c Colors, dark bool) *theme {
	switch {
	case c == Colors16:
		return theme16()
	case c == NoColor:
		return themeMono()
	case dark:
		return theme256(palette{text: "252", dim: "245", rule: "239", blue: "75", green: "114", cyan: "80", red: "203", orange: "215", violet: "146", amber: "221",
			sel: "237", unsel: "235", back: "236"})
	}
	return theme256(palette{text: "235", dim: "243", rule: "250", blue: "25", green: "28", cyan: "30", red: "160", orange: "130", violet: "97", amber: "94",
		sel: "253", unsel: "255", back: "254"})
}

// themeMono uses what terminals without colour have.
func themeMono() *theme {
	return &theme{dim: faint, rule: faint, title: bold, head: underline, selected: reverse, selectedBlurred: bold, tab: reverse, match: reverse, invalid: reverse, selectedOverrides: true, mark: bold,
		waiting: faint, stderr: faint, failure: bold, toolFail: bold, finding: bold}
}

// theme16 uses the colours that every palette has. Yellow is not for text on a light background in most of them, so it stands for signs and short words only.
func theme16() *theme {
	t := themeMono()
	t.request, t.response, t.serverRequest, t.failure, t.toolFail, t.notification = "34", "32", "36", "31", "33", "35"
	t.finding, t.pending, t.mark, t.bar, t.key, t.str, t.number = "33", "36", "35;1", "34", "34", "32", "35"
	t.invalid, t.added, t.match = "41;37", "32", reverse
	return t
}

// A palette is the numbers of colours in the table of 256.
type palette struct {
	text, dim, rule, blue, green, cyan, red, orange, violet, amber string
	sel, unsel, back                                               string
}

func theme256(p palette) *theme {
	fg := func(c string) style { return style("38;5;" + c) }
	bg := func(c string) style { return style("48;5;" + c) }
	return &theme{
		text: fg(p.text), dim: fg(p.dim), rule: fg(p.rule), request: fg(p.blue), response: fg(p.green), serverRequest: fg(p.cyan), failure: fg(p.red), toolFail: fg(p.orange),
		notification: fg(p.violet), stderr: fg(p.dim), finding: fg(p.amber), pending: fg(p.cyan), mark: fg(p.orange).plus(bold), bar: fg(p.blue), waiting: fg(p.rule),
		title: fg(p.text).plus(bg(p.back)), head: fg(p.dim).plus(bold), selected: bg(p.sel), selectedBlurred: bg(p.unsel), tab: fg(p.text).plus(bg(p.sel)).plus(bold),
		match: reverse, key: fg(p.blue), str: fg(p.green), number: fg(p.violet), invalid: style("48;5;160;38;5;231"), added: fg(p.green),
	}
}
