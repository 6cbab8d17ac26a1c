package shape

import (
	"bytes"
	"math"
	"strconv"

	"mcpwire/internal/jsonwire"
)

// format checks the text of a string. Of a URI it asks for a scheme and for no spaces and control characters, since who reads it has no use for the
// rest of RFC 3986's grammar; of base64 (RFC 4648) for the standard alphabet and its padding, since decoders refuse others.
func (c *checker) format(text []byte, format string, at *path, typ string) {
	if format != "uri" && format != "byte" {
		return
	}
	raw := text[1 : len(text)-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = jsonwire.AppendUnquote(nil, raw)
	}
	switch {
	case format == "uri" && !isURI(raw):
		c.report(at, BadFormat, typ, c.subject(at)+c.verb(at)+quote(string(raw[:min(len(raw), 2*maxToken)]))+", and must be a URI: a scheme, a colon, and no spaces")
	case format == "byte" && !isBase64(raw):
		c.report(at, BadFormat, typ, c.subject(at)+" must be base64 in the standard alphabet, with padding")
	}
}

func isURI(s []byte) bool {
	for i, b := range s {
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		switch {
		case b == ':' && i > 0:
			return bytes.IndexFunc(s[i:], func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
		case letter, i > 0 && (b >= '0' && b <= '9' || b == '+' || b == '-' || b == '.'):
		default:
			return false
		}
	}
	return false
}

func isBase64(s []byte) bool {
	n, padding := 0, 0
	for _, b := range s {
		switch {
		case b == '\n' || b == '\r': // line breaks are left out by all decoders of note
			continue
		case b == '=':
			padding++
		case padding > 0:
			return false
		case b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || b == '+' || b == '/':
		default:
			return false
		}
		n++
	}
	return n%4 == 0 && padding <= 2
}

// isInteger reports whether a JSON number has no fraction: 1, 1.0 and 1e3 have none (JSON Schema, https://json-schema.org/draft/2020-12/json-schema-core#section-4.2.3).
func isInteger(text []byte) bool {
	if !bytes.ContainsAny(text, ".eE") {
		return true
	}
	mantissa, exponent, _ := bytes.Cut(bytes.ToLower(text), []byte("e"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	shift := 0
	if len(exponent) > 0 {
		n, err := strconv.Atoi(string(exponent))
		if err != nil { // beyond all reason
			n = math.MaxInt32
			if exponent[0] == '-' {
				n = -n
			}
		}
		shift = max(min(n, math.MaxInt32), -math.MaxInt32)
	}
	digits := append(bytes.TrimLeft(bytes.TrimPrefix(whole, []byte("-")), "0"), fraction...)
	shift -= len(fraction)
	significant := bytes.TrimRight(digits, "0")
	if len(bytes.TrimLeft(significant, "0")) == 0 {
		return true
	}
	return shift+len(digits)-len(significant) >= 0
}
