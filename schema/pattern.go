package schema

import "strings"

// goPattern rewrites the escapes of ECMA-262 that Go's regular expressions
// spell differently: \uXXXX. Everything else is the same for what schemas use,
// or fails to compile, as look-ahead does.
func goPattern(source string) string {
	if !strings.Contains(source, `\u`) {
		return source
	}
	var b strings.Builder
	for i := 0; i < len(source); {
		if source[i] != '\\' || i+1 == len(source) {
			b.WriteByte(source[i])
			i++
			continue
		}
		if hex := source[i+2 : min(i+6, len(source))]; source[i+1] == 'u' && len(hex) == 4 {
			b.WriteString(`\x{` + hex + `}`)
			i += 6
			continue
		}
		b.WriteString(source[i : i+2])
		i += 2
	}
	return b.String()
}
