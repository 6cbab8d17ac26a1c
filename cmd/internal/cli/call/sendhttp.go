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
		defer p.endSession(ctx)
	}
	v.began = time.Now()
	for _, m := range v.messages {
		if err := p.post(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// An httpReply is the response to a request.
type httpReply struct {
	*wireclient.Exchange
	// cancel ends the response with the given error.
	cancel context.CancelCauseFunc
}

func (r *httpReply) close() {
	r.End(nil)
	r.cancel(nil)
}

// exchange sends a request and returns the response, which the caller closes. The response header
// must arrive within --timeout.
func (p *poster) exchange(ctx context.Context, q *wireclient.Request) (*httpReply, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	x, err := p.NewExchange(ctx, q)
	if err != nil {
		cancel(nil)
		return nil, exit.Usagef("send: bad URL: %s", p.d.Target.Name)
	}
	r := &httpReply{x, cancel}
	late := r.cancelAfter(targets.OrForever(p.d.Flags.Timeout), context.DeadlineExceeded)
	err = x.Do()
	late.Stop()
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *httpReply) cancelAfter(d time.Duration, cause error) *time.Timer {
	return time.AfterFunc(d, func() { r.cancel(cause) })
}

// post sends one message and prints the response.
func (p *poster) post(ctx context.Context, message []byte) error {
	p.v.sent(message, "POST ")
	r, err := p.exchange(ctx, &wireclient.Request{URL: p.url, Body: message})
	if err != nil {
		return err
	}
	defer r.close()
	p.status(r)
	open := newOutstanding([][]byte{message})
	if r.IsStream() {
		return p.events(r, open)
	}
	body, err := p.body(r)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		if open.ended = r.Status()/100 == 2; open.ended {
			return open.missing(p.v, p.d)
		}
		return nil // the status is the answer
	}
	return p.v.received(bytes.TrimRight(body, "\r\n"), "")
}

// body reads the body of a response, which must arrive within --timeout.
func (p *poster) body(r *httpReply) ([]byte, error) {
	late := r.cancelAfter(targets.OrForever(p.d.Flags.Timeout), context.DeadlineExceeded)
	defer late.Stop()
	in, err := r.Next()
	if err == io.EOF {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return in.Data, nil
}

// status prints a note about the head of a response.
func (p *poster) status(r *httpReply) {
	resp := r.Response
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
func (p *poster) events(r *httpReply, open *outstanding) error {
	idle := r.cancelAfter(p.v.wait, errIdle)
	defer idle.Stop()
	for {
		in, err := r.Next()
		switch {
		case errors.Is(err, errIdle):
			return open.missing(p.v, p.d)
		case errors.Is(err, sse.ErrTooLarge):
			p.d.Notes.Linef("← %9s  %s", p.v.clock(), safe.Line(err.Error()))
			continue
		case err == io.EOF:
			open.ended = true
			return open.missing(p.v, p.d)
		case err != nil:
			return err
		}
		idle.Reset(p.v.wait)
		if len(in.Data) == 0 {
			p.d.Notes.Linef("← %9s  event without data%s", p.v.clock(), sseText(in.SSE))
			continue
		}
		if err := p.v.received(in.Data, "event"+sseText(in.SSE)+" "); err != nil {
			return err
		}
		if open.take(in.Data, p.v.count) {
			return nil
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
	first, err := p.exchange(ctx, &wireclient.Request{URL: p.url, Body: targets.InitializeRequest(r)})
	if err != nil {
		return err
	}
	defer first.close()
	answer, err := p.firstMessage(first)
	if err != nil {
		return err
	}
	if first.Status() != http.StatusOK {
		return p.refused(first, answer)
	}
	version, err := p.v.greeted(answer)
	if err != nil {
		return err
	}
	p.SetSessionHeader(wireclient.HeaderVersion, version)
	if id := first.Response.Header.Get(wireclient.HeaderSession); id != "" {
		p.SetSessionHeader(wireclient.HeaderSession, id)
	}
	done, err := p.exchange(ctx, &wireclient.Request{URL: p.url, Body: jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)})
	if err != nil {
		return err
	}
	done.close()
	return nil
}

// refused returns the error for a server that rejects initialize.
func (p *poster) refused(r *httpReply, body []byte) error {
	f := &exit.Failure{Status: exit.Unreachable, Code: "http_status", HTTPStatus: r.Status(), Hint: "--no-init and --protocol modern skip the handshake"}
	if r.Status() == http.StatusUnauthorized || r.Status() == http.StatusForbidden {
		f.Status, f.Code = exit.Auth, "auth_required"
	}
	f.URL = targets.SafeURL(p.d.Target.URL)
	f.Err = fmt.Errorf("the response to initialize has HTTP status %d: %s", r.Status(), safe.Clip(string(body), 300))
	return f
}

// firstMessage returns the body of a response, or the first response in an event stream.
func (p *poster) firstMessage(r *httpReply) ([]byte, error) {
	if !r.IsStream() {
		return p.body(r)
	}
	late := r.cancelAfter(targets.OrForever(p.d.Flags.Timeout), context.DeadlineExceeded)
	defer late.Stop()
	answer, err := firstAnswer(r)
	if err != nil {
		return nil, fmt.Errorf("the stream ended before the response: %w", err)
	}
	return answer, nil
}

// firstAnswer returns the first response in an event stream.
func firstAnswer(r *httpReply) ([]byte, error) {
	for {
		in, err := r.Next()
		if err != nil {
			return nil, err
		}
		if list := envelopes(in.Data); len(list) == 1 && list[0].answer {
			return in.Data, nil
		}
	}
}

// endSession ends a legacy session. It ignores errors.
func (p *poster) endSession(ctx context.Context) {
	if p.SessionHeader(wireclient.HeaderSession) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), targets.TermWait)
	defer cancel()
	if x, err := p.NewExchange(ctx, &wireclient.Request{Method: http.MethodDelete, URL: p.url}); err == nil {
		x.End(x.Do())
	}
}

// sendSSE sends over the HTTP+SSE transport, where answers arrive on a stream
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
func (p *poster) sendSSE(ctx context.Context, r mcp.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.exchange(ctx, &wireclient.Request{Method: http.MethodGet, URL: p.url})
	if err != nil {
		return err
	}
	defer stream.close()
	p.status(stream)
	if stream.Status() != http.StatusOK || !stream.IsStream() {
		body, _ := p.firstMessage(stream) // for the message only
		return p.refused(stream, body)
	}
	late := stream.cancelAfter(targets.OrForever(p.d.Flags.ConnectTimeout), context.DeadlineExceeded)
	err = p.endpoint(stream)
	if err == nil && r != mcp.RevisionNone {
		err = p.handshakeSSE(ctx, stream, r)
	}
	if !late.Stop() && err != nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return err
	}
	p.v.began = time.Now()
	for _, m := range p.v.messages {
		p.v.sent(m, "POST ")
		if err := p.postSSE(ctx, m); err != nil {
			return err
		}
	}
	return p.events(stream, newOutstanding(p.v.messages))
}

// endpoint reads the URL to post messages to, which must have the server's origin.
func (p *poster) endpoint(stream *httpReply) error {
	for {
		in, err := stream.Next()
		if err != nil {
			return fmt.Errorf("the stream ended before the endpoint event: %w", err)
		}
		if in.SSE.Event != wireclient.EventEndpoint {
			continue
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
}

func (p *poster) handshakeSSE(ctx context.Context, stream *httpReply, r mcp.Revision) error {
	if err := p.postSSE(ctx, targets.InitializeRequest(r)); err != nil {
		return err
	}
	answer, err := firstAnswer(stream)
	if err != nil {
		return fmt.Errorf("the stream ended before the response to initialize: %w", err)
	}
	if _, err := p.v.greeted(answer); err != nil {
		return err
	}
	return p.postSSE(ctx, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
}

// postSSE posts a message. The answer arrives on the stream; the response is printed only if it
// rejects the message.
func (p *poster) postSSE(ctx context.Context, message []byte) error {
	r, err := p.exchange(ctx, &wireclient.Request{URL: p.url, Body: message})
	if err != nil {
		return err
	}
	defer r.close()
	if r.Status()/100 == 2 {
		return nil
	}
	p.status(r)
	body, err := p.firstMessage(r)
	if err != nil || len(body) == 0 {
		return err
	}
	return p.v.received(bytes.TrimRight(body, "\r\n"), "")
}
