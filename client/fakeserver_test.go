package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

const modernDate, legacyDate = "2026-07-28", "2025-11-25"

// A fakeServer answers a client as a test says, by method. It counts on nothing that package server
// does.
type fakeServer struct {
	t            testing.TB
	revision     string
	capabilities string
	answers      map[string]answerer

	mu    sync.Mutex
	conns []*rpc.Conn // the last is in use
	seen  []string    // requests and notifications: the method and its params without _meta
	ids   []string    // their ids
	wg    sync.WaitGroup
}

// An answerer returns the text of a result.
type answerer func(ctx context.Context, params string) (string, error)

// says answers always the same.
func says(result string) answerer {
	return func(context.Context, string) (string, error) { return result, nil }
}

// fails answers with an error.
func fails(code jsonrpc.Code) answerer {
	return func(context.Context, string) (string, error) { return "", jsonrpc.Errorf(code, "no") }
}

// inTurn answers each request with the next of some answers, and with the last from then on.
func inTurn(answers ...answerer) answerer {
	var mu sync.Mutex
	n := 0
	return func(ctx context.Context, params string) (string, error) {
		mu.Lock()
		next := answers[min(n, len(answers)-1)]
		n++
		mu.Unlock()
		return next(ctx, params)
	}
}

func newFake(t testing.TB, revision, capabilities string, answers map[string]answerer) *fakeServer {
	return &fakeServer{t: t, revision: revision, capabilities: capabilities, answers: answers}
}

// dial connects a client to the server. Both end with the test.
func (s *fakeServer) dial(opts *Options) *Client {
	s.t.Helper()
	c, err := Dial(s.t.Context(), s, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.close(c) })
	return c
}

// close ends a client, and the server with it.
func (s *fakeServer) close(c *Client) {
	c.Close()
	s.crash()
	s.wg.Wait()
}

// Connect implements Transport.
func (s *fakeServer) Connect(context.Context) (jsonrpc.Framer, error) {
	clientEnd, serverEnd := net.Pipe()
	line := &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}
	conn := rpc.NewConn(jsonrpc.NewFramer(serverEnd, line), &rpc.Options{
		Handler: rpc.HandlerFunc(s.handle), Cancellation: era.Cancellation{}, DrainTimeout: time.Nanosecond,
	})
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	s.wg.Go(func() { conn.Run(context.Background()) })
	return jsonrpc.NewFramer(clientEnd, line), nil
}

// crash ends the connections without a message.
func (s *fakeServer) crash() {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
}

// notify sends a notification on the connection in use.
func (s *fakeServer) notify(method, params string) {
	s.t.Helper()
	s.mu.Lock()
	conn := s.conns[len(s.conns)-1]
	s.mu.Unlock()
	var text []byte
	if params != "" {
		text = []byte(params)
	}
	if err := conn.Notify(context.Background(), method, text); err != nil {
		s.t.Error(err)
	}
}

func (s *fakeServer) handle(ctx context.Context, r *rpc.Request) ([]byte, error) {
	method := string(r.Method)
	rest, _ := splitMeta(r.Params)
	params := string(rest)
	switch {
	case method == "server/discover" && s.revision == modernDate && s.answers[method] == nil:
		return fmt.Appendf(nil, `{"resultType":"complete","supportedVersions":[%q],"capabilities":%s,"ttlMs":0,"cacheScope":"private"}`, modernDate, s.capabilities), nil
	case method == "initialize" && s.revision != modernDate:
		return fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":"fake","version":"1"}}`, s.revision, s.capabilities), nil
	case method == "notifications/initialized", method == "server/discover" && s.revision != modernDate:
		return nil, jsonrpc.MethodNotFound(method)
	}
	s.mu.Lock()
	s.seen = append(s.seen, strings.TrimSpace(method+" "+params))
	s.ids = append(s.ids, r.ID.String())
	s.mu.Unlock()
	answer := s.answers[method]
	if answer == nil {
		return nil, jsonrpc.MethodNotFound(method)
	}
	result, err := answer(context.WithValue(ctx, requestID{}, r.ID.String()), params)
	return []byte(result), err
}

type requestID struct{}

// idOf returns the JSON text of the id of the request that an answerer answers.
func idOf(ctx context.Context) string { return ctx.Value(requestID{}).(string) }

// note adds a line to what takeSeen returns.
func (s *fakeServer) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, line)
}

// takeSeen returns what the client has sent, and forgets it. What opens the connection is left out.
func (s *fakeServer) takeSeen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// times returns how often the client has sent requests of a method.
func (s *fakeServer) times(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, line := range s.seen {
		if name, _, _ := strings.Cut(line, " "); name == method {
			n++
		}
	}
	return n
}

// elapse lets the clock of the test's synctest bubble go on by d: nothing really waits.
func elapse(d time.Duration) { <-time.After(d) }
