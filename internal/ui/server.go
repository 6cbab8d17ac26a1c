package web

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/resend"
	"mcpwire/internal/watch"
	"mcpwire/streamable"
)

// Options are the options of a [Server]. nil means defaults.
type Options struct {
	// AllowRemote lets [Server.Serve] listen where other machines reach it. What they read and send is in clear text then, the token included.
	AllowRemote bool
	// Hosts are names that the Host header may have, besides localhost and addresses.
	Hosts []string
	// Tool is the name and version of this program, for the page.
	Tool string
	// Resend are the options for sending requests again, such as the folder for their captures, and credentials. nil means defaults.
	Resend *resend.Options
	// Logger gets what the page is not told; nil discards it.
	Logger *slog.Logger
}

// Bounds of a Server.
const (
	maxStreams     = 32                // open at once
	maxRequests    = 64                // at once, besides streams
	maxHeavy       = 8                 // of them that hold payloads: others wait
	maxUploads     = 64                // captures that were dropped on the page
	maxBody        = 16 << 20          // bytes of a request: a message that is sent again may be large
	maxUpload      = 1 << 30           // bytes of a capture that is dropped on the page
	maxUnpacked    = 512 << 20         // bytes that come out of a compressed one
	maxUploadTotal = 4 << 30           // bytes of them, after which no more are taken
	stallTimeout   = 30 * time.Second  // for the next bytes of a request, and for a client to take the next bytes of an answer
	resendTimeout  = 120 * time.Second // for a request that is sent again
)

// A Server serves the page and its API. It is an [http.Handler]; see the package comment.
type Server struct {
	hub     *watch.Hub
	opts    Options
	hosts   map[string]bool
	token   string // in the URL that the user opens
	session string // in the cookie
	page    *page
	mux     *http.ServeMux

	streams    chan struct{} // one for each open stream
	requests   chan struct{} // one for each other request
	heavy      chan struct{} // one for each of them that holds payloads
	closing    chan struct{} // closed when streams have to end
	endStreams func()

	uploads   uploads
	maxUpload int64 // bytes of a capture that is dropped on the page
	// maxUnpacked is how many bytes may come out of a compressed one.
	maxUnpacked int64
	maxExport   int // rows of the timeline in an exported page
}

// New returns a Server for what a hub watches. opts may be nil; it is copied.
func New(hub *watch.Hub, opts *Options) (*Server, error) {
	p, err := loadPage(pageFiles())
	if err != nil {
		return nil, err
	}
	return newServer(hub, opts, p), nil
}

func pageFiles() fs.FS {
	sub, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

func newServer(hub *watch.Hub, opts *Options, p *page) *Server {
	s := &Server{
		hub: hub, page: p, hosts: map[string]bool{"localhost": true}, token: secret(), session: secret(),
		streams: make(chan struct{}, maxStreams), requests: make(chan struct{}, maxRequests), heavy: make(chan struct{}, maxHeavy),
		closing: make(chan struct{}), maxUpload: maxUpload, maxUnpacked: maxUnpacked, maxExport: maxExportRows,
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, h := range s.opts.Hosts {
		s.hosts[lowerHost(h)] = true
	}
	s.endStreams = sync.OnceFunc(func() { close(s.closing) })
	s.mux = s.routes()
	return s
}

// secret returns 256 random bits as text.
func secret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// URL returns the address that a user opens to get in, for a server that listens at addr. It has the token in it: whoever knows it can read everything.
func (s *Server) URL(addr net.Addr) string {
	host := addr.String()
	if ap, err := netip.ParseAddrPort(host); err == nil && ap.Addr().IsUnspecified() {
		host = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ap.Port())))
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/", RawQuery: url.Values{"token": {s.token}}.Encode()}
	return u.String()
}

// Serve serves what comes by l until ctx ends, and then closes the Server. It returns nil if nothing had to be cut off. l is closed in any case. The error
// wraps [streamable.ErrRemoteAddress] for an address that other machines reach, without Options.AllowRemote.
//
// What has no deadline is a stream that goes on: there is one for the head of a request, for each piece of its body, and for each write.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	err := streamable.Serve(ctx, l, http.Handler(s), &streamable.ServeOptions{
		AllowRemote: s.opts.AllowRemote,
		MaxConns:    4 * (maxStreams + maxRequests),
		MaxHeader:   64 << 10,
		OnShutdown:  func(context.Context) error { s.endStreams(); return nil },
		Logger:      s.opts.Logger,
	})
	return errors.Join(err, s.Close())
}

// Close ends the streams, and removes the captures that were dropped on the page. [Server.Serve] calls it; who uses the Server as a handler does. It may be called more
// than once.
func (s *Server) Close() error {
	s.endStreams()
	return s.uploads.remove()
}
