package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An httpFramer is a jsonrpc.Framer that sends a peer's messages as HTTP requests, without package
// streamable. It sets the headers, and closes a modern request to cancel it.
type httpFramer struct {
	site   *site
	http   *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	in     chan []byte
	wg     sync.WaitGroup
	// to is the URL to which messages are posted.
	to string

	mu      sync.Mutex
	session string
	version string
	// open has the cancel functions of modern requests by id.
	open map[string]context.CancelFunc
}

// newHTTPFramer connects to a site.
func newHTTPFramer(s *site) (*httpFramer, error) {
	b := &httpFramer{site: s, in: make(chan []byte, 64), to: s.url, open: make(map[string]context.CancelFunc)}
	b.http = &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if !s.web.sse {
		return b, nil
	}
	endpoint := make(chan string, 1)
	err := b.listen(func(e sse.Event) {
		if e.Name == "endpoint" {
			endpoint <- string(e.Data)
			return
		}
		b.take(e.Data)
	})
	if err != nil {
		return nil, err
	}
	b.to = strings.TrimSuffix(s.url, ssePath) + <-endpoint
	return b, nil
}

// ReadFrame implements [jsonrpc.Framer].
func (b *httpFramer) ReadFrame() ([]byte, error) {
	select {
	case frame := <-b.in:
		return frame, nil
	case <-b.ctx.Done():
		return nil, io.EOF
	}
}

func (b *httpFramer) take(frame []byte) {
	select {
	case b.in <- bytes.Clone(frame):
	case <-b.ctx.Done():
	}
}

// An outgoing has the members of a message that an httpFramer needs.
type outgoing struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
		Name, URI, TaskID string
		RequestID         json.RawMessage
	}
}

// WriteFrame implements [jsonrpc.Framer]. It does not wait for the response to a request, except
// for initialize. Other messages are posted before it returns.
func (b *httpFramer) WriteFrame(frame []byte) error {
	frame = bytes.Clone(frame)
	var m outgoing
	_ = json.Unmarshal(frame, &m) // bytes that are not a message are posted unchanged
	b.mu.Lock()
	legacy := b.version != "" || b.site.web.sse
	b.mu.Unlock()
	switch {
	case m.Method == mcp.NotificationCancelled && !legacy:
		b.mu.Lock()
		defer b.mu.Unlock()
		if end := b.open[string(m.Params.RequestID)]; end != nil {
			end()
		}
		return nil
	case len(m.ID) == 0 || m.Method == "" || m.Method == mcp.MethodInitialize || b.site.web.sse:
		err := b.post(b.ctx, &m, frame)
		if err == nil && m.Method == mcp.NotificationInitialized && !b.site.web.sse {
			err = b.listen(func(e sse.Event) { b.take(e.Data) })
		}
		return err
	}
	ctx, end := context.WithCancel(b.ctx)
	b.mu.Lock()
	b.open[string(m.ID)] = end
	b.mu.Unlock()
	b.wg.Go(func() {
		defer end()
		if err := b.post(ctx, &m, frame); err != nil && ctx.Err() == nil {
			b.site.t.Errorf("%s: %v", frame, err)
		}
	})
	return nil
}

// request returns an HTTP request with the headers that all messages have.
func (b *httpFramer) request(ctx context.Context, method string, body []byte) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, b.to, bytes.NewReader(body))
	must(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != "" {
		r.Header.Set("Mcp-Session-Id", b.session)
	}
	if b.version != "" {
		r.Header.Set("MCP-Protocol-Version", b.version)
	}
	return r
}

// post sends a message and delivers all messages of the HTTP response.
func (b *httpFramer) post(ctx context.Context, m *outgoing, frame []byte) error {
	r := b.request(ctx, http.MethodPost, frame)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if v := m.Params.Meta.Version; v != "" {
		r.Header.Set("MCP-Protocol-Version", v)
		r.Header.Set("Mcp-Method", m.Method)
		if name := m.Params.Name + m.Params.URI + m.Params.TaskID; name != "" { // at most one of them is set
			r.Header.Set("Mcp-Name", name)
		}
	}
	resp, err := b.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if m.Method == mcp.MethodInitialize && resp.StatusCode == http.StatusOK {
		b.mu.Lock()
		b.session = resp.Header.Get("Mcp-Session-Id")
		b.mu.Unlock()
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return b.read(resp.Body, func(e sse.Event) { b.receive(m, e.Data) })
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && len(body) > 0 {
		b.receive(m, bytes.TrimSpace(body))
	}
	return err
}

// receive delivers a message of the HTTP response to m.
func (b *httpFramer) receive(m *outgoing, frame []byte) {
	if m.Method == mcp.MethodInitialize {
		var res struct{ Result mcp.InitializeResult }
		_ = json.Unmarshal(frame, &res)
		b.mu.Lock()
		b.version = res.Result.ProtocolVersion
		b.mu.Unlock()
	}
	b.take(frame)
}

// listen opens the standing stream.
func (b *httpFramer) listen(take func(sse.Event)) error {
	r := b.request(b.ctx, http.MethodGet, nil)
	r.Header.Set("Accept", "text/event-stream")
	resp, err := b.http.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fmt.Errorf("GET: %s", resp.Status)
	}
	b.wg.Go(func() {
		defer resp.Body.Close()
		_ = b.read(resp.Body, take)
	})
	return nil
}

func (b *httpFramer) read(body io.Reader, take func(sse.Event)) error {
	for r := sse.NewReader(body, 64<<20); ; {
		e, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(e.Data) > 0 {
			take(e)
		}
	}
}

// Close implements [jsonrpc.Framer].
func (b *httpFramer) Close() error {
	if b.session != "" {
		if resp, err := b.http.Do(b.request(b.ctx, http.MethodDelete, nil)); err == nil {
			resp.Body.Close()
		}
	}
	b.cancel()
	b.wg.Wait()
	b.http.CloseIdleConnections()
	return nil
}

var _ jsonrpc.Framer = (*httpFramer)(nil)
