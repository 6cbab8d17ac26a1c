package kit

// A Paint colors text for a terminal, or leaves it unchanged if it is false.
type Paint bool

// The styles, as parameters of the SGR escape sequence.
const (
	Bold   = "1"
	Dim    = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
)

// In returns text with a style.
func (p Paint) In(style, text string) string {
	if !p || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}
