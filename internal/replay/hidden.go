package replay

import (
	"strings"

	"mcpwire/internal/resend"
)

// MatchesRedacted reports whether parts of the first text were hidden in a capture, and it can be the second
// otherwise.
func MatchesRedacted(redacted, text string) bool {
	return resend.Placeholders(redacted) != nil && matches(redacted, text)
}

// matches reports whether a text can be the one that the other was before parts of it were hidden.
func matches(recorded, live string) bool {
	places := resend.Placeholders(recorded)
	if places == nil {
		return recorded == live
	}
	from := 0
	for i, p := range places {
		literal := recorded[from:p[0]]
		j := strings.Index(live, literal)
		if j < 0 || i == 0 && j > 0 {
			return false
		}
		live = live[j+len(literal):]
		from = p[1]
	}
	rest := recorded[from:]
	return strings.HasSuffix(live, rest)
}
