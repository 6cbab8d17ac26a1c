package detail_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
)

var start = time.Date(2026, 11, 22, 1, 45, 30, 0, time.UTC)

// A recording is an in-memory capture.
type recording struct {
	head   *capture.Head
	events map[uint64]*capture.Event
	model  *trace.Model
	n      uint64
	t      time.Duration
}

func snapshotRecord(transport capture.Transport) *recording {
	return &recording{
		head: &capture.Head{ID: "c", Name: "srv", Transport: transport, At: start}, events: map[uint64]*capture.Event{}, model: trace.New(nil),
	}
}

// add records an event, a millisecond after the previous one.
func (r *recording) add(e *capture.Event) *recording {
	r.n++
	r.t += time.Millisecond
	e.N, e.T, e.At, e.Capture = r.n, r.t, start.Add(r.t), "c"
	r.events[e.N] = e
	r.model.Add(r.head, e)
	return r
}

func (r *recording) message(dir capture.Dir, exchange uint64, text string) *recording {
	return r.add(&capture.Event{Kind: capture.KindMessage, Dir: dir, Exchange: exchange, Data: []byte(text)})
}

func (r *recording) c2s(text string) *recording { return r.message(capture.ToServer, 0, text) }
func (r *recording) s2c(text string) *recording { return r.message(capture.ToClient, 0, text) }

func (r *recording) start(command ...string) *recording {
	return r.add(&capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: command, PID: 7}})
}

// post records the head of a POST with headers "Name: value".
func (r *recording) post(exchange uint64, headers ...string) *recording {
	q := &capture.Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", Remote: "127.0.0.1:9"}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Headers = append(q.Headers, capture.Header{Name: name, Value: value})
	}
	return r.add(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: exchange, Request: q})
}

func (r *recording) reply(exchange uint64, status int, contentType string) *recording {
	return r.add(&capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: exchange, Response: &capture.Response{
		Status: status, Proto: "HTTP/1.1", Headers: []capture.Header{{Name: "Content-Type", Value: contentType}},
	}})
}

var errGone = errors.New("the file is gone")

// Event makes a recording a Source.
func (r *recording) Event(_ context.Context, captureID string, n uint64) (*capture.Event, error) {
	if e := r.events[n]; e != nil && captureID == "c" {
		return e, nil
	}
	return nil, fmt.Errorf("event %d: %w", n, errGone)
}

// detail builds the detail of the row of event n.
func (r *recording) detail(t testing.TB, n uint64, opts *detail.Options) *detail.Detail {
	t.Helper()
	row := r.model.Find("c", n)
	if row == nil {
		t.Fatalf("no row has event %d", n)
	}
	d, err := detail.Build(t.Context(), r, detail.TakeSnapshot(row), opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// text formats lines, indented by two spaces per level. With kinds, the kind of a span follows it
// in brackets.
func text(lines []detail.Line, kinds bool) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.Repeat("  ", l.Depth))
		b.WriteString(spans(l.Spans, kinds))
	}
	return b.String()
}

func spans(list []detail.Span, kinds bool) string {
	var b strings.Builder
	for _, s := range list {
		if kinds && s.Kind != "" {
			fmt.Fprintf(&b, "%s[%s]", s.Kind, s.Text)
		} else {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}
