package cli

import (
	"strings"

	"mcpwire/internal/printable"
)

// shellWord writes a text of others so that a shell, which it may be pasted into, takes it for one word and nothing else.
func shellWord(s string) string {
	s = printable.Line(s)
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,~"
	if s != "" && s[0] != '~' && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
