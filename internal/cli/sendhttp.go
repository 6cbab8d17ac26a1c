package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A poster sends bodies to a server over HTTP.
type poster struct {
	v      *sender
	d      *dialer
	url    string
	client *http.Client
	// session holds the headers of a legacy session.
	session http.Header
	// plain sends no headers but the user's.
	plain bool
}

const maxBody = jsonrpc.DefaultMaxFrame

// sendHTTP sends the messages to a server over HTTP.
func (v *sender) sendHTTP(ctx context.Context, d *dialer, r mcp.Revision) error {
	p := &poster{v: v, d: d, url: d.target.url, plain: v.noInit || v.raw, session: http.Header{}}
	p.client = &http.Client{
		Transport:     d.http,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if d.target.transport == transportSSE {
		return p.sendOld(ctx, r)
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

// request builds the request for a body.
func (p *poster) request(ctx context.Context, method, address string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("send: bad URL: %s", p.d.target.name)
	}
	r.Header.Set("User-Agent", "mcpwire/"+Version)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if !p.plain {
			setMirrorHeaders(r.Header, body)
		}
	} else {
		r.Header.Set("Accept", "text/event-stream")
	}
	for name, values := range p.session {
		r.Header[name] = slices.Clone(values)
	}
	for name, values := range p.d.target.header {
		switch {
		case len(values) == 1 && values[0] == "" && name == "User-Agent":
			// An empty User-Agent keeps net/http from sending its own.
			r.Header[name] = values
		case len(values) == 1 && values[0] == "":
			r.Header.Del(name)
		case name == "Host":
			r.Host = values[0]
		default:
			r.Header[name] = slices.Clone(values)
		}
	}
	return r, nil
}

// setMirrorHeaders sets the headers that repeat members of a modern request
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http).
func setMirrorHeaders(h http.Header, body []byte) {
	list := envelopes(body)
	if len(list) != 1 || list[0].version == "" {
		return
	}
	h.Set("MCP-Protocol-Version", headerText(list[0].version))
	h.Set("Mcp-Method", headerText(list[0].method))
	switch list[0].method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		h.Set("Mcp-Name", headerText(list[0].name))
	}
}

// headerText encodes text as a header value: in base64 if it isn't a valid value or already looks
// like base64.
func headerText(s string) string {
	odd := func(r rune) bool { return r < ' ' || r > '~' }
	if strings.ContainsFunc(s, odd) || s != strings.TrimSpace(s) || strings.HasPrefix(s, "=?base64?") && strings.HasSuffix(s, "?=") {
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
	}
	return s
}

// exchange sends a request and returns the response, whose body the caller closes. The response
// header must arrive within --timeout.
func (p *poster) exchange(ctx context.Context, r *http.Request) (*http.Response, context.CancelFunc, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(orForever(p.d.flags.timeout), func() { cancel(context.DeadlineExceeded) })
	resp, err := p.client.Do(r.WithContext(ctx))
	late.Stop()
	if err != nil {
		defer cancel(nil)
		if outer, ok := errors.AsType[*url.Error](err); ok {
			// Drop the URL, which may contain secrets.
			err = outer.Err
		}
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = context.DeadlineExceeded
		}
		return nil, nil, err
	}
	return resp, func() { cancel(nil) }, nil
}

// post sends one message and prints the response.
func (p *poster) post(ctx context.Context, message []byte) error {
	r, err := p.request(ctx, http.MethodPost, p.url, message)
	if err != nil {
		return err
	}
	p.v.sent(message, "POST ")
	resp, cancel, err := p.exchange(ctx, r)
	if err != nil {
		return err
	}
	defer cancel()
	defer resp.Body.Close()
	p.status(resp)
	open := newOutstanding([][]byte{message})
	if isEventStream(resp.Header) {
		if err := p.events(sse.NewReader(resp.Body, maxBody), cancel, open); !errors.Is(err, io.EOF) {
			return err
		}
		open.ended = true
		return open.missing(p.v, p.d)
	}
	body, err := p.body(resp, cancel)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		if open.ended = resp.StatusCode/100 == 2; open.ended {
			return open.missing(p.v, p.d)
		}
		return nil // the status is the answer
	}
	return p.v.received(bytes.TrimRight(body, "\r\n"), "")
}

// body reads the body of a response, which must arrive within --timeout.
func (p *poster) body(resp *http.Response, cancel context.CancelFunc) ([]byte, error) {
	late := time.AfterFunc(orForever(p.d.flags.timeout), cancel)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if !late.Stop() && err != nil {
		err = context.DeadlineExceeded
	}
	return body, err
}

func isEventStream(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/event-stream"
}

// status prints a note about the head of a response.
func (p *poster) status(resp *http.Response) {
	kind := ""
	if v := resp.Header.Get("Content-Type"); v != "" {
		kind = "  " + clipLine(v, 100)
	}
	p.d.notes.linef("← %9s  %s %s%s", p.v.clock(), resp.Proto, clipLine(resp.Status, 100), kind)
	if !p.d.flags.verbose {
		return
	}
	for _, name := range sortedNames(resp.Header) {
		for _, value := range resp.Header[name] {
			p.d.notes.linef("             %s: %s", safeLine(name), clipLine(value, 1000))
		}
	}
}

func sortedNames(h http.Header) []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// events prints the events of a stream until all answers have arrived or the stream is idle. It
// returns io.EOF if the stream ends before.
func (p *poster) events(reader *sse.Reader, cancel context.CancelFunc, open *outstanding) error {
	idle := time.AfterFunc(p.v.wait, cancel)
	defer idle.Stop()
	for {
		e, err := reader.Read()
		switch {
		case errors.Is(err, context.Canceled):
			return open.missing(p.v, p.d)
		case errors.Is(err, sse.ErrTooLarge):
			p.d.notes.linef("← %9s  %s", p.v.clock(), safeLine(err.Error()))
			continue
		case err != nil:
			return err
		}
		idle.Reset(p.v.wait)
		if len(e.Data) == 0 {
			p.d.notes.linef("← %9s  event without data%s", p.v.clock(), sseText(&e))
			continue
		}
		if err := p.v.received(e.Data, "event"+sseText(&e)+" "); err != nil {
			return err
		}
		if open.take(e.Data, p.v.count) {
			return nil
		}
	}
}

// sseText describes the fields of an event except its data.
func sseText(e *sse.Event) string {
	text := ""
	if e.Name != "" {
		text += " " + clipLine(e.Name, 60)
	}
	if e.HasID {
		text += " id " + clipLine(string(e.ID), 60)
	}
	if e.HasRetry {
		text += " retry " + e.Retry.String()
	}
	return text
}

// handshake opens a legacy session and keeps its headers for later requests.
func (p *poster) handshake(ctx context.Context, r mcp.Revision) error {
	request, err := p.request(ctx, http.MethodPost, p.url, initializeRequest(r))
	if err != nil {
		return err
	}
	resp, cancel, err := p.exchange(ctx, request)
	if err != nil {
		return err
	}
	defer cancel()
	defer resp.Body.Close()
	answer, err := p.firstMessage(resp, cancel)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return p.refused(resp, answer)
	}
	version, err := p.v.greeted(answer)
	if err != nil {
		return err
	}
	p.session.Set("MCP-Protocol-Version", headerText(version))
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		p.session.Set("Mcp-Session-Id", id)
	}
	request, err = p.request(ctx, http.MethodPost, p.url, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
	if err != nil {
		return err
	}
	done, cancel, err := p.exchange(ctx, request)
	if err != nil {
		return err
	}
	defer cancel()
	return done.Body.Close()
}

// refused returns the error for a server that rejects initialize.
func (p *poster) refused(resp *http.Response, body []byte) error {
	f := &failure{status: exitUnreachable, code: "http_status", httpStatus: resp.StatusCode, hint: "--no-init and --protocol modern skip the handshake"}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		f.status, f.code = exitAuth, "auth_required"
	}
	f.url = safeURL(p.d.target.url)
	f.err = fmt.Errorf("the response to initialize has HTTP status %d: %s", resp.StatusCode, clipLine(string(body), 300))
	return f
}

// firstMessage returns the body of a response, or the first message of an event stream.
func (p *poster) firstMessage(resp *http.Response, cancel context.CancelFunc) ([]byte, error) {
	if !isEventStream(resp.Header) {
		return p.body(resp, cancel)
	}
	late := time.AfterFunc(orForever(p.d.flags.timeout), cancel)
	defer late.Stop()
	reader := sse.NewReader(resp.Body, maxBody)
	for {
		e, err := reader.Read()
		if err != nil {
			if errors.Is(err, context.Canceled) && !late.Stop() {
				err = context.DeadlineExceeded
			}
			return nil, fmt.Errorf("the stream ended before the response: %w", err)
		}
		if list := envelopes(e.Data); len(list) == 1 && list[0].answer {
			return e.Data, nil
		}
	}
}

// endSession ends a legacy session. It ignores errors.
func (p *poster) endSession(ctx context.Context) {
	if p.session.Get("Mcp-Session-Id") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), termWait)
	defer cancel()
	r, err := p.request(ctx, http.MethodDelete, p.url, nil)
	if err != nil {
		return
	}
	if resp, err := p.client.Do(r); err == nil {
		resp.Body.Close()
	}
}
