package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// serveSilent answers all requests of a client but those of a method, or never answers if that is
// "".
func serveSilent(f jsonrpc.Framer, silent string) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		m := new(jsonrpc.Message)
		must(jsonrpc.Parse(append([]byte(nil), frame...), m, 0))
		if silent == "" || m.Kind != jsonrpc.KindRequest || string(m.Method) == silent {
			continue
		}
		reply := jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
		if string(m.Method) == mcp.MethodInitialize {
			reply = jsonrpc.AppendResult(nil, m.ID, []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}`))
		}
		if f.WriteFrame(reply) != nil {
			return
		}
	}
}

// A mortalServer is a server whose connections can be ended, and which then refuses others for a
// time.
type mortalServer struct {
	connect func(context.Context, io.Writer) (jsonrpc.Framer, error)

	mu    sync.Mutex
	open  []io.Closer
	until time.Time
}

func (s *mortalServer) dial(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil, errors.New("no such program")
	}
	f, err := s.connect(ctx, w)
	s.open = append(s.open, f)
	return f, err
}

func (s *mortalServer) kill(down time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.open {
		f.Close()
	}
	s.open, s.until = nil, time.Now().Add(down)
}

// TestDeadUpstreams checks that upstreams that fail in all phases, again and again, hold the lists
// of clients of both eras once, and that those that come back are listed.
func TestDeadUpstreams(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, upstream := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			t.Run(fmt.Sprint(revision, " to ", upstream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testDeadUpstreams(t, revision, upstream) })
			})
		}
	}
}

func testDeadUpstreams(t *testing.T, revision, upstream mcp.Revision) {
	scripted := func(name, silent string) Upstream {
		u := streamUpstream(name, nil)
		u.Bridge.Connect = func(context.Context, io.Writer) (jsonrpc.Framer, error) {
			ours, theirs := net.Pipe()
			go serveSilent(jsonrpc.NewFramer(theirs, nil), silent)
			return jsonrpc.NewFramer(ours, nil), nil
		}
		return u
	}
	connecting, refusing := streamUpstream("connecting", nil), streamUpstream("refusing", nil)
	connecting.Bridge.Connect = func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refusing.Bridge.Connect = func(context.Context, io.Writer) (jsonrpc.Framer, error) { return nil, errors.New("no such program") }
	all := []Upstream{connecting, scripted("mute", ""), scripted("unlisted", mcp.MethodToolsList), refusing}
	var mortals []*mortalServer
	want := ""
	for i := range 7 {
		name := fmt.Sprint("m", i)
		u := streamUpstream(name, appServer(name, i%2 == 0, upstream))
		m := &mortalServer{connect: u.Bridge.Connect}
		u.Bridge.Connect, mortals = m.dial, append(mortals, m)
		all = append(all, u)
		want += name + "__chart "
	}
	g := newGateway(t, &Options{Upstreams: all})
	defer g.Close()
	c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}, Extensions: appsDeclared})
	defer c.Close()
	slow := []time.Duration{}
	charts := func() (names string) {
		began := time.Now()
		for _, name := range strings.Fields(toolNames(t, c)) {
			if strings.HasSuffix(name, "__chart") {
				names += name + " "
			}
		}
		if d := time.Since(began); d > 0 {
			slow = append(slow, d)
		}
		return names
	}
	const lists = 1800
	for i := range lists {
		charts()
		if i%20 == 10 {
			mortals[i/20%len(mortals)].kill(time.Duration(i%3) * time.Second)
		}
		go c.CallTool(t.Context(), fmt.Sprintf("m%d__open", i%len(mortals)), map[string]string{"URI": "x"})
		time.Sleep(50 * time.Millisecond)
	}
	// The handshake has waited once for those that were dead at the start. A list may meet a server
	// that is being connected again while another connection to it works.
	if p99 := len(slow) <= lists/100; !p99 || len(slow) > 0 && slices.Max(slow) >= time.Second {
		t.Errorf("%d of %d lists had to wait: %v", len(slow), lists, slow)
	}
	time.Sleep(time.Minute)
	if got := charts(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSlowStarts checks that many servers that take long to start do not start all at once, that
// neither their timeouts nor lists end a start, and that all are listed in the end.
func TestSlowStarts(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		synctest.Test(t, func(t *testing.T) {
			const servers, start = 40, 8 * time.Second
			var mu sync.Mutex
			connections, starting, most := 0, 0, 0
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				connections += max(n, 0)
				starting += n
				most = max(most, starting)
			}
			var all []Upstream
			want := ""
			for i := range servers {
				name := fmt.Sprint("u", i)
				u, srv := streamUpstream(name, nil), toolServer(name, "x")
				u.Bridge.Connect = func(context.Context, io.Writer) (jsonrpc.Framer, error) {
					count(1)
					ours, theirs := net.Pipe()
					go func() {
						time.Sleep(start)
						count(-1)
						srv.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
					}()
					return jsonrpc.NewFramer(ours, nil), nil
				}
				all = append(all, u)
				want += " " + name + "__x"
			}
			g := newGateway(t, &Options{Upstreams: all})
			defer g.Close()
			c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}})
			defer c.Close()
			for range 10 * servers / maxStarts() {
				toolNames(t, c)
				time.Sleep(time.Second)
			}
			if got := toolNames(t, c); got != want[1:] {
				t.Errorf("got %q, want %q", got, want[1:])
			}
			if most > maxStarts() || connections != servers {
				t.Errorf("%d servers were started %d times, up to %d at once, want up to %d", servers, connections, most, maxStarts())
			}
		})
	}
}
