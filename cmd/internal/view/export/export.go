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
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// Events is the sequence of events of one capture, or of several merged captures.
type Events = iter.Seq2[*capture.Event, error]

// Options configures an export. A nil *Options means the defaults.
type Options struct {
	// Tool is the exporting tool, such as "mcpwire". Version is its version.
	Tool, Version string
	// MaxBody limits the body of an HTTP message or event stream that is exported, in bytes. Zero
	// means DefaultMaxBody.
	MaxBody int
}

// DefaultMaxBody is the default of Options.MaxBody.
const DefaultMaxBody = 16 << 20

// maxOpenRoundTrips limits the HTTP round trips kept in memory before they end. Above it, the
// oldest is exported incomplete.
const maxOpenRoundTrips = 4096

// maxBufferedBytes is the approximate limit of their bytes. Above it, the oldest is exported
// incomplete.
const maxBufferedBytes = 256 << 20

// maxStreamEvents limits the events of one stream.
const maxStreamEvents = 1 << 18

// ErrNoHTTP is the error of an HTTP export for a capture without HTTP.
var ErrNoHTTP = errors.New("the capture has no HTTP traffic")

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

// Omitted counts what was left out because the format cannot represent it.
type Omitted struct {
	// Events counts the events of unknown kinds.
	Events uint64
	// Cut counts the bodies of which only the beginning was exported.
	Cut uint64
}

// Text writes a capture for people, mail and issues: a line for each event with its number, time
// and direction, followed by the payload. Invisible characters are escaped.
func Text(w io.Writer, events Events, _ *Options) (Omitted, error) {
	bw := bufio.NewWriterSize(w, 64<<10)
	var omitted Omitted
	for e, err := range events {
		if err == nil {
			_, err = bw.Write(appendText(nil, e))
		}
		if err != nil {
			return omitted, err
		}
	}
	return omitted, bw.Flush()
}

func appendText(b []byte, e *capture.Event) []byte {
	if h := e.Head; h != nil {
		return fmt.Appendf(b, "capture %s of %s (%s), by %s, begun %s\n", clippedLine(h.ID), clippedLine(h.Name), clippedLine(string(h.Transport)), clippedLine(h.Tool), h.At.UTC().Format("2006-01-02T15:04:05.000Z"))
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
		return printable.Line(strings.ReplaceAll(strings.TrimRight(string(appendSSE(nil, e.SSE, e.Data)), "\n"), "\n", " ⏎ "))
	case capture.KindGap:
		return fmt.Sprintf("%d events are missing (%s)", e.Gap.Lost, clippedLine(string(e.Gap.Why)))
	case capture.KindTranslate:
		return fmt.Sprintf("#%d became %v: %s", e.Translation.Of, e.Translation.To, clippedLine(e.Translation.Rule))
	}
	text := printable.Line(string(e.Data))
	if e.Cut {
		text += fmt.Sprintf(" … (%d bytes in all)", e.Len)
	}
	return text
}

func headText(first string, headers []capture.Header) string {
	var b strings.Builder
	b.WriteString(printable.Line(first))
	for _, h := range headers {
		b.WriteString("\n" + strings.Repeat(" ", 25) + printable.Line(h.Name+": "+h.Value))
	}
	return b.String()
}

// clippedLine returns the beginning of a text on one line, with invisible characters escaped.
func clippedLine(s string) string { return printable.Line(clip.String(s, 1<<10)) }

func quoteArgs(list []string) string {
	var all []string
	for _, s := range list {
		if q := printable.Line(s); q != s || strings.ContainsAny(s, " '\"\\") || s == "" {
			s = strconv.Quote(s)
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}
