package connect

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/shellword"
	"mcpwire/cmd/internal/trace"
)

// A replayPrinter prints the results of replayed requests: the counts first, then each result. If
// there are very many, the counts come last.
type replayPrinter struct {
	e     *kit.Env
	json  bool
	paint kit.Paint
	// count is the number of sessions printed.
	count int
	// requests and results count the requests to replay and their results so far.
	requests, results int
	// status shows them. It may be nil.
	status *kit.StatusLine
	// buffered is the text of the results until the counts are known.
	buffered bytes.Buffer
	// overflowed reports that it became too long, and that results are printed at once.
	overflowed bool
	// err is the first write error.
	err error
}

// step shows which request is next.
func (p *replayPrinter) step() {
	if p.results < p.requests {
		p.status.Step("replaying request %d of %d", p.results+1, p.requests)
	}
}

// session prints the heading of a session.
func (p *replayPrinter) session(r *replay.Recording) {
	p.count++
	if !p.json {
		p.printf("session %d  %s\n", r.Session, safe.Line(r.Name))
	}
}

// maxBuffered limits replayPrinter.buffered, in bytes.
const maxBuffered = 1 << 20

func (p *replayPrinter) printf(format string, args ...any) {
	fmt.Fprintf(&p.buffered, format, args...)
	if p.overflowed = p.overflowed || p.buffered.Len() > maxBuffered; p.overflowed {
		p.flush()
	}
}

// flush prints the buffered text.
func (p *replayPrinter) flush() {
	p.status.Clear()
	if p.err == nil {
		_, p.err = p.buffered.WriteTo(p.e.Stdout)
	}
	p.buffered.Reset()
}

// result prints a result.
func (p *replayPrinter) result(r *replay.Result) {
	p.results++
	defer p.step()
	if p.json {
		if p.err == nil {
			p.err = kit.WriteJSON(p.e.Stdout, r)
		}
		return
	}
	sign, style := "✔", kit.Green
	switch {
	case !r.OK:
		sign, style = "✖", kit.Red
	case r.Status == replay.Skipped || r.Status == replay.Open:
		sign, style = "•", kit.Dim
	}
	var b strings.Builder
	b.WriteString(p.paint.In(style, sign) + " ")
	if r.Asked {
		b.WriteString("⇠ ")
	}
	b.WriteString(trace.Truncate(safe.Line(strings.TrimSpace(r.Method+" "+r.Target)), 100))
	if r.Live != nil {
		b.WriteString("  " + milliseconds(*r.Live))
		if r.Recorded != nil {
			b.WriteString(p.paint.In(kit.Dim, " (it was "+milliseconds(*r.Recorded)+")"))
		}
	}
	if r.N > 0 && !r.OK {
		b.WriteString(p.paint.In(kit.Dim, fmt.Sprintf("  event %d", r.N)))
	}
	b.WriteString("\n")
	if r.Why != "" {
		fmt.Fprintf(&b, "    %s\n", safe.Line(r.Why))
	}
	for _, pointer := range r.Redacted {
		fmt.Fprintf(&b, "    %s  (--set %s)\n", safe.Line(pointer), shellword.Word(pointer+"=TEXT"))
	}
	for _, d := range r.Differences {
		p.difference(&b, d)
	}
	p.printf("%s", b.String())
}

func (p *replayPrinter) difference(b *strings.Builder, d replay.Difference) {
	// The words are those of diff.
	why := "changed"
	switch d.Op {
	case "add":
		why = "added"
	case "remove":
		why = "removed"
	case "more":
		why = "more differences exist"
	case "notifications":
		why = "other notifications"
	case "answer":
		why = "it fails now"
		if d.Pointer != "/error" {
			why = "it no longer fails"
		}
	}
	if d.Name != "" && d.Op != "more" {
		why = trace.Truncate(safe.Line(d.Name), 80) + ": " + why
	}
	if d.Note {
		why = "note: " + why
	}
	if d.Op == "add" || d.Op == "remove" || d.Op == "replace" {
		why += "  " + p.paint.In(kit.Dim, safe.Line(d.Pointer))
	}
	fmt.Fprintf(b, "    %s\n", why)
	old, now := jsondiff.TrimCommonPrefix(d.Old, d.New)
	for _, x := range []struct{ sign, text string }{{"-", old}, {"+", now}} {
		if x.text != "" {
			fmt.Fprintf(b, "      %s %s\n", x.sign, trace.Truncate(safe.Line(x.text), 160))
		}
	}
}

func milliseconds(ms float64) string {
	return trace.FormatDuration(time.Duration(ms * float64(time.Millisecond)))
}

// summary prints the counts.
func (p *replayPrinter) summary(s *replay.Summary) {
	if p.json {
		return
	}
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{
		{s.Same, "the same"},
		{s.Different, "different"},
		{s.Open, "without a response to compare with"},
		{s.Skipped, "skipped"},
		{s.Redacted, "hidden"},
		{s.Timeout, "no response in time"},
		{s.Lost, "lost"},
		{s.Unsent, "not sent"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing to send"}
	}
	text := strings.Join(parts, ", ") + "\n"
	if s.Stray > 0 {
		text += fmt.Sprintf("%d messages of the server were not expected or not valid\n", s.Stray)
	}
	switch details := p.buffered.String(); {
	case p.overflowed:
		text = "\n" + text
	case details != "":
		p.buffered.Reset()
		text += "\n" + details
	}
	p.buffered.WriteString(text)
	p.flush()
}
