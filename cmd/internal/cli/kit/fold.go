package kit

import (
	"strings"
	"unicode/utf8"
)

// A piece is a part of a line with one style.
type piece struct{ text, style string }

// dims returns a dim style for text that is the same in every message. color may be empty.
func dims(color string) string { return strings.TrimSuffix(Dim+";"+color, ";") }

// jsonUnits splits a line into styled units that should not be broken across lines. Names and
// punctuation are dim, values are not, and id and method, which identify a message, are bold. The
// line need not be JSON.
func jsonUnits(line, color string) [][]piece {
	var units [][]piece
	var unit []piece
	depth, name := 0, ""
	for line != "" {
		n := tokenLen(line)
		token, rest := line[:n], line[n:]
		style := dims(color)
		switch isName := strings.HasPrefix(rest, ":"); {
		case isName:
			name, token, rest = token, token+":", rest[1:]
		case strings.Contains("{[", token):
			depth++
		case strings.Contains("}]", token):
			depth--
		case token == ",", depth == 1 && name == `"jsonrpc"`:
		case depth == 1 && (name == `"id"` || name == `"method"`):
			style = Bold + ";" + color
		default:
			style = color
		}
		unit = append(unit, piece{token, style})
		if strings.Contains("{[,", token) {
			units, unit = append(units, unit), nil
		}
		line = rest
	}
	return append(units, unit)
}

// tokenLen returns the length of the JSON token at the start of s. s must not be empty.
func tokenLen(s string) int {
	const punctuation = "{}[],:"
	if strings.IndexByte(punctuation, s[0]) >= 0 {
		return 1
	}
	if s[0] != '"' {
		if n := strings.IndexAny(s, punctuation+`"`); n > 0 {
			return n
		}
		return len(s)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// A Folder breaks a line for a terminal. Continuation lines are indented.
type Folder struct {
	paint         Paint
	width, indent int

	b   strings.Builder
	col int
	// same is not yet in b: more text of the same style may follow.
	same piece
}

// NewFolder returns a Folder for a line that starts at column col.
func NewFolder(p Paint, width, col, indent int) *Folder {
	return &Folder{paint: p, width: width, indent: indent, col: col}
}

// unit adds pieces and keeps them on one line if they fit.
func (f *Folder) unit(pieces []piece) {
	size := 0
	for _, p := range pieces {
		size += utf8.RuneCountInString(p.text)
	}
	if size <= f.width-f.indent && f.col+size > f.width {
		f.newline()
	}
	for _, p := range pieces {
		f.Words(p.text, p.style)
	}
}

// Words adds text that may be broken after spaces, and anywhere in a word longer than a line.
func (f *Folder) Words(text, style string) {
	for word := range strings.SplitAfterSeq(text, " ") {
		size := utf8.RuneCountInString(strings.TrimSuffix(word, " "))
		if f.col+size > f.width && f.col > f.indent {
			f.newline()
		}
		for _, r := range word {
			switch {
			case f.col < f.width:
			case r == ' ':
				// The margin replaces the space.
				continue
			default:
				f.newline()
			}
			f.add(r, style)
		}
	}
}

func (f *Folder) add(r rune, style string) {
	if style != f.same.style {
		f.flush()
		f.same.style = style
	}
	f.same.text += string(r)
	f.col++
}

func (f *Folder) newline() {
	f.same.text = strings.TrimRight(f.same.text, " ")
	f.flush()
	f.b.WriteString("\n" + strings.Repeat(" ", f.indent))
	f.col = f.indent
}

func (f *Folder) flush() {
	f.b.WriteString(f.paint.In(f.same.style, f.same.text))
	f.same.text = ""
}

// String returns the lines without the indent of the first.
func (f *Folder) String() string {
	f.flush()
	return f.b.String()
}
