package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// sendOld sends over the HTTP+SSE transport, where answers arrive on a stream
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
func (p *poster) sendOld(ctx context.Context, r mcp.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := p.request(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	resp, stop, err := p.exchange(ctx, request)
	if err != nil {
		return err
	}
	defer stop()
	defer resp.Body.Close()
	p.status(resp)
	if resp.StatusCode != http.StatusOK || !isEventStream(resp.Header) {
		body, _ := p.body(resp, stop) // for the message only
		return p.refused(resp, body)
	}
	reader := sse.NewReader(resp.Body, maxBody)
	late := time.AfterFunc(orForever(p.d.flags.connectTimeout), stop)
	endpoint, err := p.endpoint(reader)
	if err == nil && r != mcp.RevisionNone {
		err = p.oldHandshake(ctx, endpoint, reader, r)
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
		if err := p.postOld(ctx, endpoint, m); err != nil {
			return err
		}
	}
	open := newOutstanding(p.v.messages)
	if err := p.events(reader, stop, open); !errors.Is(err, io.EOF) {
		return err
	}
	open.ended = true
	return open.missing(p.v, p.d)
}

// endpoint reads the URL to post messages to, which must have the server's origin.
func (p *poster) endpoint(reader *sse.Reader) (string, error) {
	for {
		e, err := reader.Read()
		if err != nil {
			return "", fmt.Errorf("the stream ended before the endpoint event: %w", err)
		}
		if e.Name != "endpoint" {
			continue
		}
		base, err := url.Parse(p.url)
		if err != nil {
			return "", err
		}
		to, err := base.Parse(string(bytes.TrimSpace(e.Data)))
		if err != nil || to.Scheme != base.Scheme || to.Host != base.Host {
			return "", fmt.Errorf("the endpoint event names another origin: %s", clipLine(string(e.Data), 200))
		}
		p.d.notes.linef("endpoint: %s", safeURL(to.String()))
		return to.String(), nil
	}
}

func (p *poster) oldHandshake(ctx context.Context, endpoint string, reader *sse.Reader, r mcp.Revision) error {
	if err := p.postOld(ctx, endpoint, initializeRequest(r)); err != nil {
		return err
	}
	for {
		e, err := reader.Read()
		if err != nil {
			return fmt.Errorf("the stream ended before the response to initialize: %w", err)
		}
		if list := envelopes(e.Data); len(list) == 1 && list[0].answer {
			if _, err := p.v.greeted(e.Data); err != nil {
				return err
			}
			return p.postOld(ctx, endpoint, jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil))
		}
	}
}

// postOld posts a message. The answer arrives on the stream; the response is printed only if it
// rejects the message.
func (p *poster) postOld(ctx context.Context, endpoint string, message []byte) error {
	r, err := p.request(ctx, http.MethodPost, endpoint, message)
	if err != nil {
		return err
	}
	resp, cancel, err := p.exchange(ctx, r)
	if err != nil {
		return err
	}
	defer cancel()
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	p.status(resp)
	body, err := p.body(resp, cancel)
	if err != nil || len(body) == 0 {
		return err
	}
	return p.v.received(bytes.TrimRight(body, "\r\n"), "")
}
