package uritemplate

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// expand is what RFC 6570, section 3 says of templates, the other way round, for strings and lists with a star.
func expand(t *Template, values vars) string {
	var b strings.Builder
	for _, p := range t.components {
		if p.vars == nil {
			b.WriteString(p.literal)
			continue
		}
		first, sep := "", ","
		switch p.op {
		case '#':
			first = "#"
		case '.', '/', ';':
			first, sep = string(p.op), string(p.op)
		case '?', '&':
			first, sep = string(p.op), "&"
		}
		for _, v := range p.vars {
			for _, value := range values[v.name] {
				b.WriteString(first)
				first = sep
				b.WriteString(expandValue(p.op, v, value))
			}
		}
	}
	return b.String()
}

func expandValue(op byte, v variable, value string) string {
	text := ""
	if strings.IndexByte(";?&", op) >= 0 {
		if text = v.name; value != "" || op != ';' {
			text += "="
		}
	}
	n := 0
	for _, r := range value {
		if n++; v.maxLen > 0 && n > v.maxLen {
			break
		}
		c := string(r)
		switch {
		case r < utf8.RuneSelf && isAlphanumeric(byte(r)) || strings.Contains("-._~", c):
			text += c
		case (op == '+' || op == '#') && strings.Contains(":/?#[]@!$&'()*+,;=", c):
			text += c
		default:
			for i := range len(c) {
				text += fmt.Sprintf("%%%02X", c[i])
			}
		}
	}
	return text
}
