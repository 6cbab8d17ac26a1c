package streamable_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/net/sse"
	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// An endpoint is a Handler that is served over HTTP.
type endpoint struct {
	t   *testing.T
	srv *server.Server
	h   *streamable.Handler
	url string
	web *httptest.Server // nil in a synctest bubble

	client    *http.Client
	dial      func() (net.Conn, error)
	announced int // number of tools added by announce
}

type echoIn struct {
	Text string `json:"text"`
}

// newEndpoint serves a server with a few tools on a TCP port.
func newEndpoint(t *testing.T, so *server.Options, o *streamable.Options) *endpoint {
	t.Helper()
	srv := server.MustNew("test", "1", so)
	addTools(t, srv)
	h := streamable.MustHandler(srv, o)
	e := &endpoint{t: t, srv: srv, h: h}
	e.serve(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		e.checkNothingInUse("after the shutdown")
	})
	return e
}

func (e *endpoint) serve(h http.Handler) {
	e.web = httptest.NewServer(h)
	e.url, e.client = e.web.URL, e.web.Client()
	e.dial = func() (net.Conn, error) { return net.Dial("tcp", e.web.Listener.Addr().String()) }
	e.t.Cleanup(e.web.Close)
}

// serveTLS is serve over TLS, which may use HTTP/2.
func (e *endpoint) serveTLS(h http.Handler, http2 bool) {
	e.web = httptest.NewUnstartedServer(h)
	e.web.EnableHTTP2 = http2
	e.web.StartTLS()
	e.url, e.client = e.web.URL, e.web.Client()
	e.t.Cleanup(e.web.Close)
}

// inBubble runs a test with an endpoint in a synctest bubble. Its connections are pipes, and use
// HTTP/2 if h2 is set.
func inBubble(t *testing.T, h2 bool, o *streamable.Options, test func(e *endpoint)) {
	t.Helper()
	inBubbleOf(t, h2, o, nil, test)
}

// inBubbleOf is inBubble with a middleware around the handler.
func inBubbleOf(t *testing.T, h2 bool, o *streamable.Options, around func(e *endpoint) http.Handler, test func(e *endpoint)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", nil)
		addTools(t, srv)
		serveInBubble(&endpoint{t: t, srv: srv, h: streamable.MustHandler(srv, o)}, h2, around, test)
	})
}

// inBubbleWith is inBubble for a handler that was created in the bubble.
func inBubbleWith(t *testing.T, srv *server.Server, h *streamable.Handler, test func(e *endpoint)) {
	t.Helper()
	serveInBubble(&endpoint{t: t, srv: srv, h: h}, false, nil, test)
}

func serveInBubble(e *endpoint, h2 bool, around func(e *endpoint) http.Handler, test func(e *endpoint)) {
	e.url = "http://localhost"
	l := pipes.Listen()
	e.dial = l.Dial
	transport := &http.Transport{DialContext: l.DialContext}
	if h2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	e.client = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(e.t.Context())
	served := make(chan error, 1)
	h := http.Handler(e.h)
	if around != nil {
		h = around(e)
	}
	go func() {
		served <- httpserve.Serve(ctx, l, h, &httpserve.Options{H2C: h2, OnShutdown: e.h.Shutdown})
	}()
	test(e)
	transport.CloseIdleConnections()
	cancel()
	<-served // an error about connections that Serve closed is expected
	synctest.Wait()
	e.checkNothingInUse("after the shutdown")
}

// checkNothingInUse checks that every slot was released once.
func (e *endpoint) checkNothingInUse(when string) {
	e.t.Helper()
	if text, nothing := streamable.InUse(e.h); !nothing {
		e.t.Errorf("%s there are %s", when, text)
	}
}

// advance advances the clock of the bubble by d.
func advance(d time.Duration) { <-time.After(d) }

// took returns how long f takes in a bubble.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// raw writes text to a new connection.
func (e *endpoint) raw(text string) (net.Conn, *bufio.Reader) {
	e.t.Helper()
	c, err := e.dial()
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		e.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// rawPost returns the bytes of a request. Each header is a whole line.
func rawPost(body string, headers ...string) string {
	head := "POST / HTTP/1.1\nHost: localhost\nContent-Type: application/json\nAccept: application/json, text/event-stream\n"
	for _, h := range headers {
		head += h + "\n"
	}
	return head + fmt.Sprintf("Content-Length: %d\n\n%s", len(body), body)
}

// response reads a response and its body.
func (e *endpoint) response(r *bufio.Reader) answer {
	e.t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, strings.TrimSuffix(string(text), "\n")}
}

func addTools(t *testing.T, srv *server.Server) {
	t.Helper()
	err := errors.Join(
		server.AddTool(srv, "echo", "", func(_ context.Context, in echoIn) (string, error) { return in.Text, nil }),
		server.AddTool(srv, "steps", "", func(ctx context.Context, in struct{}) (string, error) {
			c := server.CallOf(ctx)
			for i := range 3 {
				if err := c.Progress(float64(i+1), 3, ""); err != nil {
					return "", err
				}
			}
			return "done", nil
		}),
		server.AddTool(srv, "sample", "", func(ctx context.Context, in struct{}) (string, error) {
			if err := server.CallOf(ctx).Require(server.Sampling); err != nil {
				return "", err
			}
			return "", errors.New("not reached")
		}),
		server.AddTool(srv, "panic", "", func(context.Context, struct{}) (string, error) { panic("oops") }),
		server.AddToolWith(srv, mcp.Tool{Name: "region", InputSchema: []byte(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`)},
			func(_ context.Context, in struct {
				Region string `json:"region,omitempty"`
				Level  int    `json:"level,omitempty"`
			}) (string, error) {
				return in.Region, nil
			}),
		server.AddResource(srv, mcp.Resource{URI: "test://a", Name: "a"}, server.Static("text")),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// An answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request. headers override the usual ones; an empty value removes one.
func (e *endpoint) do(method, body string, headers map[string]string) answer {
	e.t.Helper()
	resp := e.start(method, body, headers)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, body, err)
	}
	return answer{resp.StatusCode, resp.Header, strings.TrimSuffix(string(text), "\n")}
}

// start is do without reading the response.
func (e *endpoint) start(method, body string, headers map[string]string) *http.Response {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	h := map[string]string{"Accept": "application/json, text/event-stream"}
	if method == http.MethodPost {
		h["Content-Type"] = "application/json"
	}
	maps.Copy(h, headers)
	for k, v := range h {
		switch {
		case k == "Host":
			r.Host = v
		case v != "" || strings.HasPrefix(k, "Mcp-Param"):
			r.Header.Set(k, v)
		}
	}
	resp, err := e.client.Do(r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, body, err)
	}
	return resp
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modernPost returns the body and the headers of a modern request.
func modernPost(id any, method, params string) (body string, headers map[string]string) {
	if params != "" {
		params = "," + params
	}
	body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q,"params":{%s%s}}`, id, method, modernMeta, params)
	return body, map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
}

func callPost(id any, tool, arguments string) (body string, headers map[string]string) {
	body, headers = modernPost(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments))
	headers["Mcp-Name"] = tool
	return body, headers
}

// with returns a copy of the headers with some replaced.
func with(headers map[string]string, pairs ...string) map[string]string {
	h := maps.Clone(headers)
	if h == nil {
		h = make(map[string]string)
	}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = pairs[i+1]
	}
	return h
}

// An eventReader reads the events of a response.
type eventReader struct {
	t    *testing.T
	resp *http.Response
	r    *sse.Reader
}

func (e *endpoint) flow(resp *http.Response) *eventReader {
	e.t.Helper()
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || ct != "text/event-stream" {
		body, _ := bufio.NewReader(resp.Body).ReadString('\n')
		e.t.Fatalf("no stream: status %d, %s: %s", resp.StatusCode, ct, body)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	return &eventReader{e.t, resp, sse.NewReader(resp.Body, 0)}
}

// next returns the id and the data of the next event, or "EOF" as data at the end.
func (f *eventReader) next() (id, data string) {
	f.t.Helper()
	ev, err := f.r.Read()
	if err == io.EOF {
		return "", "EOF"
	}
	if err != nil {
		f.t.Fatalf("event: %v", err)
	}
	return string(ev.ID), string(ev.Data)
}

// want reads events and compares their data.
func (f *eventReader) want(data ...string) {
	f.t.Helper()
	for _, w := range data {
		if _, got := f.next(); got != w {
			f.t.Fatalf("event %s\nwant %s", got, w)
		}
	}
}

func modernRevisions() []mcp.Revision {
	var list []mcp.Revision
	for _, r := range mcp.Revisions() {
		if r.Modern() {
			list = append(list, r)
		}
	}
	return list
}

// addWaiter adds a tool that waits until its context ends, and reports it.
func addWaiter(t *testing.T, srv *server.Server, started chan<- struct{}, ended chan<- error) {
	t.Helper()
	err := server.AddTool(srv, "wait", "", func(ctx context.Context, _ struct{}) (string, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return "", ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A cancelableRequest is a request whose client may disconnect.
type cancelableRequest struct {
	e      *endpoint
	r      *http.Request
	cancel context.CancelFunc
}

func newRequest(t *testing.T, e *endpoint, body string, headers map[string]string) *cancelableRequest {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	return &cancelableRequest{e, r, cancel}
}

func (r *cancelableRequest) do() (*http.Response, error) { return r.e.client.Do(r.r) }

// direct is a RoundTripper without a connection: it calls the handler and returns its response.
type direct struct{ h http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.RemoteAddr = "127.0.0.1:1"
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	d.h.ServeHTTP(w, r)
	return w.Result(), nil
}

// withHeaders adds headers to the requests that h gets.
func withHeaders(h http.Handler, headers map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range headers {
			r.Header.Set(k, v)
		}
		h.ServeHTTP(w, r)
	})
}

// A wrapper is a server that embeds another server.
type wrapper struct {
	*server.Server
	served int
}

func (w *wrapper) Serve(ctx context.Context, f jsonrpc.Framer) error {
	w.served++
	return w.Server.Serve(ctx, f)
}

// TestServerTypes shows that a Handler serves types that embed a server, and calls their Serve for
// NDJSON.
func TestServerTypes(t *testing.T) {
	w := &wrapper{Server: server.MustNew("test", "1", nil)}
	h, err := streamable.NewHandler(w, &streamable.Options{NDJSON: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, contentType := range []string{"application/json", "application/x-ndjson"} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+modernMeta+`}}`))
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Accept", "application/json, text/event-stream, application/x-ndjson")
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "server/discover")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		if !strings.Contains(answer.Body.String(), `"supportedVersions"`) || w.served != i {
			t.Errorf("%s: Serve was called %d times, want %d; got %d %s", contentType, w.served, i, answer.Code, answer.Body)
		}
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
