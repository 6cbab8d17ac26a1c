package show

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonwire"
)

// An eventSet is a set of event numbers by capture, as bitmaps.
type eventSet map[string]map[uint64]uint64

func (s eventSet) add(id string, n uint64) {
	words := s[id]
	if words == nil {
		words = map[uint64]uint64{}
		s[id] = words
	}
	words[n/64] |= 1 << (n % 64)
}

func (s eventSet) has(id string, n uint64) bool { return s[id][n/64]&(1<<(n%64)) != 0 }

// maxInFull limits how many exchanges are shown in full at once.
const maxInFull = 1000

// A picker decides which events are printed.
type picker struct {
	all    bool
	events eventSet
	// rows are the exchanges shown in full, by capture and first event.
	rows  map[string]map[uint64]*trace.Row
	count int
	// seen is the number of exchanges looked at.
	seen int
	// last is the last event of the captures to read. Zero means the end of the captures.
	last uint64
}

// settleInterval is the number of rows between two checks whether the rest of a capture matters.
const settleInterval = 256

// pickEvents reads the captures and picks the events of the requested exchanges.
func pickEvents(ctx context.Context, s sources.Source, f *showFlags) (*picker, error) {
	p := &picker{events: eventSet{}, rows: map[string]map[uint64]*trace.Row{}}
	if f.number == "" && f.parsed == nil {
		p.all = true
		return p, nil
	}
	m := sources.NewWalkModel(ctx, f.parsed)
	last, mayStop := uint64(0), f.number != ""
	err := sources.Walk(ctx, s, m, func(r *trace.Row) error {
		if p.seen++; mayStop && r.N > f.to && p.seen%settleInterval == 0 && m.Settled(f.to) {
			if mayStop = s.HasOneHead(); mayStop {
				p.last = last
				return sources.ErrEnough
			}
		}
		if f.number != "" && (!r.HasEventIn(f.from, f.to) || f.capture != "" && f.capture != r.Capture.Letter()) || !f.parsed.MatchScanned(r, r.Hits) {
			return nil
		}
		p.count++
		for x := range r.All() {
			for _, n := range x.Events {
				p.events.add(r.Capture.ID, n)
				last = max(last, n)
			}
		}
		if f.number == "" || f.raw || f.json {
			return nil
		}
		if p.count > maxInFull {
			return exit.Usagef("show: -n %s selects more than %d exchanges: select fewer, or omit -n for a list", f.number, maxInFull)
		}
		first := r.N
		for _, n := range r.Events {
			first = min(first, n)
		}
		if p.rows[r.Capture.ID] == nil {
			p.rows[r.Capture.ID] = map[uint64]*trace.Row{}
		}
		p.rows[r.Capture.ID][first] = r
		return nil
	})
	if errors.Is(err, sources.ErrEnough) {
		err = nil
	}
	if err == nil && f.number != "" && p.count == 0 {
		err = exit.Fail(exit.Unexpected, "no_event", "the first column of mcpwire show has the numbers", fmt.Errorf("no event %s", f.number))
	}
	return p, err
}

// showEvents prints events one by one: raw, as JSON, a line each, or in full.
func showEvents(ctx context.Context, s sources.Source, f *showFlags) error {
	p, err := pickEvents(ctx, s, f)
	if err != nil {
		return err
	}
	l := newLister(s.Env, f.parsed)
	l.server, l.seen, l.count = len(s.Paths) > 1, p.seen, p.count
	l.noMatch(s.Env)
	v := &eventPrinter{lister: l, flags: f, picker: p}
	if l.server {
		v.letters = map[string]string{}
	}
	if file, ok := s.Env.Stdout.(*os.File); ok {
		v.terminal = kit.IsTerminal(file)
	}
	for e, err := range s.Events(ctx) {
		if err != nil {
			_ = l.w.Flush()
			return err
		}
		if e.Head != nil && l.began.IsZero() {
			l.began = e.Head.At
		}
		if _, known := v.letters[e.Capture]; l.server && !known {
			v.letters[e.Capture] = trace.CaptureLetter(len(v.letters))
		}
		if p.last != 0 && e.N > p.last {
			break
		}
		if e.Kind == capture.KindHead || e.Kind == capture.KindTail || !p.all && !p.events.has(e.Capture, e.N) {
			continue
		}
		if err := v.print(e); err != nil {
			return err
		}
	}
	return l.w.Flush()
}

type eventPrinter struct {
	*lister
	flags  *showFlags
	picker *picker
	// letters has the letters of each capture: see [trace.Capture.Letter]. It is nil if there is
	// one capture.
	letters  map[string]string
	terminal bool
}

func (v *eventPrinter) print(e *capture.Event) error {
	switch {
	case v.flags.raw:
		return v.raw(e)
	case v.flags.frames:
		return v.frame(e)
	case v.flags.json:
		return v.message(e)
	}
	return v.full(e)
}

// raw prints the exact bytes of a payload, escaped if the output is a terminal.
func (v *eventPrinter) raw(e *capture.Event) error {
	if len(e.Data) == 0 {
		return nil
	}
	if v.terminal {
		_, err := v.w.WriteString(trace.Escape(string(e.Data)) + "\n")
		return err
	}
	if _, err := v.w.Write(e.Data); err != nil {
		return err
	}
	return v.w.WriteByte('\n')
}

// message prints a message on one line. It omits payloads that are not messages.
func (v *eventPrinter) message(e *capture.Event) error {
	if e.Kind != capture.KindMessage || jsonwire.Valid(e.Data, 0) != nil {
		return nil
	}
	out := jsonwire.AppendCompact(make([]byte, 0, len(e.Data)), e.Data)
	if v.terminal {
		out = []byte(trace.Escape(string(out)))
	}
	_, err := v.w.Write(append(out, '\n'))
	return err
}

// arrow returns the sign for a direction.
func arrow(d capture.Dir) string {
	switch d {
	case capture.ToServer:
		return "→"
	case capture.ToClient:
		return "←"
	}
	return "·"
}

// frame prints an event on one line.
func (v *eventPrinter) frame(e *capture.Event) error {
	head := fmt.Sprintf("%6s %9.3f ", v.letters[e.Capture]+strconv.FormatUint(e.N, 10), e.At.Sub(v.began).Seconds())
	name := fmt.Sprintf("%s %-5s", arrow(e.Dir), trace.Escape(string(e.Kind)))
	if e.Exchange > 0 {
		name += fmt.Sprintf(" x%d", e.Exchange)
	}
	rest := " " + eventText(e)
	if v.width > 0 {
		rest = trace.Truncate(rest, max(1, v.width-len(head)-trace.Width(name)))
	}
	_, err := io.WriteString(v.w, v.paint.In(kit.Dim, head)+v.paint.In(eventStyle(e), name)+rest+"\n")
	return err
}

func eventStyle(e *capture.Event) string {
	switch {
	case e.Kind == capture.KindInvalid || e.Kind == capture.KindGap:
		return kit.Yellow
	case e.Dir == capture.ToServer:
		return kit.Cyan
	case e.Dir == capture.ToClient:
		return kit.Green
	}
	return kit.Dim
}

// maxFrameText limits the bytes of a payload on the line of a frame.
const maxFrameText = 200

// eventText describes an event on one line.
func eventText(e *capture.Event) string {
	var parts []string
	size := e.Len
	if size == 0 {
		size = int64(len(e.Data))
	}
	switch {
	case e.Request != nil:
		parts = append(parts, e.Request.Method, e.Request.URL, e.Request.Proto)
	case e.Response != nil:
		parts = append(parts, fmt.Sprint(e.Response.Status), e.Response.Proto)
	case e.Exit != nil:
		parts = append(parts, fmt.Sprint("code ", e.Exit.Code), e.Exit.Signal)
	case e.Start != nil:
		parts = append(parts, e.Start.Command...)
	case e.Gap != nil:
		parts = append(parts, fmt.Sprint(e.Gap.Lost, " events missing: ", e.Gap.Why))
	case e.Translation != nil:
		parts = append(parts, fmt.Sprint(e.Translation.Of, " became ", e.Translation.To), e.Translation.Rule)
	}
	if e.SSE != nil {
		parts = append(parts, sseFields(e.SSE))
	}
	if size > 0 {
		parts = append(parts, trace.FormatSize(size), string(e.Data[:min(len(e.Data), maxFrameText)]))
	}
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, trace.Escape(p))
		}
	}
	return strings.Join(list, " ")
}

func sseFields(s *capture.SSE) string {
	var list []string
	if s.Event != "" {
		list = append(list, "event: "+s.Event)
	}
	if s.HasID {
		list = append(list, "id: "+s.ID)
	}
	if s.HasRetry {
		list = append(list, fmt.Sprint("retry: ", s.Retry.Milliseconds()))
	}
	if s.HasComment {
		list = append(list, ": "+s.Comment)
	}
	return strings.Join(list, ", ")
}

// full prints an event with all its fields.
func (v *eventPrinter) full(e *capture.Event) error {
	if r := v.picker.rows[e.Capture][e.N]; r != nil {
		v.title(r)
	}
	what := map[capture.Kind]string{
		capture.KindMessage: "message", capture.KindInvalid: "not a message", capture.KindStderr: "standard error", capture.KindRequest: "HTTP request",
		capture.KindResponse: "HTTP response", capture.KindSSE: "stream event", capture.KindEnd: "end of the exchange", capture.KindEOF: "end of the stream",
	}[e.Kind]
	if what == "" {
		what = string(e.Kind)
	}
	fmt.Fprintf(v.w, "%s\n", v.paint.In(kit.Bold, fmt.Sprintf("%s event %s%d, %.6f s, %s", arrow(e.Dir), v.letters[e.Capture], e.N, e.At.Sub(v.began).Seconds(), eventHead(e, trace.Escape(what)))))
	if e.SSE != nil {
		if fields := sseFields(e.SSE); fields != "" {
			fmt.Fprintf(v.w, "  %s\n", trace.Escape(fields))
		}
	}
	v.headers(e)
	if len(e.Redacted) > 0 {
		fmt.Fprintf(v.w, "  %s\n", v.paint.In(kit.Dim, "hidden: "+trace.Escape(strings.Join(e.Redacted, ", "))))
	}
	if len(e.Data) > 0 {
		v.payload(e)
	}
	_, err := v.w.WriteString("\n")
	return err
}

// eventHead describes an event except its payload.
func eventHead(e *capture.Event, what string) string {
	parts := []string{what}
	if len(e.Data) > 0 || e.Len > 0 {
		parts = append(parts, fmt.Sprint(max(e.Len, int64(len(e.Data))), " bytes"))
	}
	if e.Framing != "" {
		parts = append(parts, "framed by "+trace.Escape(string(e.Framing)))
	}
	if e.Why != "" {
		parts = append(parts, trace.Escape(string(e.Why)))
	}
	if e.Cut {
		parts = append(parts, "cut")
	}
	if e.Exchange > 0 {
		parts = append(parts, fmt.Sprint("HTTP exchange ", e.Exchange))
	}
	if e.Request != nil || e.Response != nil || e.Exit != nil || e.Start != nil || e.Gap != nil || e.Translation != nil {
		parts = append(parts, eventText(&capture.Event{Request: e.Request, Response: e.Response, Exit: e.Exit, Start: e.Start, Gap: e.Gap, Translation: e.Translation}))
	}
	return strings.Join(parts, ", ")
}

// title prints a summary of an exchange.
func (v *eventPrinter) title(r *trace.Row) {
	fmt.Fprintf(v.w, "%s\n", v.paint.In(rowStyle(r), fmt.Sprintf("%s #%d %s", trace.Glyph(r), r.N, trace.Summary(r))))
	facts := []string{r.At.UTC().Format("2006-01-02T15:04:05.000000Z"), "server " + r.Capture.Name, r.Capture.Transport}
	if n := r.Session.Number; n > 0 {
		facts = append(facts, fmt.Sprint("session ", n))
	}
	if r.Kind == trace.Request {
		facts = append(facts, strings.TrimSpace(r.Era()+" "+r.EffectiveRevision()), "id "+r.ID)
	}
	var list []string
	for _, f := range facts {
		if f != "" {
			list = append(list, trace.Escape(f))
		}
	}
	fmt.Fprintf(v.w, "  %s\n", v.paint.In(kit.Dim, strings.Join(list, ", ")))
	for x := range r.All() {
		for _, l := range x.Findings {
			fmt.Fprintf(v.w, "  %s\n", v.paint.In(kit.Yellow, trace.Escape(fmt.Sprintf("▲ %s (%s) event %d %s: %s", l.Rule, l.Severity, l.Event, l.Pointer, l.Message))))
		}
	}
	fmt.Fprintln(v.w)
}

func (v *eventPrinter) headers(e *capture.Event) {
	var list []capture.Header
	switch {
	case e.Request != nil:
		list = e.Request.Headers
	case e.Response != nil:
		list = e.Response.Headers
	}
	for _, h := range list {
		fmt.Fprintf(v.w, "  %s %s\n", v.paint.In(kit.Cyan, trace.Escape(h.Name)+":"), trace.Escape(h.Value))
	}
}

const (
	// maxPretty limits the bytes of a payload that are shown.
	maxPretty = 1 << 20
	// maxPrettyDepth limits the levels that are indented.
	maxPrettyDepth = 64
)

// payload prints a payload for people: JSON indented, anything else line by line.
func (v *eventPrinter) payload(e *capture.Event) {
	data := e.Data[:min(len(e.Data), maxPretty)]
	var pretty bytes.Buffer
	if len(data) == len(e.Data) && jsonwire.Valid(data, maxPrettyDepth) == nil && json.Indent(&pretty, data, "", "  ") == nil {
		data = pretty.Bytes()
	}
	lines := bufio.NewReader(bytes.NewReader(data))
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			fmt.Fprintf(v.w, "  %s\n", trace.Escape(strings.TrimSuffix(line, "\n")))
		}
		if err != nil {
			break
		}
	}
	if len(e.Data) > maxPretty {
		fmt.Fprintf(v.w, "  %s\n", v.paint.In(kit.Dim, fmt.Sprintf("… and %d bytes more; --raw prints them all", len(e.Data)-maxPretty)))
	}
}
