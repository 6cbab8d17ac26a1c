package intercept

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

const (
	maxMatchRows = 1000 // rows of the model that filters are evaluated on
	maxRequests  = 4096 // requests with a remembered match; the model keeps fewer rows at the top
	maxScan      = time.Second
	maxText      = 200  // bytes of a method or target for viewers
	maxID        = 1024 // bytes of the id of a request that can be answered
)

// A Matcher evaluates the filter of breakpoints on the messages of one tap.
type Matcher struct {
	breakpoints *Breakpoints
	head        *capture.Head
	start       time.Time

	// mu guards the fields below.
	mu    sync.Mutex
	model *trace.Model
	// n is the number of the newest event in the model.
	n uint64
	// requests has what is known of pending requests, by the numbers of their rows.
	requests map[uint64]pendingRequest
}

// A pendingRequest is a request whose response has not been seen.
type pendingRequest struct {
	// holdResponse makes the response stop.
	holdResponse bool
	// matched reports that the request has matched the filter. Its response then does not.
	matched bool
	// hits are those of the filter in the request.
	hits filter.Hits
}

// NewMatcher returns a matcher for a tap. name is the name of the server.
func (b *Breakpoints) NewMatcher(name string) *Matcher {
	return &Matcher{
		breakpoints: b, head: &capture.Head{ID: "tap", Name: name}, start: time.Now(),
		model: trace.New(&trace.Options{MaxRows: maxMatchRows}), requests: map[uint64]pendingRequest{},
	}
}

// A Match is the result of [Matcher.Match].
type Match struct {
	live.HeldMessage
	// Hold reports that the message matches.
	Hold bool

	matcher *Matcher
	rows    []*trace.Row
}

// Add adds an event that is not held, such as the head of an HTTP request. It does not keep e.
func (m *Matcher) Add(e *capture.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addLocked(e)
}

// addLocked adds an event and returns the changes of the model.
func (m *Matcher) addLocked(e *capture.Event) []trace.Change {
	m.n++
	seen := *e
	seen.Capture, seen.N, seen.Side = m.head.ID, m.n, ""
	seen.T, seen.At = time.Since(m.start), time.Now()
	changes := m.model.Add(m.head, &seen)
	for _, c := range changes {
		if c.Op == trace.Evicted {
			for r := range c.Row.All() {
				delete(m.requests, r.Seq)
			}
		}
	}
	return changes
}

// Match adds a message that was received, and reports whether to hold it. n is the number of its
// event in the capture. A batch matches if any of its messages does. It does not keep e.
func (m *Matcher) Match(e *capture.Event, n uint64) Match {
	match := Match{HeldMessage: live.HeldMessage{Dir: e.Dir, Event: n, Len: len(e.Data)}, matcher: m}
	if len(e.Data) == 0 {
		return match
	}
	isResponse := match.describe(e.Data)
	f := m.breakpoints.currentFilter()
	var hits filter.Hits
	if f != nil {
		hits = matchPayload(f, e.Data)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	match.rows = m.rowsLocked(e)
	method := match.Method
	for i, row := range match.rows {
		q := m.requests[row.Seq]
		matches := false
		if f != nil {
			q.hits |= hits
			matches = f.MatchScanned(row, q.hits)
		}
		switch {
		case isResponse:
			delete(m.requests, row.Seq)
			matches = matches && !q.matched || q.holdResponse
		case row.Kind == trace.Request:
			q.matched = matches
			m.rememberLocked(row, q)
		}
		if i == 0 || matches && !match.Hold {
			match.Method, match.Target = clip.String(cmp.Or(method, row.Method), maxText), clip.String(row.Target, maxText)
		}
		match.Hold = match.Hold || matches
	}
	if match.Hold && len(e.Data) <= live.MaxHeldData && !e.Cut {
		match.Data = string(e.Data)
	}
	return match
}

// rowsLocked adds a message and returns the rows that it belongs to: several for a batch.
func (m *Matcher) rowsLocked(e *capture.Event) (rows []*trace.Row) {
	changes := m.addLocked(e)
	if own := m.model.Find(m.head.ID, m.n); own != nil {
		rows = append(rows, own)
	}
	for _, c := range changes {
		switch {
		case c.Op == trace.Evicted, len(rows) > 0 && c.Row == rows[0]:
		case len(rows) == 0, slices.Contains(c.Row.Events, m.n) && !slices.Contains(rows, c.Row):
			rows = append(rows, c.Row)
		}
	}
	return rows
}

// rememberLocked stores what is known of a request, in place of any other if there are too many.
func (m *Matcher) rememberLocked(row *trace.Row, q pendingRequest) {
	if _, known := m.requests[row.Seq]; !known && len(m.requests) >= maxRequests {
		for other := range m.requests {
			delete(m.requests, other)
			break
		}
	}
	m.requests[row.Seq] = q
}

// HoldResponse makes the responses to the requests of a message match.
func (m *Match) HoldResponse() {
	m.matcher.mu.Lock()
	defer m.matcher.mu.Unlock()
	for _, row := range m.rows {
		if row.Kind == trace.Request && !row.Done {
			q := m.matcher.requests[row.Seq]
			q.holdResponse = true
			m.matcher.rememberLocked(row, q)
		}
	}
}

// describe sets the method and the id, and reports whether the message is a response, or a batch of
// responses.
func (m *Match) describe(data []byte) (isResponse bool) {
	if rpcbatch.Is(data) {
		list, err := rpcbatch.Parse(data, 0)
		return err == nil && len(list) > 0 && len(list[0].Message.Method) == 0
	}
	var msg jsonrpc.Message
	if jsonrpc.Parse(data, &msg, 0) != nil {
		return false
	}
	m.Method, m.Response = clip.String(string(msg.Method), maxText), len(msg.Method) == 0 && len(msg.ID) > 0
	if len(msg.ID) <= maxID {
		m.RequestID = string(msg.ID)
	}
	return m.Response
}

// What describes the message for a note.
func (m *Match) What() string {
	what := m.Method
	if what == "" {
		what = "a message"
	}
	if m.Response {
		what = "the response to " + what
	}
	return what
}

// matchPayload returns the hits of a filter in a message.
func matchPayload(f *filter.Filter, data []byte) filter.Hits {
	if !f.NeedsPayload() {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxScan)
	defer cancel()
	return f.Scan(ctx, data)
}
