package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/text/clip"
)

// Options configures a [Server]. A nil *Options means the defaults.
type Options struct {
	// AllowRemote lets [Server.Serve] listen on addresses that other machines can reach. Their
	// traffic is unencrypted, including the token.
	AllowRemote bool
	// Token is the token in the URL that the user opens. An open page keeps access to a later
	// Server with the same token and port. Empty means a random token.
	Token string
	// Tool is the name and version of this program, for the page.
	Tool string
	// Resend configures resending, such as the folder for captures and credentials. Nil means the
	// defaults.
	Resend *resend.Options
}

// Limits of a Server.
const (
	maxStreams     = 32                // at a time
	maxRequests    = 64                // at a time, without streams
	maxHeavy       = 8                 // of them with payloads in memory; others wait
	maxUploads     = 64                // captures dropped on the page
	maxBody        = 16 << 20          // bytes of a request, such as a message to resend
	maxUpload      = 1 << 30           // bytes of a capture dropped on the page
	maxUnpacked    = 512 << 20         // bytes of content of a compressed one
	maxUploadTotal = 4 << 30           // bytes of all uploads, from which none are accepted
	stallTimeout   = 30 * time.Second  // for each read of a request and each write of a response
	resendTimeout  = 120 * time.Second // for a request that is sent again
)

// A Server serves the page and its API. It is an [http.Handler]; see the package comment.
type Server struct {
	hub      *watch.Hub
	opts     Options
	access   access
	views    views
	resender resender
	uploads  uploads
	mux      *http.ServeMux

	// streams has one element for each open stream.
	streams chan struct{}
	// requests has one element for each other request.
	requests chan struct{}
	// heavy has one element for each of them with payloads in memory.
	heavy chan struct{}
	// closing is closed when streams must end.
	closing    chan struct{}
	endStreams func()

	// maxExport limits the rows of the timeline in an exported page.
	maxExport int
}

// New returns a Server for the traffic in a hub. opts may be nil. New copies opts.
func New(hub *watch.Hub, opts *Options) *Server {
	s := &Server{
		hub: hub, views: views{hub: hub, wholes: map[string]*sharedSelection{}}, uploads: uploads{maxSize: maxUpload, maxUnpacked: maxUnpacked},
		streams: make(chan struct{}, maxStreams), requests: make(chan struct{}, maxRequests), heavy: make(chan struct{}, maxHeavy),
		closing: make(chan struct{}), maxExport: maxExportRows,
	}
	if opts != nil {
		s.opts = *opts
	}
	s.access, s.resender = newAccess(&s.opts), newResender(hub, &s.opts)
	s.endStreams = sync.OnceFunc(func() { close(s.closing) })
	s.mux = s.routes()
	return s
}

// URL returns the address that the user opens, for a server that listens on addr. It contains the
// token, which grants access to everything.
func (s *Server) URL(addr net.Addr) string {
	host := addr.String()
	if ap, err := netip.ParseAddrPort(host); err == nil && ap.Addr().IsUnspecified() {
		host = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ap.Port())))
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/", RawQuery: url.Values{"token": {s.access.token}}.Encode()}
	return u.String()
}

// Serve serves connections of l until ctx ends, and then closes the Server and l. It returns nil
// if all requests could finish. The error wraps [httpserve.ErrRemoteAddress] if other machines
// can reach the address and Options.AllowRemote is not set.
//
// The head of a request, each read of its body and each write have a deadline. A stream as a whole
// has none.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	err := httpserve.Serve(ctx, l, http.Handler(s), &httpserve.Options{
		AllowRemote: s.opts.AllowRemote,
		MaxConns:    4 * (maxStreams + maxRequests),
		MaxHeader:   64 << 10,
		OnShutdown:  func(context.Context) error { s.endStreams(); return nil },
	})
	return errors.Join(err, s.Close())
}

// Close ends the streams and removes the captures that were dropped on the page. [Server.Serve]
// calls it; call it after using the Server as a handler. Close may be called more than once.
func (s *Server) Close() error {
	s.endStreams()
	return s.uploads.remove()
}

// routes returns the mux for authorized requests.
func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.Handle("GET /{$}", newPageFile(indexHTML, "text/html; charset=utf-8"))
	m.Handle("GET /static/main.css", newPageFile(mainCSS, "text/css; charset=utf-8"))
	m.Handle("GET /static/main.js", newPageFile(mainJS, "text/javascript; charset=utf-8"))
	m.Handle("GET /api/ticket", handler(s.access.serveTicket))
	m.Handle("GET "+streamPath, handler(s.serveStream))
	m.Handle("GET /api/row/{seq}", s.limitHeavy(s.serveRow))
	m.Handle("GET /api/payload/{capture}/{n}", s.limitHeavy(s.servePayload))
	m.Handle("GET /api/filter", handler(s.serveFilter))
	m.Handle("GET /api/copy/{seq}", s.limitHeavy(s.serveCopy))
	m.Handle("GET /api/tools", handler(s.serveTools))
	m.Handle("GET /api/picture/sequence", s.limitHeavy(s.serveSequence))
	m.Handle("GET /api/picture/overview", s.limitHeavy(s.serveOverview))
	m.Handle("GET /api/resend/{seq}", s.limitHeavy(s.serveResendPreview))
	m.Handle("POST /api/resend", s.limitHeavy(s.serveResend))
	m.Handle("GET /api/callable", s.limitHeavy(s.serveCallables))
	m.Handle("GET /api/callable/{seq}", s.limitHeavy(s.serveCallable))
	m.Handle("POST /api/validate", s.limitHeavy(s.serveValidate))
	m.Handle("POST /api/call", s.limitHeavy(s.serveCall))
	m.Handle("POST /api/diff", s.limitHeavy(s.serveDiff))
	m.Handle("POST /api/open", handler(s.serveOpen))
	m.Handle("POST /api/restart/{capture}", handler(s.serveRestart))
	m.Handle("GET /api/held/{capture}", s.limitHeavy(s.serveHeld))
	m.Handle("POST /api/held/{capture}", s.limitHeavy(s.serveDecide))
	m.Handle("GET /api/export.html", s.limitHeavy(s.serveExport))
	m.Handle("GET /api/save", s.limitHeavy(s.serveSave))
	m.Handle("/", handler(func(http.ResponseWriter, *http.Request) error {
		return fail(http.StatusNotFound, "not found at this address for this method")
	}))
	return m
}

// limitHeavy limits the concurrent requests that keep payloads in memory, of up to 64 MiB each.
func (s *Server) limitHeavy(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		stall := time.NewTimer(stallTimeout)
		defer stall.Stop()
		select {
		case s.heavy <- struct{}{}:
			defer func() { <-s.heavy }()
			return next(w, r)
		case <-r.Context().Done():
		case <-stall.C:
			writeBusy(w)
		}
		return nil
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.access.permits(w, r) {
		return
	}
	slots := s.requests
	if r.URL.Path == streamPath {
		slots = s.streams
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		writeBusy(w)
		return
	}
	t := &timedWriter{ResponseWriter: w}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &timedBody{ReadCloser: r.Body, w: t}
	}
	s.mux.ServeHTTP(t, r)
}

// A timedWriter sets a deadline for each write, so that a stalled client releases its resources
// while streams live as long as they are read.
type timedWriter struct{ http.ResponseWriter }

// Write implements [http.ResponseWriter].
func (w *timedWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError implements the method for [http.ResponseController].
func (w *timedWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap implements the method for [http.ResponseController].
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend renews the write deadline. It fails only in tests without a connection.
func (w *timedWriter) extend() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(stallTimeout))
}

// A timedBody sets a deadline for each read of a request's body.
type timedBody struct {
	io.ReadCloser
	w *timedWriter
}

// Read implements [io.Reader].
func (b *timedBody) Read(p []byte) (int, error) {
	http.NewResponseController(b.w.ResponseWriter).SetReadDeadline(time.Now().Add(stallTimeout))
	return b.ReadCloser.Read(p)
}

const jsonType = "application/json; charset=utf-8"

// A failure is an error with the status of its response.
type failure struct {
	status int
	error
}

// Unwrap returns the error without the status.
func (f failure) Unwrap() error { return f.error }

func fail(status int, text string) error { return failure{status, errors.New(text)} }

// A handler serves a request. Its error becomes the response, with status 500 unless it is a
// [failure].
type handler func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP implements [http.Handler].
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h(w, r)
	if err == nil {
		return
	}
	status := http.StatusInternalServerError
	if f, ok := errors.AsType[failure](err); ok {
		status = f.status
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	writeError(w, status, clip.String(err.Error(), maxErrorMessage))
}

// writeJSON writes a value as JSON.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	w.Write(body) // errors mean that the client has disconnected
	return nil
}

// marshal is like json.Marshal without HTML escapes.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("web: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// writeError responds with an error message for people.
func writeError(w http.ResponseWriter, status int, message string) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Del("Content-Disposition")
	w.WriteHeader(status)
	w.Write(append(jsonwire.AppendQuote([]byte(`{"error":{"message":`), message), "}}\n"...))
}

func writeBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "2")
	writeError(w, http.StatusServiceUnavailable, "too many requests at once")
}

// maxErrorMessage limits an error message, in bytes.
const maxErrorMessage = 2 << 10

// readJSON reads the body of a request, an object of at most limit bytes.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return failure{http.StatusBadRequest, fmt.Errorf("read the request: %w", err)}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return failure{http.StatusBadRequest, fmt.Errorf("the request: %w", err)}
	}
	return nil
}
