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

// Of works out the detail of a row, reading its payloads from src. opts may be nil. The error is that of ctx.
func Of(ctx context.Context, src Source, r *Row, opts *Options) (*Detail, error) {
	w := &work{src: src, row: r, d: &Detail{
		Seq: r.Seq, Capture: r.Record.Capture, N: r.Record.N, Kind: r.Record.Kind, Glyph: glyph(r), Title: title(r), Rounds: r.Rounds, Inside: r.Inside, Gone: r.Gone,
		Session: safeCard(r.Card), row: r,
	}}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.MaxShown <= 0 {
		w.opts.MaxShown = defaultMaxShown
	}
	w.opts.MaxShown = min(w.opts.MaxShown, maxShown)
	w.raw = 2 * w.opts.MaxShown
	w.lint()
	w.d.url = w.opts.URL
	w.timing()
	for _, n := range w.own() {
		if err := w.event(ctx, n); err != nil {
			return nil, err
		}
	}
	for _, step := range []func(context.Context) error{w.last, w.stream, w.translated, w.origin} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	w.d.Others = w.row.Others
	w.headers()
	w.summary()
	return w.d, nil
}

// A work is a Detail that is being worked out.
type work struct {
	src    Source
	row    *Row
	opts   Options
	d      *Detail
	raw    int // bytes that Detail.Raw may still show
	params []byte
	startE *capture.Event
	keyed  bool // the lines of payloads are wanted with their places
}

// get reads an event again. It is nil if it is missing, and then that is noted. The error is that of ctx.
func (w *work) get(ctx context.Context, n uint64) (*capture.Event, error) {
	e, err := w.src.Event(ctx, w.row.Record.Capture, n)
	if cerr := ctx.Err(); cerr != nil {
		return nil, cerr
	}
	if err == nil && e == nil {
		err = errors.New("it is not there")
	}
	if err != nil {
		if !slices.ContainsFunc(w.d.Missing, func(m Missing) bool { return m.N == n }) {
			w.d.Missing = append(w.d.Missing, Missing{n, printable.Line(err.Error())})
		}
		return nil, nil
	}
	return e, nil
}

// own are the numbers of the row's own events, in their order.
func (w *work) own() []uint64 {
	list := slices.Clone(w.row.Record.Events)
	list = append(list, w.row.Record.N, w.row.response)
	if h := w.row.HTTP; h != nil {
		list = append(list, h.RequestN, h.ResponseN, h.EndN)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(n uint64) bool { return n == 0 })
}

// event takes one of the row's own events.
func (w *work) event(ctx context.Context, n uint64) error {
	e, err := w.get(ctx, n)
	if e == nil {
		return err
	}
	w.rawEvent(e)
	w.d.Redacted += len(e.Redacted) + e.RedactedMore
	switch e.Kind {
	case capture.KindRequest:
		w.httpRequest(e)
	case capture.KindResponse:
		w.httpResponse(e)
	case capture.KindBody:
		w.bodyEvent(e)
	case capture.KindStart:
		w.startE = e.Clone()
	default:
		w.messageEvent(e)
	}
	return nil
}

// messageEvent takes an event that is not about HTTP.
func (w *work) messageEvent(e *capture.Event) {
	isRequest := w.row.Record.Kind == wireview.Request
	switch {
	case e.N == w.row.response && isRequest:
		data, partial := w.part(e, false)
		w.d.Response = w.payload(e, data, partial)
	case w.row.Record.Kind == wireview.Response && e.N == w.row.Record.N:
		w.d.Response = w.payload(e, e.Data, false)
	case e.N == w.row.Record.N && (len(e.Data) > 0 || e.Kind == capture.KindMessage):
		data, partial := w.part(e, true)
		w.d.Request = w.payload(e, data, partial)
		w.keep(e, data, partial)
	case w.row.Record.Kind == wireview.HTTP && e.Kind == capture.KindMessage && w.d.Response == nil && e.Dir == capture.ToClient:
		w.d.Response = w.payload(e, e.Data, false)
	}
}

// keep keeps what commands are made of.
func (w *work) keep(e *capture.Event, data []byte, partial bool) {
	d := w.d
	d.hidden = len(e.Redacted) + e.RedactedMore
	switch {
	case e.Dir != capture.ToServer:
		d.sender = "the server has sent it"
		return
	case e.Cut:
		d.sender = "the capture has only its beginning"
	case len(data) > maxArgument:
		d.sender = "it is too long for a command line: save its payload, and send the file (mcpwire send TARGET @FILE)"
	case e.Kind != capture.KindMessage || jsonwire.Valid(data, 0) != nil:
		d.sender = "it is no message"
	default:
		d.request = bytes.Clone(data)
	}
	if len(e.Data) <= maxArgument && !e.Cut {
		d.body = bytes.Clone(e.Data)
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(data, &m, 0) == nil {
		d.method, w.params = string(m.Method), bytes.Clone(m.Params[:min(len(m.Params), maxArgument)])
		if len(m.Params) > maxArgument {
			w.params = nil
		}
	}
}

// part returns the message of the row, if it came in a batch, and whether it did.
func (w *work) part(e *capture.Event, request bool) ([]byte, bool) {
	first := bytes.TrimLeft(e.Data, " \t\r\n")
	if e.Kind != capture.KindMessage || len(first) == 0 || first[0] != '[' || jsonwire.Valid(e.Data, 0) != nil {
		return e.Data, false
	}
	for el := jsonwire.ArrayElements(e.Data); el.Next(); {
		var m jsonrpc.Message
		if jsonrpc.Parse(el.Value(), &m, 0) != nil {
			continue
		}
		if isRequest := m.Method != nil; isRequest == request && (!request || string(m.Method) == w.row.Record.Method) && string(m.ID) == w.row.Record.ID {
			return el.Value(), true
		}
	}
	return e.Data, false
}

// bodyEvent takes a body that is no message.
func (w *work) bodyEvent(e *capture.Event) {
	switch {
	case e.Dir == capture.ToServer && w.d.Request == nil:
		w.d.Request = w.payload(e, e.Data, false)
		if len(e.Data) <= maxArgument && !e.Cut && e.Part == 0 && e.Encoding == "" {
			w.d.body = bytes.Clone(e.Data)
		}
	case e.Dir == capture.ToClient && w.d.Response == nil && w.row.response == 0:
		w.d.Response = w.payload(e, e.Data, false)
	}
}

// last adds the answer of the last round, or of the last poll of a task.
func (w *work) last(ctx context.Context) error {
	n := w.row.last
	if n == 0 || n == w.row.response {
		return nil
	}
	e, err := w.get(ctx, n)
	if e != nil {
		w.d.Last = w.payload(e, e.Data, false)
	}
	return err
}

// lint adds the findings, with what their rules say.
func (w *work) lint() {
	for _, l := range w.row.Record.Lints {
		f := Lint{Rule: printable.Line(l.Rule), Severity: printable.Line(l.Severity), Message: printable.Line(l.Message), Pointer: printable.Line(l.Pointer), URL: printable.Line(l.URL), Event: l.Event}
		if rule, ok := check.Lookup(l.Rule); ok {
			f.Title, f.Why, f.Fix = rule.Title, rule.Why, rule.Fix
			if f.URL == "" {
				f.URL = rule.URL
			}
		}
		w.d.Lint = append(w.d.Lint, f)
	}
}

// origin finds out how the server is started.
func (w *work) origin(ctx context.Context) error {
	e := w.startE
	if n := w.row.startN; e == nil && n != 0 && w.d.sender != "the server has sent it" {
		var err error
		if e, err = w.get(ctx, n); e == nil {
			return err
		}
	}
	if e != nil && e.Start != nil {
		w.d.start = e.Clone().Start
	}
	return nil
}
