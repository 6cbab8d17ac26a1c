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
type oldStream struct {
	endpoint *url.URL
}

func (f *framer) oldStream() *oldStream {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.old
}

// mayBeOld reports whether the httpRefusal of initialize may come from a server that knows only HTTP+SSE.
func (p *post) mayBeOld(r *httpRefusal) bool {
	switch r.status.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
	default:
		return false
	}
	return !p.f.c.opts.NoSSE && (r.message == nil || !era.IsModernError(r.message.Err()) && r.message.Err().Code != jsonrpc.CodeMethodNotFound)
}

// openOld tries to open the stream of such a server. It returns nil if there is none, and notes in the httpRefusal why.
func (f *framer) openOld(ctx context.Context, r *httpRefusal) *oldStream {
	life, cancel := context.WithCancel(f.own) // the stream outlasts the request
	stop := context.AfterFunc(ctx, cancel)
	timer := time.AfterFunc(endpointTimeout, cancel)
	var old *oldStream
	resp, err := f.get(life, "")
	var reader *sse.Reader
	if err == nil {
		reader = sse.NewReader(resp.Body, f.c.opts.MaxFrame)
		if old, err = f.readEndpoint(reader); err != nil {
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
	f.old = old
	f.wg.Go(func() {
		defer cancel()
		defer resp.Body.Close()
		f.readOld(reader, resp.Request.Context())
	})
	return old
}

// readEndpoint reads the first event.
func (f *framer) readEndpoint(r *sse.Reader) (*oldStream, error) {
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
		to, err := f.c.url.Parse(strings.TrimSpace(string(e.Data)))
		switch {
		case err != nil:
			return nil, errors.New("the endpoint is no URL")
		case !sameOrigin(to, f.c.url) || to.User != nil:
			return nil, errors.New("the endpoint is not at the same origin")
		}
		to.Fragment, to.RawFragment = "", ""
		return &oldStream{to}, nil
	}
}

// readOld takes the messages of the stream until it ends, and the connection with it.
func (f *framer) readOld(r *sse.Reader, from context.Context) {
	for {
		e, err := r.Read()
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			// Whose answer it was is not known, if it was one: the only call under way fails.
			f.deliver(inbound{err: &jsonrpc.FrameError{
				Code: jsonrpc.CodeInvalidRequest, Reason: large.Error(),
				Err: &jsonrpc.TooLargeError{Limit: f.c.opts.MaxFrame, Kind: jsonrpc.KindResponse},
			}, from: from})
			continue
		}
		if err != nil {
			f.finish(fmt.Errorf("%w (%w)", errOldEnded, err))
			return
		}
		if len(e.Data) > 0 && e.Name == "" {
			f.deliver(inbound{frame: append([]byte(nil), e.Data...), from: from})
		}
	}
}

// exchangeOld posts a request. Its answer comes on the stream.
func (p *post) exchangeOld(old *oldStream) error {
	h := p.f.c.header(2)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	p.sent.Store(true)
	resp, err := p.f.c.send(p.ctx, http.MethodPost, old.endpoint, h, p.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	p.from = resp.Request.Context()
	if resp.StatusCode/100 == 2 {
		linger(resp.Body, p.cancel)
		return nil
	}
	r := readRefusal(resp, 0)
	switch {
	case resp.StatusCode == http.StatusNotFound && !r.noSuchMethod() && p.method != mcp.MethodInitialize: // though the stream of the session has not ended, or not yet
		p.f.loseSession()
		return sessionGone(r)
	case !r.isAnswer():
		return r.callError()
	}
	return p.answer(jsonrpc.AppendError(nil, jsonrpc.ID(p.id), r.message.Err(), false))
}
