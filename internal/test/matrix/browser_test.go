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

// A browser is a jsonrpc.Framer that turns a peer's messages into HTTP requests, as configured and
// without package streamable. It knows the headers, and that the end of a modern request cancels
// it.
type browser struct {
	site   *site
	http   *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	in     chan []byte
	wg     sync.WaitGroup
	to     string // where messages are posted

	mu      sync.Mutex
	session string
	version string
	open    map[string]context.CancelFunc // modern requests, by id
}

// newBrowser connects to a site.
func newBrowser(s *site) (*browser, error) {
	b := &browser{site: s, in: make(chan []byte, 64), to: s.url, open: make(map[string]context.CancelFunc)}
	b.http = &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if !s.web.old {
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
func (b *browser) ReadFrame() ([]byte, error) {
	select {
	case frame := <-b.in:
		return frame, nil
	case <-b.ctx.Done():
		return nil, io.EOF
	}
}

func (b *browser) take(frame []byte) {
	select {
	case b.in <- bytes.Clone(frame):
	case <-b.ctx.Done():
	}
}

// An outgoing is what a browser looks at in a message.
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

// WriteFrame implements [jsonrpc.Framer]. Requests are answered while others are sent; everything
// else, and what opens a session, waits until the server has it.
func (b *browser) WriteFrame(frame []byte) error {
	frame = bytes.Clone(frame)
	var m outgoing
	_ = json.Unmarshal(frame, &m) // bytes that are not a message are posted unchanged
	b.mu.Lock()
	legacy := b.version != "" || b.site.web.old
	b.mu.Unlock()
	switch {
	case m.Method == mcp.NotificationCancelled && !legacy:
		b.mu.Lock()
		defer b.mu.Unlock()
		if end := b.open[string(m.Params.RequestID)]; end != nil {
			end()
		}
		return nil
	case len(m.ID) == 0 || m.Method == "" || m.Method == mcp.MethodInitialize || b.site.web.old:
		err := b.post(b.ctx, &m, frame)
		if err == nil && m.Method == mcp.NotificationInitialized && !b.site.web.old {
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

// request makes one, with the headers that go with any message.
func (b *browser) request(ctx context.Context, method string, body []byte) *http.Request {
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

// post sends a message and takes all that is answered.
func (b *browser) post(ctx context.Context, m *outgoing, frame []byte) error {
	r := b.request(ctx, http.MethodPost, frame)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if v := m.Params.Meta.Version; v != "" {
		r.Header.Set("MCP-Protocol-Version", v)
		r.Header.Set("Mcp-Method", m.Method)
		if name := m.Params.Name + m.Params.URI + m.Params.TaskID; name != "" { // of which there is one
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
		return b.read(resp.Body, func(e sse.Event) { b.answer(m, e.Data) })
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && len(body) > 0 {
		b.answer(m, bytes.TrimSpace(body))
	}
	return err
}

// answer takes a message that came in answer to another.
func (b *browser) answer(m *outgoing, frame []byte) {
	if m.Method == mcp.MethodInitialize {
		var res struct{ Result mcp.InitializeResult }
		_ = json.Unmarshal(frame, &res)
		b.mu.Lock()
		b.version = res.Result.ProtocolVersion
		b.mu.Unlock()
	}
	b.take(frame)
}

// listen opens the stream of messages that belong to no request.
func (b *browser) listen(take func(sse.Event)) error {
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

func (b *browser) read(body io.Reader, take func(sse.Event)) error {
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
func (b *browser) Close() error {
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

var _ jsonrpc.Framer = (*browser)(nil)
