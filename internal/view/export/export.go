package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/text/printable"
)

// Events are those of one capture, or of several that were merged.
type Events = iter.Seq2[*capture.Event, error]

// Options are the options of exports. nil means defaults.
type Options struct {
	// Tool is who exports, such as "mcpwire"; Version is its version.
	Tool, Version string
	// MaxBody is how much of the body of an HTTP message, or of an event stream, is held and exported, in bytes; 0 is DefaultMaxBody.
	MaxBody int
}

// DefaultMaxBody is the limit on bodies of an export that is not told another.
const DefaultMaxBody = 16 << 20

// maxOpenRoundTrips is how many HTTP exchanges are held that have not ended. The oldest is exported as it is when there are more.
const maxOpenRoundTrips = 4096

// maxBufferedBytes is how many bytes of them are held, about. The oldest is exported as it is when there are more.
const maxBufferedBytes = 256 << 20

// maxStreamEvents is how many events of one stream are held and exported.
const maxStreamEvents = 1 << 18

// ErrNoHTTP is the error of an export that is about HTTP, of a capture that has none.
var ErrNoHTTP = errors.New("there is no HTTP in the capture")

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.MaxBody <= 0 {
		d.MaxBody = DefaultMaxBody
	}
	if d.Tool == "" {
		d.Tool = "mcpwire"
	}
	return d
}

// Omitted is what was left out, because the format has no place for it.
type Omitted struct {
	Events uint64 // of kinds that the format does not know
	Cut    uint64 // bodies of which only the beginning is there
}

// Text writes a capture for people to read, and for mail and issues: a line for each event with its number, its time and its direction, and the payload behind it. What would not be
// visible is written as an escape.
func Text(w io.Writer, events Events, _ *Options) (Omitted, error) {
	bw := bufio.NewWriterSize(w, 64<<10)
	var omitted Omitted
	for e, err := range events {
		if err != nil {
			return omitted, err
		}
		if _, err := bw.Write(appendText(nil, e)); err != nil {
			return omitted, err
		}
	}
	return omitted, bw.Flush()
}

func appendText(b []byte, e *capture.Event) []byte {
	if h := e.Head; h != nil {
		return fmt.Appendf(b, "capture %s of %s (%s), by %s, begun %s\n", clippedLine(h.ID), clippedLine(h.Name), clippedLine(h.Transport), clippedLine(h.Tool), h.At.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if e.Kind == capture.KindTail {
		return b
	}
	sign := strings.TrimSpace(directionArrow(e.Dir))
	switch {
	case e.Kind == capture.KindStderr:
		sign = "~"
	case sign == "":
		sign = "·"
	}
	b = fmt.Appendf(b, "%6d %10.6f %s %-4s ", e.N, e.T.Seconds(), sign, e.Kind)
	if e.Session != 0 {
		b = fmt.Appendf(b, "s%d ", e.Session)
	}
	if e.Exchange != 0 {
		b = fmt.Appendf(b, "x%d ", e.Exchange)
	}
	b = append(b, eventText(e)...)
	return append(b, '\n')
}

func eventText(e *capture.Event) string {
	switch e.Kind {
	case capture.KindStart:
		if s := e.Start; s != nil {
			return fmt.Sprintf("pid %d: %s", s.PID, quoteArgs(s.Command))
		}
	case capture.KindExit:
		if x := e.Exit; x != nil && x.Signal != "" {
			return "signal " + clippedLine(x.Signal)
		} else if x != nil {
			return "code " + strconv.Itoa(x.Code)
		}
	case capture.KindRequest:
		return headText(fmt.Sprint(e.Request.Method, " ", e.Request.URL, " ", e.Request.Proto), e.Request.Headers)
	case capture.KindResponse:
		return headText(fmt.Sprint(e.Response.Proto, " ", e.Response.Status), e.Response.Headers)
	case capture.KindSSE:
		return printableLine(strings.ReplaceAll(strings.TrimRight(string(appendSSE(nil, e.SSE, e.Data)), "\n"), "\n", " ⏎ "))
	case capture.KindGap:
		return fmt.Sprintf("%d events are missing (%s)", e.Gap.Lost, clippedLine(e.Gap.Why))
	case capture.KindTranslate:
		return fmt.Sprintf("#%d became %v: %s", e.Translation.Of, e.Translation.To, clippedLine(e.Translation.Rule))
	}
	text := printableLine(string(e.Data))
	if e.Cut {
		text += fmt.Sprintf(" … (%d bytes in all)", e.Len)
	}
	return text
}

func headText(first string, headers []capture.Header) string {
	var b strings.Builder
	b.WriteString(printableLine(first))
	for _, h := range headers {
		b.WriteString("\n" + strings.Repeat(" ", 25) + printableLine(h.Name+": "+h.Value))
	}
	return b.String()
}

// clippedLine returns a text of the capture's in which nothing is invisible.
func clippedLine(s string) string { return printableLine(clip(s, 1<<10)) }

func quoteArgs(list []string) string {
	var all []string
	for _, s := range list {
		if q := printableLine(s); q != s || strings.ContainsAny(s, " '\"\\") || s == "" {
			s = strconv.Quote(s)
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

// printableLine returns a text on one line, with escapes for what would not be seen.
func printableLine(s string) string { return printable.Line(s) }
