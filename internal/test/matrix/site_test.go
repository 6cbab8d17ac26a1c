package matrix

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/rpc/backend"
	"mcpwire/jsonrpc"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A web says how servers are reached over HTTP.
type web struct {
	h2     bool // HTTP/2 with TLS; else HTTP/1.1
	stream bool // answers are streams, with many signs of life; else JSON where that will do
	old    bool // the HTTP+SSE transport of 2024-11-05; else Streamable HTTP
}

func (w *web) String() string {
	switch {
	case w.old:
		return "sse"
	case w.stream:
		return "stream"
	default:
		return "json"
	}
}

// Paths of HTTP+SSE.
const (
	ssePath      = "/sse"
	messagesPath = "/messages"
)

// A site is a server at a URL. A server that crashes is replaced by another one.
type site struct {
	t    testing.TB
	name string
	web  web
	as   *auth.Principal // nil is nobody in particular
	url  string
	tls  *tls.Config // for clients; nil without TLS

	transport *streamable.Transport

	mu      sync.Mutex
	node    *node
	conns   map[string]net.Conn // by the address of the client
	busy    map[string]int      // requests under way, likewise
	crashed sync.WaitGroup      // nodes that must end
}

// A node is a server and what serves it.
type node struct {
	srv     *server.Server
	handler *streamable.Handler
	http    http.Handler
}

// principals maps the principals of package auth to those of the servers, whose ids also have an
// issuer and a client, which are empty here.
type principals struct{ backend.Backend }

func (p principals) WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context {
	return p.Backend.WithIdentity(ctx, strings.TrimSpace(id), address, scopes, claims)
}

// A linkedServer is a server with another Backend.
type linkedServer struct {
	*server.Server
	backend.Link
}

// newSite serves a server until the test ends.
func newSite(t testing.TB, name, principal string, w web) *site {
	s := &site{t: t, name: name, web: w, conns: make(map[string]net.Conn), busy: make(map[string]int)}
	if principal != "" {
		s.as = &auth.Principal{Subject: principal}
	}
	s.node = s.newNode()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &siteListener{l, s}
	if w.h2 {
		s.serveTLS(l)
	} else {
		s.serve(l)
	}
	if w.old {
		s.url += ssePath
	}
	s.transport = streamable.Dial(s.url, &streamable.DialOptions{TLS: s.tls})
	return s
}

// serve is HTTP/1.1.
func (s *site) serve(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- httpserve.Serve(ctx, l, s, &httpserve.Options{OnShutdown: s.shutdown}) }()
	s.url = "http://" + l.Addr().String()
	s.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			s.t.Errorf("the server failed: %v", err)
		}
	})
}

// serveTLS is HTTP/2.
func (s *site) serveTLS(l net.Listener) {
	only2 := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			s.t.Errorf("a request came by %s", r.Proto)
		}
		s.ServeHTTP(w, r)
	})
	ts := &httptest.Server{Listener: l, Config: &http.Server{Handler: only2}, EnableHTTP2: true}
	ts.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(ts.Certificate())
	s.url, s.tls = ts.URL, &tls.Config{RootCAs: roots}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.shutdown(ctx); err != nil {
			s.t.Errorf("the server failed: %v", err)
		}
		ts.Close()
	})
}

func (s *site) newNode() *node {
	n := &node{srv: servers[s.name](s.crash)}
	o := &streamable.Options{Retry: time.Millisecond}
	if s.web.stream {
		o.StreamAlways, o.Timeouts.KeepAlive = true, 10*time.Millisecond
	}
	n.handler = streamable.MustHandler(&linkedServer{n.srv, backend.NewLink(principals{backend.Of(n.srv)})}, o)
	n.http = n.handler
	if s.web.old {
		sse, mux := n.handler.SSE(messagesPath), http.NewServeMux()
		mux.Handle(ssePath, sse)
		mux.Handle(messagesPath, sse)
		n.http = mux
	}
	return n
}

// ServeHTTP implements [http.Handler].
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.as != nil {
		r = r.WithContext(auth.WithPrincipal(r.Context(), s.as))
	}
	s.mu.Lock()
	n := s.node
	s.busy[r.RemoteAddr]++
	s.mu.Unlock()
	out := &takenWriter{ResponseWriter: w}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !out.taken {
			s.busy[r.RemoteAddr]--
		}
	}()
	n.http.ServeHTTP(out, r)
}

// A takenWriter notes that its connection was taken: then there is a stream on it that goes on when
// the request has been served.
type takenWriter struct {
	http.ResponseWriter
	taken bool
}

func (w *takenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is for [http.ResponseController].
func (w *takenWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.taken = err == nil
	return conn, buffered, err
}

// crash breaks off all requests, and replaces the server by another one without its state.
// Connections without a request stay, as those to a load balancer do: a client that uses one while
// it is closed cannot know whether its request was handled.
func (s *site) crash() {
	other := s.newNode()
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.node
	s.node = other
	for address, c := range s.conns {
		if s.busy[address] > 0 {
			c.Close()
		}
	}
	s.crashed.Go(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		gone.handler.Shutdown(now)
		if err := gone.end(context.Background()); err != nil {
			s.t.Errorf("the crashed server does not end: %v", err)
		}
	})
}

// shutdown ends what the site serves.
func (s *site) shutdown(ctx context.Context) error {
	s.mu.Lock()
	n := s.node
	s.mu.Unlock()
	err := n.end(ctx)
	s.crashed.Wait()
	return err
}

func (n *node) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return errors.Join(n.handler.Shutdown(ctx), closeServer(n.srv))
}

// Connect implements client.Transport.
func (s *site) Connect(ctx context.Context) (jsonrpc.Framer, error) { return s.transport.Connect(ctx) }

// A siteListener notes the connections of a site.
type siteListener struct {
	net.Listener
	site *site
}

func (l *siteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.site.mu.Lock()
	defer l.site.mu.Unlock()
	l.site.conns[c.RemoteAddr().String()] = c
	return c, nil
}
