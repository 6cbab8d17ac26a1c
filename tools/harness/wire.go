//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"mcpwire/internal/net/sse"
	"mcpwire/mcp"
)

// Revisions on the wire.
var (
	legacy = mcp.Revision20251125.String()
	modern = mcp.Revision20260728.String()
)

const (
	maxResponse = 4 << 20
	// retryDelay is how long a client waits until it resumes a stream again.
	retryDelay = 100 * time.Millisecond
)

// newHTTPClient returns a client that makes a connection for each request, as do clients that have
// nothing to do with each other.
func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
}

// A message is one of JSON-RPC, as a client reads it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *wireError      `json:"error"`
}

type wireError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Error implements error.
func (e *wireError) Error() string { return fmt.Sprintf("error %d: %s %s", e.Code, e.Message, e.Data) }

// A statusError is the error of a response that has no message.
type statusError struct {
	method string
	status int
	text   string
}

// Error implements error.
func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.method, e.status, e.text)
}

// hasStatus reports whether err is that of a response with the given status.
func hasStatus(err error, status int) bool {
	se, ok := errors.AsType[*statusError](err)
	return ok && se.status == status
}

// request sends a request. The caller closes the body of the response.
func request(ctx context.Context, c *http.Client, method, url, body string, headers map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	return c.Do(r)
}

// callModern sends one modern request and returns its result. params is a JSON object without
// _meta.
func callModern(ctx context.Context, c *http.Client, url, method, name, params string) (json.RawMessage, error) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern + `","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	if params != "{}" {
		meta += ","
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}`, method, meta, params[1:])
	headers := map[string]string{"MCP-Protocol-Version": modern, "Mcp-Method": method}
	if name != "" {
		headers["Mcp-Name"] = name
	}
	response, err := request(ctx, c, http.MethodPost, url, body, headers)
	if err != nil {
		return nil, err
	}
	st := stream{id: "1"}
	if err := st.read(response, 0); err != nil {
		return nil, err
	}
	if st.response.Error != nil {
		return nil, st.response.Error
	}
	return st.response.Result, nil
}

// A session is a legacy session whose requests a test sends to nodes of its choice.
type session struct {
	http *http.Client
	id   string
	next atomic.Int64
}

// openSession opens a session at url, and confirms it at the node behind confirm.
func openSession(ctx context.Context, c *http.Client, url, confirm string) (*session, error) {
	s := &session{http: c}
	response, err := s.do(ctx, http.MethodPost, url, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacy+`","capabilities":{"elicitation":{}},"clientInfo":{"name":"harness","version":"1"}}}`, "")
	if err != nil {
		return nil, err
	}
	st := stream{id: "0"}
	if err := st.read(response, 0); err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	if s.id = response.Header.Get("Mcp-Session-Id"); s.id == "" {
		return nil, errors.New("initialize: no session")
	}
	return s, s.post(ctx, confirm, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (s *session) do(ctx context.Context, method, url, body, lastEventID string) (*http.Response, error) {
	headers := make(map[string]string)
	if s.id != "" {
		headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"] = s.id, legacy
	}
	if lastEventID != "" {
		headers["Last-Event-ID"] = lastEventID
	}
	return request(ctx, s.http, method, url, body, headers)
}

// post sends a notification or a response.
func (s *session) post(ctx context.Context, url, body string) error {
	return s.expect(ctx, http.MethodPost, url, body, http.StatusAccepted)
}

// delete ends the session.
func (s *session) delete(ctx context.Context, url string) error {
	return s.expect(ctx, http.MethodDelete, url, "", http.StatusNoContent)
}

func (s *session) expect(ctx context.Context, method, url, body string, status int) error {
	response, err := s.do(ctx, method, url, body, "")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err == nil && response.StatusCode != status {
		err = &statusError{method, response.StatusCode, string(text)}
	}
	return err
}

// call sends a request and reads the response until it is complete, its connection ends, or the
// given number of events has come, if that is not zero.
func (s *session) call(ctx context.Context, url, method, params string, hangUp int) (*stream, error) {
	st := &stream{id: fmt.Sprint(s.next.Add(1))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response, err := s.do(ctx, http.MethodPost, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, st.id, method, params), "")
	if err != nil {
		return st, err
	}
	return st, st.read(response, hangUp)
}

// tool is call for tools/call with progress.
func (s *session) tool(ctx context.Context, url, name, arguments string, hangUp int) (*stream, error) {
	return s.call(ctx, url, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":"p"}}`, name, arguments), hangUp)
}

// resume reads the rest of a stream, at the nodes behind url, until its response has come.
func (s *session) resume(ctx context.Context, url string, st *stream) error {
	for {
		response, err := s.do(ctx, http.MethodGet, url, "", st.last)
		if err == nil {
			if err = st.read(response, 0); err == nil {
				return nil
			}
		}
		se, ok := errors.AsType[*statusError](err)
		if ok && se.status != http.StatusBadGateway && se.status != http.StatusServiceUnavailable {
			return err
		}
		delay := retryDelay
		if st.retry > 0 {
			delay = min(st.retry, 2*time.Second)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return fmt.Errorf("resume a stream: %w; at last: %w", ctx.Err(), err)
		}
	}
}

// An event is one of an event stream.
type event struct {
	id   string
	data string
}

// A stream is what a client has got of the response to a request.
type stream struct {
	// id is the JSON of the request's id.
	id string
	// events are those with data.
	events []event
	// last is the id of the last event.
	last  string
	retry time.Duration
	// response is nil until it has come.
	response *message
	// requests are the messages of the server before the response.
	messages []message
	// seen is called with each message before the response, if it is not nil.
	seen func(*message)
}

var errDisconnected = errors.New("the client has disconnected")

// read reads a response and closes it. It returns nil when the response to the request has come,
// errDisconnected after the given number of events, and else why there is no response.
func (st *stream) read(r *http.Response, hangUp int) error {
	defer r.Body.Close()
	if r.Header.Get("Content-Type") != "text/event-stream" || r.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(r.Body, maxResponse))
		if err != nil {
			return err
		}
		var m message
		if json.Unmarshal(text, &m) != nil || m.Result == nil && m.Error == nil || r.Request.Method != http.MethodPost {
			return &statusError{r.Request.Method, r.StatusCode, string(text[:min(len(text), 200)])}
		}
		if string(m.ID) != st.id && m.Error == nil {
			return fmt.Errorf("%w: the response to %s has the id %s", errForeign, st.id, m.ID)
		}
		if m.Error != nil && r.StatusCode != http.StatusOK {
			return &statusError{r.Request.Method, r.StatusCode, m.Error.Error()}
		}
		st.response = &m
		return nil
	}
	reader := sse.NewReader(r.Body, maxResponse)
	for got := 0; ; {
		e, err := reader.Read()
		if err != nil {
			return err
		}
		if e.HasRetry {
			st.retry = e.Retry
		}
		if e.HasID {
			st.last = string(e.ID)
		}
		if len(e.Data) == 0 {
			continue
		}
		st.events = append(st.events, event{string(e.ID), string(e.Data)})
		var m message
		if err := json.Unmarshal(e.Data, &m); err != nil {
			return fmt.Errorf("an event is no message: %w", err)
		}
		if m.Method == "" {
			if string(m.ID) != st.id {
				return fmt.Errorf("%w: the stream of %s has a response to %s", errForeign, st.id, m.ID)
			}
			st.response = &m
			return nil
		}
		st.messages = append(st.messages, m)
		if st.seen != nil {
			st.seen(&m)
		}
		if got++; got == hangUp {
			return errDisconnected
		}
	}
}

// errForeign is the error of a response that belongs to something else.
var errForeign = errors.New("a foreign message")

// toolText returns the first text of the result of a tool, or its structured content if that is an
// object.
func toolText(result json.RawMessage) string {
	var r struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
	}
	if json.Unmarshal(result, &r) != nil || len(r.Content) == 0 {
		return string(result)
	}
	return r.Content[0].Text
}
