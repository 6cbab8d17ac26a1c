package schema

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
)

const (
	maxQuoted = 60 // bytes of a value quoted in a message
	maxListed = 20 // alternatives listed in a message
)

// gotAt describes the value at text[at] for a message: its type and, if it is a
// scalar, how it starts.
func gotAt(text []byte, at int) string {
	c := cursor{b: text, i: at}
	switch ch := c.space(); ch {
	case 0:
		return "nothing"
	case '"':
		raw, _ := c.str()
		return "string " + quoteRaw(raw)
	case '{':
		return "object"
	case '[':
		return "array"
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean " + string(c.value())
	default:
		return "number " + clipText(c.number())
	}
}

// expected is the message for a value that is not of the type wanted.
func expected(want string, text []byte, at int) string {
	return "expected " + want + ", got " + gotAt(text, at)
}

// unknownProperty names the allowed ones, since the one sent is most often a
// misspelling.
func unknownProperty(raw []byte, allowed []string) string {
	if len(allowed) == 0 {
		return "unknown property " + quoteRaw(raw) + "; no properties are allowed here"
	}
	return "unknown property " + quoteRaw(raw) + "; allowed: " + listNames(allowed)
}

func duplicateProperty(raw []byte) string { return "duplicate property " + quoteRaw(raw) }

func missingProperty(name string) string {
	return "missing required property " + quoteClipped(name)
}

func tooDeep(limit int) string { return fmt.Sprintf("nested more than %d levels deep", limit) }

// atLeast and atMost count things in messages.
func atLeast(n int, what string, got int) string {
	return fmt.Sprintf("expected at least %s, got %d", plural(n, what), got)
}

func atMost(n int, what string, got int) string {
	return fmt.Sprintf("expected at most %s, got %d", plural(n, what), got)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "property"); ok {
		return fmt.Sprintf("%d %sproperties", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func listNames(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i == maxListed {
			fmt.Fprintf(&b, ", ... (%d in all)", len(names))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteClipped(name))
	}
	return b.String()
}

// listTexts is listNames for texts that are JSON already.
func listTexts(texts []string) string {
	var b strings.Builder
	for i, t := range texts {
		if i == maxListed {
			fmt.Fprintf(&b, ", ... (%d in all)", len(texts))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clipText([]byte(t)))
	}
	return b.String()
}

// quoteClipped quotes s, cut if it is long.
func quoteClipped(s string) string {
	if len(s) <= maxQuoted {
		return string(jsonwire.AppendQuote(nil, s))
	}
	return string(jsonwire.AppendQuote(nil, clipString(s)+"…"))
}

// quoteRaw quotes the content of a JSON string, cut if it is long.
func quoteRaw(raw []byte) string {
	cut := clipRaw(raw, maxQuoted)
	s := jsonwire.UnquoteString(cut)
	if len(cut) < len(raw) {
		s += "…"
	}
	return string(jsonwire.AppendQuote(nil, s))
}

// clipText cuts a text that needs no quotes.
func clipText(b []byte) string {
	if len(b) <= maxQuoted {
		return string(b)
	}
	return clipString(string(b[:min(len(b), maxQuoted+utf8.UTFMax)])) + "…"
}

// clipString cuts s to at most maxQuoted bytes, between characters.
func clipString(s string) string {
	n := min(maxQuoted, len(s))
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// clipRaw cuts the content of a JSON string to about n bytes, but not inside a
// character, an escape or a pair of surrogates.
func clipRaw(raw []byte, n int) []byte {
	i := 0
	for i < n && i < len(raw) {
		switch {
		case raw[i] != '\\':
			i++
		case i+1 < len(raw) && raw[i+1] != 'u':
			i += 2
		case i+7 < len(raw) && raw[i+2]|0x20 == 'd' && raw[i+3] >= '8' && raw[i+6] == '\\' && raw[i+7] == 'u':
			i += 12
		default:
			i += 6
		}
	}
	for i < len(raw) && !utf8.RuneStart(raw[i]) {
		i++
	}
	return raw[:min(i, len(raw))]
}

// clipError cuts the text of an error that other code made, which may quote
// its whole input.
func clipError(err error) string {
	const most = 200
	s := err.Error()
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
