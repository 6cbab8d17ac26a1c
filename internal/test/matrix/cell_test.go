package matrix

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// A behavior is one thing that servers and clients do together.
type behavior struct {
	name string
	when func(f *features) bool // the revisions that have it; nil is all
	test func(s *scene)
	// instead tests the revisions that do not have the behavior. It is required if when is set.
	instead func(s *scene)
	on      place
	unless  []exception
}

// A place says where a behavior can be tried.
type place uint8

const (
	everywhere place = iota
	inBubbles        // where the clock is fake
)

// An exception says why a behavior that a revision has cannot be tried over HTTP.
type exception struct {
	over transports
	when func(f *features) bool // nil is all revisions
	why  string
}

// transports are kinds of HTTP.
type transports uint8

const (
	newHTTP transports = 1 << iota // Streamable HTTP
	oldHTTP                        // HTTP+SSE
	anyHTTP = newHTTP | oldHTTP
)

// skipReason returns why the behavior is not tried in the cell, or "".
func (b *behavior) skipReason(c cell, f *features) string {
	if b.on == inBubbles && !c.bubble {
		return "time cannot be told here"
	}
	kind := newHTTP
	switch {
	case c.web == nil:
		return ""
	case c.web.old:
		kind = oldHTTP
	}
	for _, e := range b.unless {
		if e.over&kind != 0 && (e.when == nil || e.when(f)) {
			return e.why
		}
	}
	return ""
}

// A cell is one combination that behaviors are tried in.
type cell struct {
	transport string
	bubble    bool
	pipe      func() (local, remote stream)
	framing   jsonrpc.Framing
	web       *web // nil without HTTP
	version   mcp.Revision
}

func (c cell) String() string {
	var shape fmt.Stringer = c.framing
	if c.web != nil {
		shape = c.web
	}
	return fmt.Sprintf("%s/%v/%v", c.transport, shape, c.version)
}

// cells returns all of them.
func cells() (all []cell) {
	for _, c := range []cell{
		{transport: "memory", bubble: true, pipe: memory},
		{transport: "pipe", pipe: pipes},
		{transport: "child"},
	} {
		for _, c.framing = range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
			for _, c.version = range mcp.Revisions() {
				all = append(all, c)
			}
		}
	}
	for _, c := range []cell{
		{transport: "http1", web: &web{}},
		{transport: "http1", web: &web{stream: true}},
		{transport: "http2", web: &web{h2: true}},
		{transport: "http2", web: &web{h2: true, stream: true}},
		{transport: "http1", web: &web{old: true}},
	} {
		for _, c.version = range mcp.Revisions() {
			if c.web.carries(c.version) {
				all = append(all, c)
			}
		}
	}
	return all
}

// carries reports whether a revision is tried over it. HTTP/2 makes no difference between those
// that have sessions, so the last of them is enough there.
func (w *web) carries(r mcp.Revision) bool {
	switch {
	case w.old:
		return r == mcp.Revision20241105
	case w.h2:
		return r >= mcp.Revision20251125
	}
	return r >= mcp.Revision20250326
}

// A scene is one behavior in one cell.
type scene struct {
	*testing.T
	*features
	cell
	server string
	stage  *stage
}

// A stage is what the behaviors of one cell share.
type stage struct {
	t      *testing.T
	client *client.Client
}

// try tries the behaviors of a theme in all cells. server names one of servers.
func try(t *testing.T, server string, behaviors []behavior) {
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			shared := &stage{t: t}
			for _, b := range behaviors {
				if b.skipReason(c, featuresOf(c.version)) != "" {
					continue
				}
				t.Run(b.name, func(t *testing.T) {
					if !c.bubble {
						b.play(&scene{t, featuresOf(c.version), c, server, shared})
						return
					}
					synctest.Test(t, func(t *testing.T) {
						b.play(&scene{t, featuresOf(c.version), c, server, &stage{t: t}})
					})
				})
			}
		})
	}
}

func (b *behavior) play(s *scene) {
	switch {
	case (b.when == nil) != (b.instead == nil):
		s.Fatal("a row says either nothing of revisions, or what holds in the others")
	case b.when == nil || b.when(s.features):
		b.test(s)
	default:
		b.instead(s)
	}
}

// options returns those of a client that answers nothing.
func (s *scene) options() *client.Options {
	return &client.Options{
		Info:      mcp.Implementation{Name: "matrix", Version: "1", Title: "The matrix"},
		Revisions: []mcp.Revision{s.revision},
		Timeouts: client.Timeouts{
			Probe: time.Minute, // a slow machine is not a legacy server
			Call:  time.Minute,
		},
		Reconnect: client.ReconnectPolicy{MinBackoff: time.Millisecond},
		Retry:     client.RetryPolicy{MinBackoff: time.Millisecond},
	}
}

// client returns the client that the behaviors of the cell share. Its options are those of
// options.
func (s *scene) client() *client.Client {
	s.Helper()
	if s.stage.client == nil {
		s.stage.client = (&scene{s.stage.t, s.features, s.cell, s.server, s.stage}).dial(nil)
	}
	return s.stage.client
}

// dial connects another client, to another server.
func (s *scene) dial(change func(o *client.Options)) *client.Client {
	s.Helper()
	return s.dialAs("", change)
}

// dialAs is dial for a principal.
func (s *scene) dialAs(principal string, change func(o *client.Options)) *client.Client {
	s.Helper()
	c, err := s.tryDial(s.host(principal), change)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *scene) tryDial(h *host, change func(o *client.Options)) (*client.Client, error) {
	o := s.options()
	if change != nil {
		change(o)
	}
	c, err := client.Dial(s.Context(), h, o)
	if err == nil {
		s.Cleanup(func() { c.Close() })
	}
	return c, err
}

func (s *scene) host(principal string) *host {
	return &host{t: s.T, server: s.server, principal: principal, framing: s.framing, pipe: s.pipe, web: s.web}
}

// peer connects a client that a behavior plays by hand, and makes the handshake where there is
// one.
func (s *scene) peer() *mcptest.Peer {
	s.Helper()
	p := s.silentPeer()
	if !s.Modern {
		p.Send(mcptest.Initialize(s.revision))
		p.Expect(mcptest.Result(0, `{"protocolVersion":"`+s.revision.String()+`","$any":"$any"}`))
		p.Send(mcptest.Initialized)
	}
	return p
}

// silentPeer is peer without the handshake.
func (s *scene) silentPeer() *mcptest.Peer {
	s.Helper()
	f, err := s.host("").connectRaw(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	p := mcptest.NewPeer(s.T, f)
	p.Timeout = time.Minute
	return p
}
