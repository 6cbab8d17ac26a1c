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

// A web is a kind of HTTP.
type web struct {
	// h2 means HTTP/2 with TLS instead of HTTP/1.1.
	h2 bool
	// stream means that all responses are streams, with frequent keep-alives, instead of JSON where
	// possible.
	stream bool
	// sse means HTTP+SSE of 2024-11-05 instead of Streamable HTTP.
	sse bool
}

func (w *web) String() string {
	switch {
	case w.sse:
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

// A site serves a server at a URL. A server that crashes is replaced by another one.
type site struct {
	t    testing.TB
	name string
	web  web
	// as is the principal of all requests. It may be nil.
	as  *auth.Principal
	url string
	// tls is the configuration of clients. It is nil without TLS.
	tls *tls.Config

	transport *streamable.Transport

	mu       sync.Mutex
	instance *instance
	// conns and busy have the connections, and the numbers of requests in flight, by the address of
	// the client.
	conns map[string]net.Conn
	busy  map[string]int
	// crashed waits for the crashed instances.
	crashed sync.WaitGroup
}

// An instance is a server and its HTTP handler.
type instance struct {
	srv     *server.Server
	handler *streamable.Handler
	http    http.Handler
}

// principals removes the issuer and the client, which are empty here, from the ids of principals.
type principals struct{ backend.Backend }

func (p principals) WithIdentity(ctx context.Context, id, address string) context.Context {
	return p.Backend.WithIdentity(ctx, strings.TrimSpace(id), address)
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
	s.instance = s.newInstance()
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
	if w.sse {
		s.url += ssePath
	}
	s.transport = streamable.NewTransport(s.url, &streamable.TransportOptions{TLS: s.tls})
	return s
}

// serve serves HTTP/1.1 on l.
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

// serveTLS serves HTTP/2 with TLS on l.
func (s *site) serveTLS(l net.Listener) {
	only2 := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			s.t.Errorf("protocol of a request: got %s, want HTTP/2", r.Proto)
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

func (s *site) newInstance() *instance {
	n := &instance{srv: servers[s.name](s.crash)}
	o := &streamable.Options{Retry: time.Millisecond}
	if s.web.stream {
		o.StreamAlways, o.Timeouts.KeepAlive = true, 10*time.Millisecond
	}
	n.handler = streamable.MustHandler(&linkedServer{n.srv, backend.NewLink(principals{backend.Of(n.srv)})}, o)
	n.http = n.handler
	if s.web.sse {
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
	n := s.instance
	s.busy[r.RemoteAddr]++
	s.mu.Unlock()
	out := &hijackWriter{ResponseWriter: w}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !out.hijacked {
			s.busy[r.RemoteAddr]--
		}
	}()
	n.http.ServeHTTP(out, r)
}

// A hijackWriter records that its connection was hijacked. A hijacked connection has a stream that
// continues after ServeHTTP has returned.
type hijackWriter struct {
	http.ResponseWriter
	hijacked bool
}

func (w *hijackWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, buffered, err
}

// crash aborts all requests, and replaces the server by another one without its state. Connections
// without a request stay open, like those to a load balancer: a client that uses one while it is
// closed cannot know whether its request was handled.
func (s *site) crash() {
	other := s.newInstance()
	s.mu.Lock()
	defer s.mu.Unlock()
	crashed := s.instance
	s.instance = other
	for address, c := range s.conns {
		if s.busy[address] > 0 {
			c.Close()
		}
	}
	s.crashed.Go(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		crashed.handler.Shutdown(now)
		if err := crashed.end(context.Background()); err != nil {
			s.t.Errorf("end of the crashed server: %v", err)
		}
	})
}

// shutdown ends the current and the crashed instances.
func (s *site) shutdown(ctx context.Context) error {
	s.mu.Lock()
	n := s.instance
	s.mu.Unlock()
	err := n.end(ctx)
	s.crashed.Wait()
	return err
}

func (n *instance) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return errors.Join(n.handler.Shutdown(ctx), closeServer(n.srv))
}

// Connect implements client.Transport.
func (s *site) Connect(ctx context.Context) (jsonrpc.Framer, error) { return s.transport.Connect(ctx) }

// A siteListener records the connections of a site.
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
