package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A poster sends bodies to a server over HTTP.
type poster struct {
	*wireclient.HTTP
	v   *sender
	d   *targets.Dialer
	url string
}

const maxBody = jsonrpc.DefaultMaxFrame

// sendHTTP sends the messages to a server over HTTP.
func (v *sender) sendHTTP(ctx context.Context, d *targets.Dialer, r mcp.Revision) error {
	p := &poster{HTTP: d.RawHTTP(maxBody), v: v, d: d, url: d.Target.URL}
	if v.noInit || v.raw {
		p.HeaderMirror = nil
	}
	if d.Target.Transport == targets.TransportSSE {
		return p.sendSSE(ctx, r)
	}
	if r != mcp.RevisionNone {
		if err := p.handshake(ctx, r); err != nil {
			return err
		}
		defer p.EndSession(wireclient.Request{URL: p.url})
	}
	v.began = time.Now()
	for _, m := range v.messages {
		v.sent(m, "POST ")
		if err := p.post(ctx, m, newOutstanding([][]byte{m})); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends a request, a POST if it has a body, and returns the response, which the caller
// ends. The response header must arrive within --timeout.
func (p *poster) exchange(ctx context.Context, method string, body []byte) (*wireclient.Exchange, error) {
	x, err := p.NewExchange(ctx, &wireclient.Request{Method: method, URL: p.url, Body: body})
	if err != nil {
		return nil, exit.Usagef("send: bad URL: %s", p.d.Target.Name)
	}
	x.Limit(targets.OrForever(p.d.Flags.Timeout), context.DeadlineExceeded)
	if err := x.Do(); err != nil {
		x.End(nil)
		return nil, err
	}
	return x, nil
}

// post sends a message and prints the response. open is nil if the server responds on another
// stream: the response to the request is then printed only if it rejects the message.
func (p *poster) post(ctx context.Context, message []byte, open *outstanding) error {
	x, err := p.exchange(ctx, http.MethodPost, message)
	if err != nil {
		return err
	}
	defer x.End(nil)
	accepted := x.Status()/100 == 2
	if open == nil && accepted {
		return nil
	}
	p.status(x)
	if open != nil && x.IsStream() {
		return p.events(x, open)
	}
	body, err := p.answer(x)
	switch {
	case err != nil:
		return err
	case len(body) > 0:
		return p.v.received(bytes.TrimRight(body, "\r\n"), "")
	case accepted:
		open.ended = true
		return open.missing(p.v, p.d)
	}
	return nil // the status is the answer
}

// answer returns the body of a response, or the first response in an event stream. It must arrive
// within --timeout.
func (p *poster) answer(x *wireclient.Exchange) ([]byte, error) {
	x.Limit(targets.OrForever(p.d.Flags.Timeout), context.DeadlineExceeded)
	in, err := x.Find(isAnswer)
	switch {
	case err != nil && x.IsStream():
		return nil, fmt.Errorf("the stream ended before the response: %w", err)
	case err != nil:
		return nil, err
	}
	return in.Data, nil
}

// isAnswer reports whether an event has one response.
func isAnswer(in *wireclient.Received) bool {
	list := envelopes(in.Data)
	return len(list) == 1 && list[0].answer
}

// status prints a note about the head of a response.
func (p *poster) status(x *wireclient.Exchange) {
	resp := x.Response
	kind := ""
	if v := resp.Header.Get("Content-Type"); v != "" {
		kind = "  " + safe.Clip(v, 100)
	}
	p.d.Notes.Linef("← %9s  %s %s%s", p.v.clock(), resp.Proto, safe.Clip(resp.Status, 100), kind)
	if !p.d.Flags.Verbose {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		for _, value := range resp.Header[name] {
			p.d.Notes.Linef("             %s: %s", safe.Line(name), safe.Clip(value, 1000))
		}
	}
}

// errIdle ends a stream on which nothing arrives.
var errIdle = errors.New("idle")

// events prints the events of a stream until all answers have arrived or the stream is idle or
// ends.
func (p *poster) events(x *wireclient.Exchange, open *outstanding) error {
	for {
		x.Limit(p.v.wait, errIdle)
		in, err := x.Next()
		switch {
		case errors.Is(err, errIdle):
			return open.missing(p.v, p.d)
		case errors.Is(err, sse.ErrTooLarge):
			p.d.Notes.Linef("← %9s  %s", p.v.clock(), safe.Line(err.Error()))
		case err == io.EOF:
			open.ended = true
			return open.missing(p.v, p.d)
		case err != nil:
			return err
		case len(in.Data) == 0:
			p.d.Notes.Linef("← %9s  event without data%s", p.v.clock(), sseText(in.SSE))
		default:
			if err := p.v.received(in.Data, "event"+sseText(in.SSE)+" "); err != nil {
				return err
			}
			if open.take(in.Data, p.v.count) {
				return nil
			}
		}
	}
}

// sseText describes the fields of an event except its data.
func sseText(e *capture.SSE) string {
	text := ""
	if e.Event != "" {
		text += " " + safe.Clip(e.Event, 60)
	}
	if e.HasID {
		text += " id " + safe.Clip(e.ID, 60)
	}
	if e.HasRetry {
		text += " retry " + e.Retry.String()
	}
	return text
}

// handshake opens a legacy session and keeps its headers for later requests.
func (p *poster) handshake(ctx context.Context, r mcp.Revision) error {
	x, err := p.exchange(ctx, http.MethodPost, targets.HandshakeRequest(r))
	if err != nil {
		return err
	}
	defer x.End(nil)
	answer, err := p.answer(x)
	if err != nil {
		return err
	}
	if x.Status() != http.StatusOK {
		return p.refused(x, answer)
	}
	version, err := p.v.readHandshake(answer)
	if err != nil {
		return err
	}
	p.BeginSession(x.Response.Header, version)
	done, err := p.exchange(ctx, http.MethodPost, initialized)
	if err != nil {
		return err
	}
	done.End(nil)
	return nil
}

// refused returns the error for a server that rejects initialize.
func (p *poster) refused(x *wireclient.Exchange, body []byte) error {
	f := &exit.Failure{Status: exit.Unreachable, Code: "http_status", HTTPStatus: x.Status(), Hint: "--no-init and --protocol modern skip the handshake"}
	if x.Status() == http.StatusUnauthorized || x.Status() == http.StatusForbidden {
		f.Status, f.Code = exit.Auth, "auth_required"
	}
	f.URL = targets.SafeURL(p.d.Target.URL)
	f.Err = fmt.Errorf("the response to initialize has HTTP status %d: %s", x.Status(), safe.Clip(string(body), 300))
	return f
}

// sendSSE sends over the HTTP+SSE transport, where answers arrive on a stream
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
func (p *poster) sendSSE(ctx context.Context, r mcp.Revision) error {
	stream, err := p.exchange(ctx, http.MethodGet, nil)
	if err != nil {
		return err
	}
	defer stream.End(nil)
	p.status(stream)
	if stream.Status() != http.StatusOK || !stream.IsStream() {
		body, _ := p.answer(stream) // for the message only
		return p.refused(stream, body)
	}
	stream.Limit(targets.OrForever(p.d.Flags.ConnectTimeout), context.DeadlineExceeded)
	if err := p.endpoint(stream); err != nil {
		return err
	}
	if r != mcp.RevisionNone {
		if err := p.handshakeSSE(ctx, stream, r); err != nil {
			return err
		}
	}
	stream.Limit(targets.OrForever(0), nil)
	p.v.began = time.Now()
	for _, m := range p.v.messages {
		p.v.sent(m, "POST ")
		if err := p.post(ctx, m, nil); err != nil {
			return err
		}
	}
	return p.events(stream, newOutstanding(p.v.messages))
}

// endpoint reads the URL to post messages to, which must have the server's origin.
func (p *poster) endpoint(stream *wireclient.Exchange) error {
	in, err := stream.Find(func(in *wireclient.Received) bool { return in.SSE.Event == wireclient.EventEndpoint })
	if err != nil {
		return fmt.Errorf("the stream ended before the endpoint event: %w", err)
	}
	base, err := url.Parse(p.url)
	if err != nil {
		return err
	}
	to, err := wireclient.Endpoint(base, in.Data)
	if err != nil {
		return fmt.Errorf("the endpoint event names another origin: %s", safe.Clip(string(in.Data), 200))
	}
	p.url = to.String()
	p.d.Notes.Linef("endpoint: %s", targets.SafeURL(p.url))
	return nil
}

func (p *poster) handshakeSSE(ctx context.Context, stream *wireclient.Exchange, r mcp.Revision) error {
	if err := p.post(ctx, targets.HandshakeRequest(r), nil); err != nil {
		return err
	}
	in, err := stream.Find(isAnswer)
	if err != nil {
		return fmt.Errorf("the stream ended before the response to initialize: %w", err)
	}
	if _, err := p.v.readHandshake(in.Data); err != nil {
		return err
	}
	return p.post(ctx, initialized, nil)
}
