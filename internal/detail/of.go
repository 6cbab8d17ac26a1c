package detail

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
	"mcpwire/internal/wireview"
	"mcpwire/jsonrpc"
)

const (
	defaultMaxShown = 256 << 10
	maxShown        = 16 << 20  // whatever the options say
	maxArgument     = 100 << 10 // bytes of a message in a command: systems take 128 KiB for an argument
)

// Build works out the detail of a row, reading its payloads from src. opts may be nil. The error is that of ctx.
func Build(ctx context.Context, src Source, r *Snapshot, opts *Options) (*Detail, error) {
	w := &builder{src: src, snapshot: r, detail: &Detail{
		Seq: r.Seq, Capture: r.Record.Capture, N: r.Record.N, Kind: r.Record.Kind, Glyph: glyph(r), Title: title(r), Rounds: r.Rounds, Children: r.Children, OmittedChildren: r.OmittedChildren,
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
	w.detail.url = w.opts.URL
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
	w.addSummary()
	return w.detail, nil
}

// A work is a Detail that is being worked out.
type builder struct {
	src          Source
	snapshot     *Snapshot
	opts         Options
	detail       *Detail
	rawBytesLeft int // bytes that Detail.RawEvent may still show
	params       []byte
	startEvent   *capture.Event
	wantPointers bool // the lines of payloads are wanted with their places
}

// readEvent reads an event again. It is nil if it is missing, and then that is noted. The error is that of ctx.
func (b *builder) readEvent(ctx context.Context, n uint64) (*capture.Event, error) {
	e, err := b.src.Event(ctx, b.snapshot.Record.Capture, n)
	if cerr := ctx.Err(); cerr != nil {
		return nil, cerr
	}
	if err == nil && e == nil {
		err = errors.New("it is not there")
	}
	if err != nil {
		if !slices.ContainsFunc(b.detail.Missing, func(m Missing) bool { return m.N == n }) {
			b.detail.Missing = append(b.detail.Missing, Missing{n, printable.Line(err.Error())})
		}
		return nil, nil
	}
	return e, nil
}

// ownEvents are the numbers of the row's own events, in their order.
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

// addEvent takes one of the row's own events.
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
		b.addBody(e)
	case capture.KindStart:
		b.startEvent = e.Clone()
	default:
		b.addMessage(e)
	}
	return nil
}

// addMessage takes an event that is not about HTTP.
func (b *builder) addMessage(e *capture.Event) {
	isRequest := b.snapshot.Record.Kind == trace.Request
	switch {
	case e.N == b.snapshot.responseN && isRequest:
		data, partial := b.batchEntry(e, false)
		b.detail.Response = b.payload(e, data, partial)
	case b.snapshot.Record.Kind == trace.Response && e.N == b.snapshot.Record.N:
		b.detail.Response = b.payload(e, e.Data, false)
	case e.N == b.snapshot.Record.N && (len(e.Data) > 0 || e.Kind == capture.KindMessage):
		data, partial := b.batchEntry(e, true)
		b.detail.Request = b.payload(e, data, partial)
		b.keepForCommand(e, data, partial)
	case b.snapshot.Record.Kind == trace.HTTP && e.Kind == capture.KindMessage && b.detail.Response == nil && e.Dir == capture.ToClient:
		b.detail.Response = b.payload(e, e.Data, false)
	}
}

// keepForCommand keeps what commands are made of.
func (b *builder) keepForCommand(e *capture.Event, data []byte, partial bool) {
	d := b.detail
	d.redactedInRequest = len(e.Redacted) + e.RedactedMore
	switch {
	case e.Dir != capture.ToServer:
		d.noCommand = "the server has sent it"
		return
	case e.Cut:
		d.noCommand = "the capture has only its beginning"
	case len(data) > maxArgument:
		d.noCommand = "it is too long for a command line: save its payload, and send the file (mcpwire send TARGET @FILE)"
	case e.Kind != capture.KindMessage || jsonwire.Valid(data, 0) != nil:
		d.noCommand = "it is no message"
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

// batchEntry returns the message of the row, if it came in a batch, and whether it did.
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

// addBody takes a body that is no message.
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

// addLast adds the answer of the last round, or of the last poll of a task.
func (b *builder) addLast(ctx context.Context) error {
	n := b.snapshot.lastN
	if n == 0 || n == b.snapshot.responseN {
		return nil
	}
	e, err := b.readEvent(ctx, n)
	if e != nil {
		b.detail.Last = b.payload(e, e.Data, false)
	}
	return err
}

// addFindings adds the findings, with what their rules say.
func (b *builder) addFindings() {
	for _, l := range b.snapshot.Record.Findings {
		f := Finding{Rule: printable.Line(l.Rule), Severity: printable.Line(l.Severity), Message: printable.Line(l.Message), Pointer: printable.Line(l.Pointer), URL: printable.Line(l.URL), Event: l.Event}
		if rule, ok := check.Lookup(l.Rule); ok {
			f.Title, f.Why, f.Fix = rule.Title, rule.Why, rule.Fix
			if f.URL == "" {
				f.URL = rule.URL
			}
		}
		b.detail.Findings = append(b.detail.Findings, f)
	}
}

// addStart finds out how the server is started.
func (b *builder) addStart(ctx context.Context) error {
	e := b.startEvent
	if n := b.snapshot.startN; e == nil && n != 0 && b.detail.noCommand != "the server has sent it" {
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
