package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// endpointTimeout is how long a server may take to say where messages are to be posted. Those that mean something else with their stream never do.
const endpointTimeout = 5 * time.Second

// An oldStream is a connection by the HTTP+SSE transport of 2024-11-05: messages are posted to one URL, and all that the server has to say comes on one stream
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
type sseConn struct {
	endpoint *url.URL
}

func (f *framer) currentSSE() *sseConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sse
}

// mayBeSSE reports whether the httpError of initialize may come from a server that knows only HTTP+SSE.
func (p *post) mayBeSSE(r *httpError) bool {
	switch r.status.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
	default:
		return false
	}
	return !p.f.transport.opts.NoSSE && (r.message == nil || !era.IsModernError(r.message.Err()) && r.message.Err().Code != jsonrpc.CodeMethodNotFound)
}

// openSSE tries to open the stream of such a server. It returns nil if there is none, and notes in the httpError why.
func (f *framer) openSSE(ctx context.Context, r *httpError) *sseConn {
	streamCtx, cancel := context.WithCancel(f.baseCtx) // the stream outlasts the request
	stop := context.AfterFunc(ctx, cancel)
	timer := time.AfterFunc(endpointTimeout, cancel)
	var conn *sseConn
	resp, err := f.get(streamCtx, "")
	var reader *sse.Reader
	if err == nil {
		reader = sse.NewReader(resp.Body, f.transport.opts.MaxFrame)
		if conn, err = f.readEndpoint(reader); err != nil {
			resp.Body.Close()
		}
	}
	if !stop() || !timer.Stop() || err != nil {
		if err == nil {
			resp.Body.Close()
		}
		cancel()
		f.log.Debug("the server does not speak HTTP+SSE either", "error", err)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		resp.Body.Close()
		cancel()
		return nil
	}
	f.sse = conn
	f.wg.Go(func() {
		defer cancel()
		defer resp.Body.Close()
		f.readSSE(reader, resp.Request.Context())
	})
	return conn
}

// readEndpoint reads the first event.
func (f *framer) readEndpoint(r *sse.Reader) (*sseConn, error) {
	for {
		e, err := r.Read()
		switch {
		case err != nil:
			return nil, err
		case len(e.Data) == 0:
			continue
		case e.Name != "endpoint":
			return nil, fmt.Errorf("the first event is %.40q, and must be endpoint", e.Name)
		}
		to, err := f.transport.url.Parse(strings.TrimSpace(string(e.Data)))
		switch {
		case err != nil:
			return nil, errors.New("the endpoint is no URL")
		case !sameOrigin(to, f.transport.url) || to.User != nil:
			return nil, errors.New("the endpoint is not at the same origin")
		}
		to.Fragment, to.RawFragment = "", ""
		return &sseConn{to}, nil
	}
}

// readSSE takes the messages of the stream until it ends, and the connection with it.
func (f *framer) readSSE(r *sse.Reader, from context.Context) {
	for {
		e, err := r.Read()
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			// Whose answer it was is not known, if it was one: the only call under way fails.
			f.enqueue(inbound{err: &jsonrpc.FrameError{
				Code: jsonrpc.CodeInvalidRequest, Reason: large.Error(),
				Err: &jsonrpc.TooLargeError{Limit: f.transport.opts.MaxFrame, Kind: jsonrpc.KindResponse},
			}, from: from})
			continue
		}
		if err != nil {
			f.finish(fmt.Errorf("%w (%w)", errSSEEnded, err))
			return
		}
		if len(e.Data) > 0 && e.Name == "" {
			f.enqueue(inbound{frame: append([]byte(nil), e.Data...), from: from})
		}
	}
}

// roundTripSSE posts a request. Its answer comes on the stream.
func (p *post) roundTripSSE(conn *sseConn) error {
	h := p.f.transport.header(2)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	p.sent.Store(true)
	resp, err := p.f.transport.send(p.ctx, http.MethodPost, conn.endpoint, h, p.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	p.from = resp.Request.Context()
	if resp.StatusCode/100 == 2 {
		linger(resp.Body, p.cancel)
		return nil
	}
	r := readHTTPError(resp, 0)
	switch {
	case resp.StatusCode == http.StatusNotFound && !r.isMethodNotFound() && p.method != mcp.MethodInitialize: // though the stream of the session has not ended, or not yet
		p.f.loseSession()
		return sessionGoneError(r)
	case !r.isAnswer():
		return r.callError()
	}
	return p.complete(jsonrpc.AppendError(nil, jsonrpc.ID(p.id), r.message.Err(), false))
}
