//go:build unix

// Command rawhttp is the limit that servers over HTTP are compared with: a
// handler of net/http that reads a body and answers it as package raw says. It
// knows nothing of MCP but what the benchmark sends.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"mcpwire/tools/bench/probe"
	"mcpwire/tools/bench/raw"
)

// An exchange is what one request needs.
type exchange struct {
	body, answer []byte
}

type handler struct {
	stream   bool
	sessions atomic.Int64
	pool     sync.Pool
}

func main() {
	addr := flag.String("http", "127.0.0.1:0", "`ADDRESS` to listen on")
	stream := flag.Bool("sse", false, "answer with event streams")
	flag.Parse()
	h := &handler{stream: *stream, pool: sync.Pool{New: func() any { return new(exchange) }}}
	if err := probe.Run(func(ctx context.Context) error { return probe.Serve(ctx, *addr, h) }); err != nil {
		fmt.Fprintln(os.Stderr, "rawhttp:", err)
		os.Exit(1)
	}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		hold(w, r)
		return
	case http.MethodDelete:
		return
	}
	x := h.pool.Get().(*exchange)
	defer h.pool.Put(x)
	if err := x.read(r.Body); err != nil {
		return
	}
	head := x.body[:min(len(x.body), 100)]
	if bytes.Contains(head, []byte(`"subscriptions/listen"`)) {
		hold(w, r)
		return
	}
	x.answer = x.answer[:0]
	if h.stream {
		x.answer = append(x.answer, "event: message\ndata: "...)
	}
	start := len(x.answer)
	if x.answer = raw.Answer(x.answer, x.body); len(x.answer) == start {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	header := w.Header()
	if bytes.Contains(head, []byte(`"initialize"`)) {
		header.Set("Mcp-Session-Id", fmt.Sprintf("session-%d", h.sessions.Add(1)))
	}
	if h.stream {
		header.Set("Content-Type", "text/event-stream")
		x.answer = append(x.answer, '\n')
	} else {
		header.Set("Content-Type", "application/json")
	}
	header.Set("Content-Length", strconv.Itoa(len(x.answer)))
	w.Write(x.answer)
}

// hold keeps a stream open without events.
func hold(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() == nil {
		<-r.Context().Done()
	}
}

// read reads a body whole.
func (x *exchange) read(body io.Reader) error {
	x.body = x.body[:0]
	for {
		if len(x.body) == cap(x.body) {
			x.body = append(x.body, make([]byte, 512)...)[:len(x.body)]
		}
		n, err := body.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
