package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"mcpwire/tools/bench/loop"
)

// A web calls over HTTP.
type web struct {
	client *http.Client
	url    string
	modern bool
	header http.Header // of each call
	nextID atomic.Int64
	pool   sync.Pool // of *exchange
}

type exchange struct {
	request bytes.Reader
	body    []byte
	answer  bytes.Buffer
}

// dial goes through the handshake, in the era that has one.
func dial(f loop.Flags) (*web, error) {
	c := &web{client: loop.HTTPClient(), url: f.URL, modern: f.Modern, pool: sync.Pool{New: func() any { return new(exchange) }}}
	c.header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
	}
	if f.Modern {
		c.header["Mcp-Protocol-Version"] = []string{f.Revision()}
		c.header["Mcp-Method"] = []string{"tools/call"}
		c.header["Mcp-Name"] = []string{"echo"}
		return c, nil
	}
	for _, message := range []string{initialize, initialized} {
		x := new(exchange)
		x.body = []byte(message)
		session, err := c.post(context.Background(), x)
		if err != nil {
			return nil, err
		}
		if session != nil {
			c.header["Mcp-Session-Id"] = session
		}
		c.header["Mcp-Protocol-Version"] = []string{f.Revision()}
	}
	return c, nil
}

func (c *web) echo(ctx context.Context, text string) (string, error) {
	x := c.pool.Get().(*exchange)
	defer c.pool.Put(x)
	x.body = appendCall(x.body[:0], c.modern, c.nextID.Add(1), text)
	if _, err := c.post(ctx, x); err != nil {
		return "", err
	}
	got, err := textOf(x.answer.Bytes())
	return string(got), err
}

// post sends x.body, reads the response, and returns its session.
func (c *web) post(ctx context.Context, x *exchange) (session []string, err error) {
	x.request.Reset(x.body)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, &x.request)
	if err != nil {
		return nil, err
	}
	r.Header = c.header.Clone() // net/http may still read it when the answer is there
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	x.answer.Reset()
	if _, err := x.answer.ReadFrom(resp.Body); err != nil && err != io.EOF {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("status %s: %.200q", resp.Status, x.answer.Bytes())
	}
	return resp.Header["Mcp-Session-Id"], nil
}
