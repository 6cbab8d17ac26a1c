package bridge

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/jsonwire"
)

// jitter takes a random part of up to a half off, so that many do not start in step.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// maxClip is how many bytes of a peer's text are shown.
const maxClip = 120

// clip returns the beginning of a peer's text for the log, without anything that a terminal would act on.
func clip(b []byte) string {
	more := ""
	if len(b) > maxClip {
		b, more = b[:maxClip], "…"
	}
	return strconv.QuoteToASCII(string(b)) + more
}

// maxTail is how much of a server's last words an error holds, in bytes.
const maxTail = 4 << 10

// exitData is the data of an error that says how a server's process ended. signal may be nil, tail is what it wrote last.
func exitData(code int, signal os.Signal, tail string) []byte {
	b := append([]byte(nil), `{"exitCode":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	if signal != nil {
		b = append(b, `,"signal":`...)
		b = jsonwire.AppendQuote(b, signal.String())
	}
	if tail != "" {
		if len(tail) > maxTail {
			tail = tail[len(tail)-maxTail:]
			tail = tail[strings.IndexByte(tail, '\n')+1:]
		}
		b = append(b, `,"stderr":`...)
		b = jsonwire.AppendQuote(b, strings.ToValidUTF8(tail, "\uFFFD"))
	}
	return append(b, '}')
}
