package resend

import "bufio"

// A Frame is what Frames returns.
type Frame struct{ Text, Framing, Prefix string }

// Frames splits a stream.
func Frames(r *bufio.Reader, most int) []Frame {
	f := frameReader{r: r, max: most}
	var list []Frame
	for {
		got, err := f.next()
		if err == nil || len(got.text) > 0 {
			list = append(list, Frame{string(got.text), string(got.framing), got.prefix})
		}
		if err != nil {
			return list
		}
	}
}

// FreshID is freshID.
var FreshID = freshID
