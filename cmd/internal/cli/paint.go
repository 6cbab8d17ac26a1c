package cli

// A paint colors text for a terminal, or leaves it unchanged if it is false.
type paint bool

// The styles, as parameters of the SGR escape sequence.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p paint) in(style, text string) string {
	if !p || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
