package detail

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
	"mcpwire/jsonrpc"
)

// A Source returns events with their payloads, as watch.Hub does.
type Source interface {
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
}

// Options configures [Build]. A nil *Options means the defaults.
type Options struct {
	// MaxShown limits the bytes shown of a payload. Zero means 256 KiB; the maximum is 16 MiB.
	MaxShown int
	// Hex adds hex dumps to RawEvent.Hex.
	Hex bool
}

// A Detail has everything to show about a row, with a section for each tab. Sections that do not
// apply are nil.
type Detail struct {
	Seq     uint64     `json:"seq"`
	Capture string     `json:"capture"`
	N       uint64     `json:"n"`
	Kind    trace.Kind `json:"kind"`
	Glyph   string     `json:"glyph"`
	// Title is the method or kind and the target, on one line.
	Title string `json:"title"`

	Summary Summary `json:"summary"`
	// Asked is the content of the request. For other kinds of rows it is that of their payload.
	Asked *Content `json:"asked,omitempty"`
	// Returned is the content of the newest response.
	Returned *Content `json:"returned,omitempty"`
	// Request is the request. For other kinds of rows it is their payload.
	Request *Payload `json:"request,omitempty"`
	// Response is the response, or that of the first of several rounds.
	Response *Payload `json:"response,omitempty"`
	// Last is the response of the last round, or of the last poll of the task that the request
	// became.
	Last     *Payload `json:"last,omitempty"`
	Rounds   []Round  `json:"rounds,omitempty"`
	Children []Child  `json:"inside,omitempty"`
	// OmittedChildren counts children that are not in Children.
	OmittedChildren int           `json:"gone,omitempty"`
	Raw             []RawEvent    `json:"raw,omitempty"`
	HTTP            *HTTP         `json:"http,omitempty"`
	SSE             *SSE          `json:"sse,omitempty"`
	Timing          Timing        `json:"timing"`
	Findings        []Finding     `json:"findings,omitempty"`
	Translations    []Translation `json:"translated,omitempty"`
	// Counterparts are the rows on a bridge's other side that this row was translated from or to.
	Counterparts []Counterpart     `json:"others,omitempty"`
	Session      trace.SessionInfo `json:"session"`
	// Redacted counts the redacted places in the events of the row.
	Redacted int `json:"redacted,omitempty"`
	// Missing are the events that could not be read again.
	Missing []Missing `json:"missing,omitempty"`
	// Events are the row's own events, in the order of the capture.
	Events []EventLine `json:"frames,omitempty"`

	snapshot *Snapshot
	// start is the start of the session's process.
	start       *capture.Start
	requestHead *capture.Request
	// request is the whole message. It is nil if it is too long for a command.
	request []byte
	// body is the whole body of the HTTP request. It is nil if it is too long for a command.
	body              []byte
	method            string
	redactedInRequest int
	// noCommand says why CallCommand fails. Empty means that it can succeed.
	noCommand string
}

// A Missing is an event that could not be read again.
type Missing struct {
	N   uint64 `json:"n"`
	Why string `json:"why"`
}

// A Summary describes in words what happened.
type Summary struct {
	Sentences []string `json:"words"`
	Facts     []Fact   `json:"facts"`
}

// A Fact is a name and a value, for a table.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Event is the number of the event that the fact comes from. Zero means none to link to.
	Event uint64 `json:"event,omitempty"`
}

// A Timing says how long each part took. Milliseconds count from the beginning of the row.
type Timing struct {
	At time.Time `json:"at"`
	// WallMS is the total time. If Open is set, it is the time so far.
	WallMS   float64 `json:"wallMs"`
	ServerMS float64 `json:"serverMs"`
	// ClientMS is how long the server waited for the client.
	ClientMS float64 `json:"clientMs"`
	Open     bool    `json:"open,omitempty"`
	// Segments are in the order of their beginnings.
	Segments []Segment `json:"segments,omitempty"`
	// Marks are the newest events during the row.
	Marks []Mark `json:"marks,omitempty"`
}

// A Segment is a part of the waterfall.
type Segment struct {
	Kind   trace.SegmentKind `json:"kind"`
	Label  string            `json:"label"`
	FromMS float64           `json:"fromMs"`
	ToMS   float64           `json:"toMs"`
	// Open reports whether the segment has not ended.
	Open bool `json:"open,omitempty"`
}

// A Mark is an event at a point in time.
type Mark struct {
	MS    float64 `json:"ms"`
	N     uint64  `json:"n"`
	Label string  `json:"label"`
}

// A Finding is a finding with the texts of its rule.
type Finding struct {
	trace.Finding
	// Title describes the violation in general.
	Title string `json:"title,omitempty"`
	// Why says why it matters.
	Why string `json:"why,omitempty"`
	// Fix says how to fix it.
	Fix string `json:"fix,omitempty"`
}

const (
	defaultMaxShown = 256 << 10
	maxCauseBody    = 16 << 10  // bytes of a body that may say why a handshake failed
	maxShown        = 16 << 20  // upper limit of Options.MaxShown
	maxArgument     = 100 << 10 // bytes of a message; systems limit an argument to 128 KiB
)

// Build builds the detail of a row and reads its payloads from src. opts may be nil. The error is
// that of ctx.
func Build(ctx context.Context, src Source, r *Snapshot, opts *Options) (*Detail, error) {
	w := &builder{src: src, snapshot: r, detail: &Detail{
		Seq: r.Seq, Capture: r.Record.Capture, N: r.Record.N, Kind: r.Record.Kind, Glyph: r.glyph, Title: title(r), Rounds: r.Rounds, Children: r.Children, OmittedChildren: r.OmittedChildren,
		Session: safeSession(r.Session), snapshot: r,
	}}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.MaxShown <= 0 {
		w.opts.MaxShown = defaultMaxShown
	}
	w.opts.MaxShown = min(w.opts.MaxShown, maxShown)
	w.rawBytesLeft = 2 * w.opts.MaxShown
	w.addFindings()
	w.addTiming()
	for _, n := range w.ownEvents() {
		if err := w.addEvent(ctx, n); err != nil {
			return nil, err
		}
	}
	for _, step := range []func(context.Context) error{w.addLast, w.addStream, w.addTranslations, w.addStart} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	w.detail.Counterparts = w.snapshot.Counterparts
	w.compareHeaders()
	w.detail.Summary = Summary{Sentences: w.sentences(), Facts: w.facts()}
	return w.detail, nil
}

// A builder builds a Detail.
type builder struct {
	src      Source
	snapshot *Snapshot
	opts     Options
	detail   *Detail
	// rawBytesLeft is how many bytes Detail.Raw may still show.
	rawBytesLeft int
	params       []byte
	startEvent   *capture.Event
	// response is the head of the HTTP response, and body is the beginning of a body that is not a
	// message.
	response *capture.Response
	body     string
	// wantPointers requests the pointers of payload lines.
	wantPointers bool
}

// readEvent reads an event again. If it cannot be read, readEvent records that and returns nil.
// The error is that of ctx.
func (b *builder) readEvent(ctx context.Context, n uint64) (*capture.Event, error) {
	e, err := b.src.Event(ctx, b.snapshot.Record.Capture, n)
	if cerr := ctx.Err(); cerr != nil {
		return nil, cerr
	}
	if err == nil && e == nil {
		err = errors.New("not found")
	}
	if err != nil {
		if !slices.ContainsFunc(b.detail.Missing, func(m Missing) bool { return m.N == n }) {
			b.detail.Missing = append(b.detail.Missing, Missing{n, printable.Line(err.Error())})
		}
		return nil, nil
	}
	return e, nil
}

func (b *builder) ownEvents() []uint64 {
	list := slices.Clone(b.snapshot.Record.Events)
	list = append(list, b.snapshot.Record.N, b.snapshot.responseN)
	if h := b.snapshot.HTTP; h != nil {
		list = append(list, h.RequestN, h.ResponseN, h.EndN)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(n uint64) bool { return n == 0 })
}

func (b *builder) addEvent(ctx context.Context, n uint64) error {
	e, err := b.readEvent(ctx, n)
	if e == nil {
		return err
	}
	b.addRawEvent(e)
	b.detail.Redacted += len(e.Redacted) + e.RedactedMore
	switch e.Kind {
	case capture.KindRequest:
		b.addHTTPRequest(e)
	case capture.KindResponse:
		b.addHTTPResponse(e)
	case capture.KindBody:
		if e.Dir == capture.ToClient && b.body == "" {
			b.body = string(e.Data[:min(len(e.Data), maxCauseBody)])
		}
		b.addBody(e)
	case capture.KindStart:
		b.startEvent = e.Clone()
	default:
		b.addMessage(e)
	}
	return nil
}

// addMessage adds an event that is not about HTTP.
func (b *builder) addMessage(e *capture.Event) {
	isRequest := b.snapshot.Record.Kind == trace.Request
	switch {
	case e.N == b.snapshot.responseN && isRequest:
		data, partial := b.batchEntry(e, false)
		b.detail.Response = b.payload(e, data, partial)
		b.detail.Returned = newContent("response", b.detail.Response, data, b.snapshot.Record.Method)
	case b.snapshot.Record.Kind == trace.Response && e.N == b.snapshot.Record.N:
		b.detail.Response = b.payload(e, e.Data, false)
		b.detail.Returned = newContent("response", b.detail.Response, e.Data, "")
	case e.N == b.snapshot.Record.N && (len(e.Data) > 0 || e.Kind == capture.KindMessage):
		data, partial := b.batchEntry(e, true)
		b.detail.Request = b.payload(e, data, partial)
		b.detail.Asked = newContent("request", b.detail.Request, data, b.snapshot.Record.Method)
		b.keepForCommand(e, data)
	case b.snapshot.Record.Kind == trace.HTTP && e.Kind == capture.KindMessage && b.detail.Response == nil && e.Dir == capture.ToClient:
		b.detail.Response = b.payload(e, e.Data, false)
	}
}

// keepForCommand keeps the data for commands.
func (b *builder) keepForCommand(e *capture.Event, data []byte) {
	d := b.detail
	d.redactedInRequest = len(e.Redacted) + e.RedactedMore
	switch {
	case e.Dir != capture.ToServer:
		d.noCommand = "the server sent it"
		return
	case e.Cut:
		d.noCommand = "only its beginning was recorded"
	case len(data) > maxArgument:
		d.noCommand = "it is too long for a command line: save its payload, and send the file (mcpwire send TARGET @FILE)"
	case e.Kind != capture.KindMessage || jsonwire.Valid(data, 0) != nil:
		d.noCommand = "it is not a message"
	default:
		d.request = bytes.Clone(data)
	}
	if len(e.Data) <= maxArgument && !e.Cut {
		d.body = bytes.Clone(e.Data)
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(data, &m, 0) == nil {
		d.method, b.params = string(m.Method), bytes.Clone(m.Params[:min(len(m.Params), maxArgument)])
		if len(m.Params) > maxArgument {
			b.params = nil
		}
	}
}

// batchEntry returns the row's message in a batch and true, or the whole data and false.
func (b *builder) batchEntry(e *capture.Event, request bool) ([]byte, bool) {
	first := bytes.TrimLeft(e.Data, " \t\r\n")
	if e.Kind != capture.KindMessage || len(first) == 0 || first[0] != '[' || jsonwire.Valid(e.Data, 0) != nil {
		return e.Data, false
	}
	for el := jsonwire.ArrayElements(e.Data); el.Next(); {
		var m jsonrpc.Message
		if jsonrpc.Parse(el.Value(), &m, 0) != nil {
			continue
		}
		if isRequest := m.Method != nil; isRequest == request && (!request || string(m.Method) == b.snapshot.Record.Method) && string(m.ID) == b.snapshot.Record.ID {
			return el.Value(), true
		}
	}
	return e.Data, false
}

// addBody adds a body that is not a message.
func (b *builder) addBody(e *capture.Event) {
	switch {
	case e.Dir == capture.ToServer && b.detail.Request == nil:
		b.detail.Request = b.payload(e, e.Data, false)
		if len(e.Data) <= maxArgument && !e.Cut && e.Part == 0 && e.Encoding == "" {
			b.detail.body = bytes.Clone(e.Data)
		}
	case e.Dir == capture.ToClient && b.detail.Response == nil && b.snapshot.responseN == 0:
		b.detail.Response = b.payload(e, e.Data, false)
	}
}

// addLast adds the response of the last round, or of the last poll of a task.
func (b *builder) addLast(ctx context.Context) error {
	n := b.snapshot.lastN
	if n == 0 || n == b.snapshot.responseN {
		return nil
	}
	e, err := b.readEvent(ctx, n)
	if e != nil {
		b.detail.Last = b.payload(e, e.Data, false)
		if c := newContent("last", b.detail.Last, e.Data, b.snapshot.Record.Method); c != nil {
			b.detail.Returned = c
		}
	}
	return err
}

// addFindings adds the findings with the texts of their rules.
func (b *builder) addFindings() {
	for _, l := range b.snapshot.Record.Findings {
		f := Finding{Finding: l}
		for _, s := range []*string{&f.Rule, &f.Severity, &f.Message, &f.Pointer, &f.URL} {
			*s = printable.Line(*s)
		}
		if rule, ok := check.Lookup(l.Rule); ok {
			f.Title, f.Why, f.Fix = rule.Title, rule.Why, rule.Fix
			if f.URL == "" {
				f.URL = rule.URL
			}
		}
		b.detail.Findings = append(b.detail.Findings, f)
	}
}

func (b *builder) addStart(ctx context.Context) error {
	e := b.startEvent
	if n := b.snapshot.startN; e == nil && n != 0 && b.detail.noCommand != "the server sent it" {
		var err error
		if e, err = b.readEvent(ctx, n); e == nil {
			return err
		}
	}
	if e != nil && e.Start != nil {
		b.detail.start = e.Clone().Start
	}
	return nil
}

const (
	maxSegments = 400
	maxMarks    = 300
)

// addTiming adds the waterfall.
func (b *builder) addTiming() {
	r := b.snapshot
	t := Timing{At: r.Record.At, WallMS: trace.Millis(r.Wall), ServerMS: trace.Millis(r.ServerTime), ClientMS: trace.Millis(r.ClientTime)}
	for i, s := range r.Segments {
		if i == maxSegments {
			break
		}
		t.Segments = append(t.Segments, Segment{Kind: s.Kind, Label: segmentLabel(s.Kind, r), FromMS: trace.Millis(s.From - r.T), ToMS: trace.Millis(s.To - r.T), Open: s.Open})
		t.Open = t.Open || s.Open
	}
	if r.Record.Role == trace.ServerRequest { // the client took the time
		t.ServerMS, t.ClientMS = 0, t.WallMS
	} else if t.Open && r.ServerTime == 0 && r.Record.Kind == trace.Request && !r.isStream {
		t.ServerMS = max(0, t.WallMS-t.ClientMS)
	}
	for _, c := range r.Children {
		if len(t.Marks) == maxMarks {
			break
		}
		t.Marks = append(t.Marks, Mark{MS: c.AtMS, N: c.N, Label: c.Summary})
	}
	b.detail.Timing = t
}

func segmentLabel(k trace.SegmentKind, r *Snapshot) string {
	switch k {
	case trace.SegmentClient:
		if len(r.Rounds) > 0 {
			return "the client collects the input"
		}
		if r.Record.Role == trace.ServerRequest {
			return "the client works"
		}
		return "the server waits for the client"
	case trace.SegmentTask:
		return "the task continues"
	case trace.SegmentStream:
		return "the stream is open"
	}
	return "the server works"
}
