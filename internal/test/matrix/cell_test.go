package matrix

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/internal/test/soak"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// A behavior is a feature of the protocol with its tests.
type behavior struct {
	name string
	// when reports whether a revision has the behavior. Nil means all revisions.
	when func(f *features) bool
	test func(s *subtest)
	// instead tests the revisions that do not have the behavior. It is required if when is set.
	instead func(s *subtest)
	// bubbleOnly means that the tests need the fake clock of a bubble.
	bubbleOnly bool
	unless     []exception
}

// An exception excludes a behavior over some kinds of HTTP.
type exception struct {
	over transports
	// when reports whether a revision is excluded. Nil means all revisions.
	when func(f *features) bool
	// why is the reason.
	why string
}

// transports are kinds of HTTP.
type transports uint8

const (
	streamableHTTP transports = 1 << iota // Streamable HTTP
	httpSSE                               // HTTP+SSE
	anyHTTP        = streamableHTTP | httpSSE
)

// skipReason returns the reason why the behavior is not tested in the cell, or "".
func (b *behavior) skipReason(c cell, f *features) string {
	if b.bubbleOnly && !c.bubble {
		return "needs a fake clock"
	}
	kind := streamableHTTP
	switch {
	case c.web == nil:
		return ""
	case c.web.sse:
		kind = httpSSE
	}
	for _, e := range b.unless {
		if e.over&kind != 0 && (e.when == nil || e.when(f)) {
			return e.why
		}
	}
	return ""
}

// A cell is a combination of a transport, a framing and a revision.
type cell struct {
	transport string
	bubble    bool
	pipe      func() (local, remote stream)
	framing   jsonrpc.Framing
	// web is nil without HTTP.
	web     *web
	version mcp.Revision
}

func (c cell) String() string {
	var shape fmt.Stringer = c.framing
	if c.web != nil {
		shape = c.web
	}
	return fmt.Sprintf("%s/%v/%v", c.transport, shape, c.version)
}

// cells returns all cells.
func cells() (all []cell) {
	for _, c := range []cell{
		{transport: "memory", bubble: true, pipe: memory},
		{transport: "pipe", pipe: pipes},
		{transport: "child"},
	} {
		for _, c.framing = range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
			for _, c.version = range mcp.Revisions() {
				// The others have all revisions with less processor time.
				if c.transport != "child" || c.version >= mcp.Revision20251125 || soak.Enabled() {
					all = append(all, c)
				}
			}
		}
	}
	for _, c := range []cell{
		{transport: "http1", web: &web{}},
		{transport: "http1", web: &web{stream: true}},
		{transport: "http2", web: &web{h2: true}},
		{transport: "http2", web: &web{h2: true, stream: true}},
		{transport: "http1", web: &web{sse: true}},
	} {
		for _, c.version = range mcp.Revisions() {
			if c.web.supports(c.version) {
				all = append(all, c)
			}
		}
	}
	return all
}

// supports reports whether a revision is tested over w. With HTTP/2, the last revision with
// sessions stands for all of them.
func (w *web) supports(r mcp.Revision) bool {
	switch {
	case w.sse:
		return r == mcp.Revision20241105
	case w.h2:
		return r >= mcp.Revision20251125
	}
	return r >= mcp.Revision20250326
}

// A subtest is a behavior in a cell.
type subtest struct {
	*testing.T
	*features
	cell
	server string
	state  *cellState
}

// A cellState is the state that the behaviors of a cell share.
type cellState struct {
	t      *testing.T
	client *client.Client
}

// testBehaviors tests behaviors in all cells, with a server of servers.
func testBehaviors(t *testing.T, server string, behaviors []behavior) {
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			shared := &cellState{t: t}
			for _, b := range behaviors {
				if b.skipReason(c, featuresOf(c.version)) != "" {
					continue
				}
				t.Run(b.name, func(t *testing.T) {
					if !c.bubble {
						b.run(&subtest{t, featuresOf(c.version), c, server, shared})
						return
					}
					synctest.Test(t, func(t *testing.T) {
						b.run(&subtest{t, featuresOf(c.version), c, server, &cellState{t: t}})
					})
				})
			}
		})
	}
}

func (b *behavior) run(s *subtest) {
	switch {
	case (b.when == nil) != (b.instead == nil):
		s.Fatal("when and instead must be set together")
	case b.when == nil || b.when(s.features):
		b.test(s)
	default:
		b.instead(s)
	}
}

// options returns the options of a client without input capabilities.
func (s *subtest) options() *client.Options {
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

// client returns the client that the behaviors of the cell share. It has the options of s.options.
func (s *subtest) client() *client.Client {
	s.Helper()
	if s.state.client == nil {
		s.state.client = (&subtest{s.state.t, s.features, s.cell, s.server, s.state}).dial(nil)
	}
	return s.state.client
}

// dial connects a new client to a new server.
func (s *subtest) dial(change func(o *client.Options)) *client.Client {
	s.Helper()
	return s.dialAs("", change)
}

// dialAs is dial with a principal.
func (s *subtest) dialAs(principal string, change func(o *client.Options)) *client.Client {
	s.Helper()
	c, err := s.tryDial(s.host(principal), change)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *subtest) tryDial(h *host, change func(o *client.Options)) (*client.Client, error) {
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

func (s *subtest) host(principal string) *host {
	return &host{t: s.T, server: s.server, principal: principal, framing: s.framing, pipe: s.pipe, web: s.web}
}

// peer connects a client whose messages the test writes. It performs the handshake of a legacy
// revision.
func (s *subtest) peer() *mcptest.Peer {
	s.Helper()
	p := s.peerWithoutHandshake()
	if !s.Modern {
		p.Send(mcptest.Initialize(s.revision))
		p.Expect(mcptest.Result(0, `{"protocolVersion":"`+s.revision.String()+`","$any":"$any"}`))
		p.Send(mcptest.Initialized)
	}
	return p
}

// peerWithoutHandshake is peer without the handshake.
func (s *subtest) peerWithoutHandshake() *mcptest.Peer {
	s.Helper()
	f, err := s.host("").connectRaw(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	p := mcptest.NewPeer(s.T, f)
	p.Timeout = time.Minute
	return p
}
