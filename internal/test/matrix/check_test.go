package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// An object is a JSON object.
type object = map[string]any

// must panics if there is an error. The constructors of the servers use it.
func must(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
}

// same fails the test unless got and want are equal.
func same[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// ok fails the test if there is an error.
func ok(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// wantError fails the test unless the error is one of the peer with the code.
func wantError(t testing.TB, what string, err error, code jsonrpc.Code) *jsonrpc.Error {
	t.Helper()
	e, is := errors.AsType[*jsonrpc.Error](err)
	if !is || e.Code != code || !client.IsServerError(err) {
		t.Fatalf("%s: got %v, want the peer's error %d", what, err, code)
	}
	return e
}

// wantLimited checks that a call was rejected because of a limit. Over HTTP, the status means that
// it was not carried out.
func wantLimited(s *subtest, what string, err error) *jsonrpc.Error {
	s.Helper()
	unprocessed, ok := errors.AsType[*jsonrpc.CallError](err)
	if !ok {
		return wantError(s, what, err, server.CodeTooManyRequests)
	}
	e, is := errors.AsType[*jsonrpc.Error](err)
	if !is || e.Code != server.CodeTooManyRequests || unprocessed.Outcome != jsonrpc.OutcomeUnprocessed {
		s.Fatalf("%s: got %v, want error 429 of a request that was not carried out", what, err)
	}
	return e
}

// call calls a tool and returns its text. A tool that fails yields "error: " and the text.
func (s *subtest) call(c *client.Client, tool string, args any, opts ...client.CallOption) string {
	s.Helper()
	res, err := c.CallTool(s.Context(), tool, args, opts...)
	ok(s, "tool "+tool, err)
	return text(res)
}

// text returns the text blocks of a result.
func text(res *mcp.CallToolResult) string {
	var texts []string
	for _, block := range res.Content {
		if t, ok := block.(mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	all := strings.Join(texts, "|")
	if res.IsError {
		all = "error: " + all
	}
	return all
}

// testTimeout limits the wait for events that should come at once.
const testTimeout = time.Minute

// timeoutContext returns a context with testTimeout.
func (s *subtest) timeoutContext() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	s.Cleanup(cancel)
	return ctx
}

// A wire records the messages that a client sends and receives.
type wire struct {
	mu sync.Mutex
	// lines has the messages with the prefix "> " if they were sent, and "< " if received.
	lines []string
}

// record makes a client record its messages.
func (w *wire) record(o *client.Options) {
	o.Trace = func(dir jsonrpc.Direction, message []byte) {
		line := "> "
		if dir == jsonrpc.Incoming {
			line = "< "
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, line+string(message))
	}
}

// count returns the number of messages that contain all texts.
func (w *wire) count(texts ...string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
next:
	for _, line := range w.lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		n++
	}
	return n
}

// ids returns the ids of the sent requests of a method.
func (w *wire) ids(t testing.TB, method string) (ids []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		text, sent := strings.CutPrefix(line, "> ")
		if !sent {
			continue
		}
		ok(t, line, json.Unmarshal([]byte(text), &m))
		if m.Method == method {
			ids = append(ids, string(m.ID))
		}
	}
	return ids
}

// A counter counts events in a server.
type counter struct {
	mu sync.Mutex
	n  int
	// more is closed when n grows. It is nil if no goroutine waits.
	more chan struct{}
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

func (c *counter) value() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait waits until the count is n.
func (c *counter) wait(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		if c.n >= n {
			c.mu.Unlock()
			return nil
		}
		if c.more == nil {
			c.more = make(chan struct{})
		}
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
