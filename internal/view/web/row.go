package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/json/jsondiff"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/trace"
	"mcpwire/internal/view/detail"
	"mcpwire/internal/view/watch"
)

// appendRow appends a row as JSON, as described in the package comment. It does not use
// encoding/json because it runs with the model locked, for up to 100,000 rows of a timeline. The
// caller must hold the lock of the model.
func appendRow(dst []byte, r *trace.Row) []byte {
	o := jsonObject(append(dst, `{"q":`...))
	o = strconv.AppendUint(o, r.Seq, 10)
	o = append(o, `,"at":`...)
	o = appendMillis(o, time.Duration(r.At.UnixNano()))
	o.text("k", string(r.Kind))
	o.text("c", r.Capture.ID)
	if r.Parent != nil {
		o.number("p", int64(r.Parent.Seq))
	}
	o.number("n", int64(r.N))
	o.number("rn", int64(r.ResponseN))
	if len(r.Events) > 1 || len(r.Events) == 1 && r.Events[0] != r.N {
		o.numbers("ev", r.Events)
	}
	o.number("ci", int64(r.Capture.Index))
	o.number("si", int64(r.Session.ServerIndex()))
	o.number("s", int64(r.Session.Number))
	o.text("srv", r.Session.Label())
	o.text("sd", string(r.Session.Side))
	o.others(r)
	o.millis("t", r.T)
	o.text("d", string(r.Dir))
	o.text("m", r.Method)
	o.text("tg", r.Target)
	o.text("id", r.ID)
	o.text("st", string(r.Status))
	o.number("cd", int64(r.Code))
	o.text("msg", r.Message)
	o.number("rq", r.RequestBytes)
	o.number("rs", r.ResponseBytes)
	o.times(r)
	o.flag("done", r.Done)
	o.text("sum", trace.Summary(r))
	o.text("g", trace.Glyph(r))
	o.text("role", string(r.Role))
	o.text("era", r.Era())
	o.text("rev", r.EffectiveRevision())
	o.links(r)
	o.findings(r)
	o.number("more", int64(r.EvictedChildren))
	o.text("x", r.Excerpt)
	return append(o, '}')
}

// A jsonObject is a JSON object that is being written. Its methods omit empty members.
type jsonObject []byte

func (o *jsonObject) name(name string) {
	if b := *o; len(b) > 0 && b[len(b)-1] != '{' {
		*o = append(*o, ',')
	}
	*o = append(*o, '"')
	*o = append(*o, name...)
	*o = append(*o, '"', ':')
}

func (o *jsonObject) text(name, value string) {
	if value != "" {
		o.name(name)
		*o = jsonwire.AppendQuote(*o, value)
	}
}

func (o *jsonObject) number(name string, value int64) {
	if value != 0 {
		o.name(name)
		*o = strconv.AppendInt(*o, value, 10)
	}
}

func (o *jsonObject) numbers(name string, values []uint64) {
	o.name(name)
	*o = append(*o, '[')
	for i, v := range values {
		if i > 0 {
			*o = append(*o, ',')
		}
		*o = strconv.AppendUint(*o, v, 10)
	}
	*o = append(*o, ']')
}

func (o *jsonObject) flag(name string, value bool) {
	if value {
		o.name(name)
		*o = append(*o, "true"...)
	}
}

func (o *jsonObject) millis(name string, d time.Duration) {
	o.name(name)
	*o = appendMillis(*o, d)
}

// appendMillis appends a duration in milliseconds, with microsecond precision.
func appendMillis(dst []byte, d time.Duration) []byte {
	us := d.Microseconds()
	if us < 0 {
		dst, us = append(dst, '-'), -us
	}
	dst = strconv.AppendInt(dst, us/1000, 10)
	if us %= 1000; us == 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// times appends the durations.
func (o *jsonObject) times(r *trace.Row) {
	if _, known := r.Elapsed(); !known {
		return
	}
	wall := r.Wall()
	o.millis("l", wall)
	if r.Latency != wall {
		o.millis("la", r.Latency)
	}
	if r.Kind == trace.Request && r.Role != trace.ServerRequest {
		o.millis("sv", r.ServerTime())
	}
	human := r.ClientTime
	if r.InputRounds != nil {
		human = r.InputRounds.ClientTime
	}
	if human > 0 {
		o.millis("hu", human)
		o.waits(r)
	}
}

// maxWaits limits the waits sent to the page.
const maxWaits = 16

// waits appends when the server waited for the client.
func (o *jsonObject) waits(r *trace.Row) {
	var room [maxWaits]trace.Segment
	n := 0
	for _, sp := range r.AppendSegments(room[:0]) {
		if sp.Kind != trace.SegmentClient || n == maxWaits {
			continue
		}
		if n++; n == 1 {
			o.name("ws")
			*o = append(*o, '[')
		} else {
			*o = append(*o, ',')
		}
		*o = appendMillis(append(*o, '['), sp.From-r.T)
		*o = append(appendMillis(append(*o, ','), sp.To-r.T), ']')
	}
	if n > 0 {
		*o = append(*o, ']')
	}
}

// links appends the members about HTTP, rounds and a task.
func (o *jsonObject) links(r *trace.Row) {
	if h := r.HTTP; h != nil {
		o.number("http", int64(h.Status))
		o.flag("stream", h.Stream)
		o.flag("ended", h.Ended)
		o.number("nev", int64(h.Events))
	}
	if r.InputRounds != nil {
		o.number("rounds", int64(r.InputRounds.Count))
	}
	if r.Task != nil {
		o.text("task", r.Task.State)
	}
}

// findings appends the number of findings by severity.
func (o *jsonObject) findings(r *trace.Row) {
	var errors, warnings, others uint64
	for row := range r.All() {
		for i := range row.Findings {
			switch row.Findings[i].Severity {
			case "error":
				errors++
			case "warning":
				warnings++
			default:
				others++
			}
		}
	}
	if errors+warnings+others > 0 {
		o.numbers("findings", []uint64{errors, warnings, others})
	}
}

// others appends the linked rows on a bridge's other side.
func (o *jsonObject) others(r *trace.Row) {
	if !r.Capture.HasSides() {
		return
	}
	var list []uint64
	for _, x := range r.Counterparts() {
		list = append(list, x.Seq)
	}
	if len(list) > 0 {
		o.numbers("o", list)
	}
}

// A rowDetail is the detail of a row, for the page.
type rowDetail struct {
	*detail.Detail
	Row    json.RawMessage    `json:"row"`
	Frames []detail.EventLine `json:"frames,omitempty"`
}

func (s *Server) serveRow(w http.ResponseWriter, r *http.Request) {
	p, ok := s.lookupPathRow(w, r)
	if !ok {
		return
	}
	d, err := s.detailOf(r.Context(), p, &detail.Options{Hex: r.URL.Query().Get("hex") == "1"})
	if err != nil {
		writeErrorOf(w, http.StatusInternalServerError, err)
		return
	}
	writeJSON(w, d)
}

func (s *Server) detailOf(ctx context.Context, p rowRef, opts *detail.Options) (*rowDetail, error) {
	d, err := detail.Build(ctx, s.hub, p.row, opts)
	if err != nil {
		return nil, err
	}
	return &rowDetail{d, p.text, d.Events()}, nil
}

// commandCopy is an exchange as a command.
type commandCopy struct {
	Text      string   `json:"text"`
	Variables []string `json:"variables,omitempty"`
	Notes     []string `json:"notes,omitempty"`
}

func (s *Server) serveCopy(w http.ResponseWriter, r *http.Request) {
	as := r.URL.Query().Get("as")
	write := map[string]func(*detail.Detail) (*detail.Command, error){"call": detail.CallCommand, "curl": detail.CurlCommand}[as]
	if write == nil {
		writeError(w, http.StatusBadRequest, `the parameter as must be "call" or "curl"`)
		return
	}
	p, ok := s.lookupPathRow(w, r)
	if !ok {
		return
	}
	d, err := detail.Build(r.Context(), s.hub, p.row, nil)
	if err != nil {
		writeErrorOf(w, http.StatusInternalServerError, err)
		return
	}
	c, err := write(d)
	switch {
	case errors.Is(err, detail.ErrNoCommand) || errors.Is(err, detail.ErrNotHTTP):
		writeErrorOf(w, http.StatusUnprocessableEntity, err)
	case err != nil:
		writeErrorOf(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, commandCopy{c.Text, c.Variables, c.Notes})
	}
}

// A rowRef has the parts of a row that are used after the model is unlocked.
type rowRef struct {
	row *detail.Snapshot
	// text is the row as JSON: see appendRow.
	text    []byte
	capture string
	session uint64
	// n is the number of the row's first event.
	n         uint64
	responseN uint64
	// name is the name of the server.
	name string
}

// lookupRow returns a copy of a row, and whether the row exists.
func (s *Server) lookupRow(seq uint64) (p rowRef, ok bool) {
	h := s.hubOf(seq)
	h.Read(func(m *trace.Model) {
		if r := m.RowOf(seq); r != nil {
			p, ok = newRowRef(r), true
		}
	})
	return p, ok
}

// newRowRef copies the needed parts of a row. The caller must hold the lock of the model.
func newRowRef(r *trace.Row) rowRef {
	return rowRef{
		row: detail.TakeSnapshot(r), text: appendRow(nil, r), capture: r.Capture.ID, session: r.Session.Number, n: r.N, responseN: r.ResponseN, name: r.Capture.Name,
	}
}

// lookupPathRow is like lookupRow for the row in the path of a request. It writes the error
// response itself.
func (s *Server) lookupPathRow(w http.ResponseWriter, r *http.Request) (rowRef, bool) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		writeError(w, http.StatusNotFound, "the row must be a number")
		return rowRef{}, false
	}
	p, ok := s.lookupRow(seq)
	if !ok {
		writeError(w, http.StatusNotFound, rowGone)
	}
	return p, ok
}

const rowGone = "row not found: it was removed for newer ones, or the capture was closed"

// servePayload responds with the bytes of an event, as a file that browsers do not show.
func (s *Server) servePayload(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 64)
	if err != nil {
		writeError(w, http.StatusNotFound, "the event must be a number")
		return
	}
	id := r.PathValue("capture")
	e, err := s.hub.Event(r.Context(), id, n)
	if err != nil {
		writeErrorOf(w, eventStatus(err), err)
		return
	}
	name := "payload"
	if h := s.hub.Head(id); h != nil {
		name = h.Name
	}
	attach(w, fileName(name, strconv.FormatUint(n, 10)+".bin"))
	if len(e.Redacted) > 0 || e.RedactedMore > 0 {
		w.Header().Set("X-Mcpwire-Redacted", strconv.Itoa(len(e.Redacted)+e.RedactedMore))
	}
	if e.Cut {
		// Only the first bytes of Len were recorded.
		w.Header().Set("X-Mcpwire-Length", strconv.FormatInt(e.Len, 10))
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(e.Data))
}

func eventStatus(err error) int {
	if errors.Is(err, watch.ErrGone) {
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// attach makes the response a file.
func attach(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

const maxName = 60 // bytes of a name from a peer or user

// fileName converts any name and an ending to a safe file name. It has no separators, no leading
// dot, and no characters with a meaning for shells or file systems.
func fileName(name, ending string) string {
	var b strings.Builder
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= maxName {
			break
		}
	}
	base := strings.Trim(b.String(), "-")
	if base == "" {
		base = "mcpwire"
	}
	return base + "-" + ending
}

// A comparison has the differences of two exchanges.
type comparison struct {
	Request  []jsondiff.Change `json:"request"`
	Response []jsondiff.Change `json:"response"`
	Notes    []string          `json:"notes,omitempty"`
}

const maxSmallBody = 64 << 10 // bytes of a request that has only numbers

func (s *Server) serveDiff(w http.ResponseWriter, r *http.Request) {
	var q struct{ A, B uint64 }
	if err := readJSON(w, r, maxSmallBody, &q); err != nil {
		writeErrorOf(w, http.StatusBadRequest, err)
		return
	}
	a, okA := s.lookupRow(q.A)
	b, okB := s.lookupRow(q.B)
	if !okA || !okB {
		writeError(w, http.StatusNotFound, rowGone)
		return
	}
	c := comparison{Request: []jsondiff.Change{}, Response: []jsondiff.Change{}}
	c.Request = append(c.Request, c.changes(r.Context(), s, "request", a, b, a.n, b.n)...)
	c.Response = append(c.Response, c.changes(r.Context(), s, "response", a, b, a.responseN, b.responseN)...)
	writeJSON(w, c)
}

// changes compares two events, one of each row. A missing event counts as empty and is noted.
func (c *comparison) changes(ctx context.Context, s *Server, what string, a, b rowRef, na, nb uint64) []jsondiff.Change {
	if na == 0 && nb == 0 {
		return nil
	}
	first, whyA := s.payload(ctx, a, na)
	second, whyB := s.payload(ctx, b, nb)
	if whyA != "" {
		c.Notes = append(c.Notes, "the first "+what+whyA)
	}
	if whyB != "" {
		c.Notes = append(c.Notes, "the second "+what+whyB)
	}
	if whyA != "" || whyB != "" {
		return nil
	}
	return jsondiff.Diff(first, second, nil)
}

// payload returns the bytes of an event, or the reason for an error.
func (s *Server) payload(ctx context.Context, p rowRef, n uint64) (data []byte, why string) {
	if n == 0 {
		return nil, " is missing"
	}
	e, err := s.hub.Event(ctx, p.capture, n)
	switch {
	case err != nil:
		return nil, " cannot be read: " + err.Error()
	case e.Cut:
		return nil, " was recorded in part only: " + strconv.Itoa(len(e.Data)) + " of " + strconv.FormatInt(e.Len, 10) + " bytes"
	}
	return e.Data, ""
}
