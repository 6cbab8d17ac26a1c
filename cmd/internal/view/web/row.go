package web

import (
	"bytes"
	"cmp"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/cmd/internal/view/watch"
)

// A pageRow is a row as JSON for the page, as described in the package comment.
type pageRow struct {
	Seq       uint64       `json:"q"`
	At        float64      `json:"at"`
	Kind      trace.Kind   `json:"k,omitempty"`
	Capture   string       `json:"c,omitempty"`
	Parent    uint64       `json:"p,omitempty"`
	N         uint64       `json:"n,omitempty"`
	ResponseN uint64       `json:"rn,omitempty"`
	Index     int          `json:"ci,omitempty"`
	Server    int          `json:"si,omitempty"`
	Session   uint64       `json:"s,omitempty"`
	Label     string       `json:"srv,omitempty"`
	Side      capture.Side `json:"sd,omitempty"`
	Others    []uint64     `json:"o,omitempty"`
	Dir       capture.Dir  `json:"d,omitempty"`
	Method    string       `json:"m,omitempty"`
	Target    string       `json:"tg,omitempty"`
	ID        string       `json:"id,omitempty"`
	Status    trace.Status `json:"st,omitempty"`
	Code      int          `json:"cd,omitempty"`
	Message   string       `json:"msg,omitempty"`
	Request   int64        `json:"rq,omitempty"`
	Response  int64        `json:"rs,omitempty"`
	Wall      *float64     `json:"l,omitempty"`
	Latency   *float64     `json:"la,omitempty"`
	Waits     [][2]float64 `json:"ws,omitempty"`
	Done      bool         `json:"done,omitempty"`
	Summary   string       `json:"sum,omitempty"`
	Glyph     string       `json:"g,omitempty"`
	Role      trace.Role   `json:"role,omitempty"`
	Era       string       `json:"era,omitempty"`
	Revision  string       `json:"rev,omitempty"`
	HTTP      int          `json:"http,omitempty"`
	Stream    bool         `json:"stream,omitempty"`
	Ended     bool         `json:"ended,omitempty"`
	HTTPCount int          `json:"nev,omitempty"`
	Rounds    int          `json:"rounds,omitempty"`
	Task      string       `json:"task,omitempty"`
	Findings  *[3]int      `json:"findings,omitempty"`
	Excerpt   string       `json:"x,omitempty"`
	// In is the row that r is inside of, if that one matches the filter.
	In uint64 `json:"in,omitempty"`
}

// maxWaits limits the waits sent to the page.
const maxWaits = 16

// newPageRow returns a row for the page. The caller must hold the lock of the model.
func newPageRow(r *trace.Row) pageRow {
	p := pageRow{
		Seq: r.Seq, At: float64(r.At.UnixMicro()) / 1000, Kind: r.Kind, Capture: r.Capture.ID, N: r.N, ResponseN: r.ResponseN,
		Index: r.Capture.Index, Server: r.Session.ServerIndex(), Session: r.Session.Number, Label: r.Session.Label(), Side: r.Session.Side,
		Dir: r.Dir, Method: r.Method, Target: r.Target, ID: r.ID, Status: r.Status, Code: r.Code, Message: r.Message,
		Request: r.RequestBytes, Response: r.ResponseBytes, Done: r.Done, Summary: trace.Summary(r), Glyph: trace.Glyph(r), Role: r.Role,
		Era: r.Era(), Revision: r.EffectiveRevision(), Excerpt: r.Excerpt,
	}
	if r.Parent != nil {
		p.Parent = r.Parent.Seq
	}
	if r.Capture.HasSides() {
		for _, x := range r.Counterparts() {
			p.Others = append(p.Others, x.Seq)
		}
	}
	p.setTimes(r)
	if h := r.HTTP; h != nil {
		p.HTTP, p.Stream, p.Ended, p.HTTPCount = h.Status, h.Stream, h.Ended, h.Events
	}
	if r.InputRounds != nil {
		p.Rounds = r.InputRounds.Count
	}
	if r.Task != nil {
		p.Task = r.Task.State
	}
	var findings [3]int
	for row := range r.All() {
		for i := range row.Findings {
			switch row.Findings[i].Severity {
			case "error":
				findings[0]++
			case "warning":
				findings[1]++
			default:
				findings[2]++
			}
		}
	}
	if findings != [3]int{} {
		p.Findings = &findings
	}
	return p
}

// setTimes sets the durations, and when the server waited for the client.
func (p *pageRow) setTimes(r *trace.Row) {
	if _, known := r.Elapsed(); !known {
		return
	}
	wall := r.Wall()
	p.Wall = new(trace.TruncatedMillis(wall))
	if r.Latency != wall {
		p.Latency = new(trace.TruncatedMillis(r.Latency))
	}
	client := r.ClientTime
	if r.InputRounds != nil {
		client = r.InputRounds.ClientTime
	}
	if client <= 0 {
		return
	}
	var room [maxWaits]trace.Segment
	for _, sp := range r.AppendSegments(room[:0]) {
		if sp.Kind == trace.SegmentClient && len(p.Waits) < maxWaits {
			p.Waits = append(p.Waits, [2]float64{trace.TruncatedMillis(sp.From - r.T), trace.TruncatedMillis(sp.To - r.T)})
		}
	}
}

// A rowDetail is the detail of a row, for the page.
type rowDetail struct {
	*detail.Detail
	Row pageRow `json:"row"`
}

func (s *Server) serveRow(w http.ResponseWriter, r *http.Request) error {
	p, err := s.views.pathRow(r)
	if err != nil {
		return err
	}
	d, err := detail.Build(r.Context(), s.hub, p.row, &detail.Options{Hex: r.URL.Query().Get("hex") == "1"})
	if err != nil {
		return err
	}
	return writeJSON(w, &rowDetail{d, p.page})
}

func (s *Server) serveCopy(w http.ResponseWriter, r *http.Request) error {
	as := r.URL.Query().Get("as")
	write := map[string]func(*detail.Detail) (*detail.Command, error){"call": detail.CallCommand, "curl": detail.CurlCommand}[as]
	if write == nil {
		return fail(http.StatusBadRequest, `the parameter as must be "call" or "curl"`)
	}
	p, err := s.views.pathRow(r)
	if err != nil {
		return err
	}
	d, err := detail.Build(r.Context(), s.hub, p.row, nil)
	if err != nil {
		return err
	}
	c, err := write(d)
	switch {
	case errors.Is(err, detail.ErrNoCommand) || errors.Is(err, detail.ErrNotHTTP):
		return failure{http.StatusUnprocessableEntity, err}
	case err != nil:
		return err
	}
	return writeJSON(w, c)
}

// servePayload responds with the bytes of an event, as a file that browsers do not show.
func (s *Server) servePayload(w http.ResponseWriter, r *http.Request) error {
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 64)
	if err != nil {
		return fail(http.StatusNotFound, "the event must be a number")
	}
	id := r.PathValue("capture")
	e, err := s.hub.Event(r.Context(), id, n)
	if err != nil {
		if errors.Is(err, watch.ErrGone) {
			err = failure{http.StatusNotFound, err}
		}
		return err
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
	return nil
}

// attach makes the response a file.
func attach(w http.ResponseWriter, name string) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// fileName converts any name and an ending to a safe file name.
func fileName(name, ending string) string { return captures.FileName(name) + "-" + ending }

// A comparison has the differences of two exchanges.
type comparison struct {
	Request  []jsondiff.Change `json:"request"`
	Response []jsondiff.Change `json:"response"`
	Notes    []string          `json:"notes,omitempty"`
}

const maxSmallBody = 64 << 10 // bytes of a request that has only numbers

func (s *Server) serveDiff(w http.ResponseWriter, r *http.Request) error {
	var q struct{ A, B uint64 }
	if err := readJSON(w, r, maxSmallBody, &q); err != nil {
		return err
	}
	a, errA := s.views.row(q.A)
	b, errB := s.views.row(q.B)
	if err := cmp.Or(errA, errB); err != nil {
		return err
	}
	c := comparison{Request: []jsondiff.Change{}, Response: []jsondiff.Change{}}
	request, notes := detail.Compare(r.Context(), s.hub, "request", a.capture, a.n, b.capture, b.n)
	response, more := detail.Compare(r.Context(), s.hub, "response", a.capture, a.responseN, b.capture, b.responseN)
	c.Request, c.Response, c.Notes = append(c.Request, request...), append(c.Response, response...), append(notes, more...)
	return writeJSON(w, c)
}
