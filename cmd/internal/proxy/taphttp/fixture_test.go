package taphttp_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
)

// A tapped is a tap that runs, with its capture.
type tapped struct {
	t       *testing.T
	url     string // of the tap, with the path of the server's URL
	handler *taphttp.Handler
	rec     *capture.Writer
	file    bytes.Buffer // rec's until stop
	stop    func()       // ends the tap, and completes the capture
}

// tap runs a tap of a server.
func tap(t *testing.T, upstream string, opts *taphttp.Options, serve *taphttp.ServeOptions) *tapped {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	p := &tapped{t: t}
	p.rec = capture.NewWriter(&p.file, &capture.Options{Redact: &capture.Redaction{Off: true}})
	if p.handler, err = taphttp.New(u, p.rec, opts); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	scheme := "http://"
	if serve != nil && serve.CertFile != "" {
		scheme = "https://"
	}
	p.url = scheme + l.Addr().String() + u.Path
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.handler.Serve(ctx, l, serve) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := p.rec.Close(); err != nil {
			t.Errorf("capture: %v", err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

// tapHandler runs a tap of a handler.
func tapHandler(t *testing.T, h http.HandlerFunc, opts *taphttp.Options) *tapped {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return tap(t, web.URL+"/mcp", opts, nil)
}

// events stops the tap and returns what it has recorded.
func (p *tapped) events() []*capture.Event {
	p.t.Helper()
	p.stop()
	var list []*capture.Event
	for e, err := range capture.NewReader(bytes.NewReader(p.file.Bytes()), nil).Events() {
		if err != nil {
			p.t.Fatal(err)
		}
		list = append(list, e.Clone())
	}
	return list
}

// lines stops the tap and returns what it has recorded in a short form: a line for each event of an
// exchange.
func (p *tapped) lines() []string {
	p.t.Helper()
	var list []string
	for _, e := range p.events() {
		if line := describe(e); line != "" {
			list = append(list, line)
		}
	}
	return list
}

func describe(e *capture.Event) string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	switch e.Kind {
	case capture.KindHead, capture.KindTail:
		return ""
	case capture.KindRequest:
		b.WriteString(" " + e.Request.Method + " " + e.Request.URL)
	case capture.KindResponse:
		b.WriteString(" " + http.StatusText(e.Response.Status))
	}
	if s := e.SSE; s != nil {
		if s.Event != "" {
			b.WriteString(" event=" + s.Event)
		}
		if s.HasID {
			b.WriteString(" id=" + s.ID)
		}
		if s.HasRetry {
			b.WriteString(" retry=" + s.Retry.String())
		}
		if s.HasComment {
			b.WriteString(" comment=" + s.Comment)
		}
		if s.HasData {
			b.WriteString(" data")
		}
	}
	if e.Encoding != "" {
		b.WriteString(" enc=" + e.Encoding)
	}
	if e.Cut {
		b.WriteString(" cut")
	}
	if len(e.Data) > 0 {
		b.WriteString(": " + string(e.Data[:min(len(e.Data), 200)]))
	}
	return b.String()
}
