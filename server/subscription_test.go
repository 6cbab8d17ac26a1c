package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

const (
	// null means absent
	listenTools = `{"notifications":{"toolsListChanged":true,"promptsListChanged":null,"resourceSubscriptions":null,"taskIds":null}}`
	listenNone  = `{"notifications":{"promptsListChanged":true}}`
)

// listen opens a subscription in the background, and sends its outcome to the channel.
func (c *client) listen(ctx context.Context, params string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := c.call(ctx, "subscriptions/listen", params)
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// TestListChanged checks that exactly the entitled clients are notified.
//
// Spec: S114 S115
func TestListChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := numbered(t, 1, 0)
		clients := map[string]*client{
			"legacy":                    connect(t, srv, "2024-11-05"),
			"legacy and subscribed":     connect(t, srv, "2025-11-25"),
			"modern":                    connect(t, srv, modern),
			"modern, listening":         connect(t, srv, modern),
			"subscribed to other lists": connect(t, srv, modern),
		}
		both := clients["legacy and subscribed"]
		both.revision = modern // modern from here on
		both.listen(t.Context(), listenTools)
		clients["modern, listening"].listen(t.Context(), listenTools)
		clients["modern, listening"].listen(t.Context(), listenTools)
		clients["subscribed to other lists"].listen(t.Context(), listenNone)
		for _, c := range clients {
			c.takeNotes()
		}
		addNumber(t, srv, 1)
		synctest.Wait()
		want := map[string][]string{
			"legacy": {"1 × notifications/tools/list_changed "},
			"legacy and subscribed": {
				"1 × notifications/tools/list_changed ",
				`1 × notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":2}}`,
			},
			"modern": nil,
			"modern, listening": {
				`1 × notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`,
				`1 × notifications/tools/list_changed {"_meta":{"io.modelcontextprotocol/subscriptionId":2}}`,
			},
			"subscribed to other lists": nil,
		}
		for name, c := range clients {
			if diff := cmp.Diff(want[name], counted(c.takeNotes())); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		srv.RemoveTools("none") // changes nothing
		synctest.Wait()
		for name, c := range clients {
			if got := c.takeNotes(); got != nil {
				t.Errorf("%s: got %q", name, got)
			}
		}
	})
}

func TestTooManySubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, numbered(t, 1, 0), modern)
		ctx, cancel := context.WithCancel(t.Context())
		first := c.listen(ctx, listenNone)
		for range 63 {
			c.listen(t.Context(), listenNone)
		}
		if err := <-c.listen(t.Context(), listenTools); code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "limit 64") {
			t.Errorf("the 65th: %v", err)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		synctest.Wait()
		again := c.listen(t.Context(), listenNone)
		select {
		case err := <-again:
			t.Errorf("after one was given up: %v", err)
		default:
		}
		if _, err := c.tool("0", "{}"); err != nil {
			t.Errorf("a call beside them: %v", err)
		}
	})
}

// TestChangesWithoutAReader shows that a peer that does not read costs one goroutine, for any
// number of changes, and gets one notification of them when it reads.
func TestChangesWithoutAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := numbered(t, 1, 0)
		local, remote := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- srv.Serve(t.Context(), jsonrpc.NewFramer(remote, nil)) }()
		c := &client{t: t, revision: "2025-06-18", served: served}
		send := func(text string) {
			if _, err := local.Write([]byte(text + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, 1<<16)
		send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
		if _, err := local.Read(buf); err != nil {
			t.Fatal(err)
		}
		send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range 1000 {
			addNumber(t, srv, 1+i)
			synctest.Wait()
		}
		if more := runtime.NumGoroutine() - before; more > 2 {
			t.Errorf("%d more goroutines", more)
		}
		received := 0
		for {
			local.SetReadDeadline(time.Now().Add(time.Second))
			n, err := local.Read(buf)
			if err != nil {
				break
			}
			received += strings.Count(string(buf[:n]), "list_changed")
		}
		if received != 2 {
			t.Errorf("got %d notifications, want one for the first change and one for all others", received)
		}
		local.Close()
		if err := <-c.served; err != nil {
			t.Error(err)
		}
	})
}

// TestSubscriptionEnds shows that each subscription gets its result when the server ends, and that
// this is not logged as an error.
func TestSubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log records
		srv := server.MustNew("test", "1", &server.Options{Logger: log.logger(slog.LevelWarn)})
		local, remote := net.Pipe()
		ctx, stop := context.WithCancelCause(t.Context())
		c := &client{t: t, revision: modern, served: make(chan error, 1)}
		go func() { c.served <- srv.Serve(ctx, jsonrpc.NewFramer(remote, nil)) }()
		c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &rpc.Options{Handler: c, Cancellation: cancellation{}})
		go c.conn.Run(t.Context())
		given, giveUp := context.WithCancel(t.Context())
		gone := c.listen(given, listenTools)
		ends := c.listen(t.Context(), listenTools)
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled subscription: %v", err)
		}
		synctest.Wait()
		why := errors.New("maintenance")
		stop(why)
		if err := <-ends; err != nil {
			t.Errorf("the one that ended: %v", err)
		}
		if err := <-c.served; !errors.Is(err, why) {
			t.Errorf("Serve: %v", err)
		}
		c.conn.Close()
		if log.String() != "" {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// TestServeMany runs many sessions on one server, and shows that the end of one does not affect the
// others.
func TestServeMany(t *testing.T) {
	srv := numbered(t, 1, 0)
	stays := connect(t, srv, modern)
	for _, revision := range append(legacyRevisions(), modern) {
		t.Run(revision, func(t *testing.T) {
			for range 5 {
				c := connect(t, srv, revision)
				if _, err := c.tool("0", "{}"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if _, err := stays.tool("0", "{}"); err != nil {
		t.Error(fmt.Errorf("after the others ended: %w", err))
	}
}

// A stuck is a Framer on which a write of list_changed blocks until release is closed, even after
// Close.
type stuck struct {
	in      chan string
	release chan struct{}
}

func (s *stuck) ReadFrame() ([]byte, error) {
	text, ok := <-s.in
	if !ok {
		return nil, io.EOF
	}
	return []byte(text), nil
}

func (s *stuck) WriteFrame(msg []byte) error {
	if strings.Contains(string(msg), "list_changed") {
		<-s.release
	}
	return nil
}

func (s *stuck) Close() error { return nil }

// TestStuckWrite shows that a write that cannot be interrupted blocks neither Serve nor Close.
func TestStuckWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := numbered(t, 1, 0)
		f := &stuck{in: make(chan string), release: make(chan struct{})}
		served := make(chan error, 1)
		began := time.Now()
		go func() { served <- srv.Serve(t.Context(), f) }()
		f.in <- `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`
		f.in <- `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		synctest.Wait()
		addNumber(t, srv, 1)
		synctest.Wait()
		close(f.in)
		<-served
		if d := time.Since(began); d > time.Minute {
			t.Errorf("Serve took %v", d)
		}
		addNumber(t, srv, 2)
		close(f.release)
	})
}

// watchable returns a server with n resources.
func watchable(t *testing.T) *server.Server {
	srv := server.MustNew("test", "1", nil)
	must(t, server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "n:{x}", Name: "numbers"},
		func(_ context.Context, vars server.Vars) (string, error) { return vars.Get("x"), nil }))
	return srv
}

// TestTooManyWatched shows that a connection can watch 1024 resources, by either kind of
// subscription.
func TestTooManyWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := watchable(t)
		c := connect(t, srv, "2025-06-18")
		for i := range 1000 {
			c.must("resources/subscribe", fmt.Sprintf(`{"uri":"n:%d"}`, i))
		}
		c.revision = modern
		uris := func(n int) string {
			return `{"notifications":{"resourceSubscriptions":["n:l` + strings.Join(numbers(n), `","n:l`) + `"]}}`
		}
		refused := func(what string, err error) {
			t.Helper()
			if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "limit 1024") {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("25 more", <-c.listen(t.Context(), uris(25)))
		refused("1025 at once", <-connect(t, srv, modern).listen(t.Context(), uris(1025)))
		ctx, cancel := context.WithCancel(t.Context())
		c.listen(ctx, uris(24))
		c.revision = "2025-06-18"
		_, err := c.call(t.Context(), "resources/subscribe", `{"uri":"n:x"}`)
		refused("one more", err)
		c.must("resources/subscribe", `{"uri":"n:1"}`) // already watched
		c.must("resources/unsubscribe", `{"uri":"n:1"}`)
		c.must("resources/subscribe", `{"uri":"n:x"}`)
		cancel()
		synctest.Wait()
		c.must("resources/subscribe", `{"uri":"n:y"}`)
	})
}

// TestHiddenPartsHoweverSpelled shows that a client that watches a folder is not notified of hidden
// resources in it, in any spelling of the URI.
//
// Spec: S120
func TestHiddenPartsHoweverSpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := viewed(t)
		must(t,
			server.AddResource(srv, mcp.Resource{URI: "a:x", Name: "n"}, server.Static("")),
			server.AddResource(srv, mcp.Resource{URI: "a:x/secret", Name: "n"}, server.Static("")),
			server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "a:x/secrets/{id}", Name: "n"}, noTemplate))
		as := asUser("resource a:x")
		c := connectIn(as, t, srv, "2025-11-25")
		c.must("resources/subscribe", `{"uri":"a:x"}`)
		for _, uri := range []string{"a:x/%73ecret", "a:x/secrets/1", "a:x/%73ecrets/1", "a:x/other"} {
			srv.ResourceUpdated(uri)
			synctest.Wait()
		}
		if diff := cmp.Diff([]string{`notifications/resources/updated {"uri":"a:x/other"}`}, c.takeNotes()); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
	})
}

// TestPanicInViewOfAnUpdate checks that a View that panics on an update hides the update, without
// other effects.
func TestPanicInViewOfAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := server.NewView(func(_ server.Kind, name string) bool {
			if name == "a:x/bad" {
				panic("ouch")
			}
			return true
		})
		srv := server.MustNew("test", "1", &server.Options{View: func(context.Context, string) *server.View { return view }})
		for _, uri := range []string{"a:x", "a:x/bad", "a:x/good"} {
			must(t, server.AddResource(srv, mcp.Resource{URI: uri, Name: "n"}, server.Static("")))
		}
		c := connect(t, srv, "2025-11-25")
		c.must("resources/subscribe", `{"uri":"a:x"}`)
		srv.ResourceUpdated("a:x/bad")
		synctest.Wait()
		srv.ResourceUpdated("a:x/good")
		synctest.Wait()
		if diff := cmp.Diff([]string{`notifications/resources/updated {"uri":"a:x/good"}`}, c.takeNotes()); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
	})
}

// TestWatchEndsWithTheSession shows that a session that has ended gets no notifications.
func TestWatchEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := watchable(t)
		gone, stays := connect(t, srv, "2025-06-18"), connect(t, srv, "2025-11-25")
		gone.must("resources/subscribe", `{"uri":"n:1"}`)
		stays.must("resources/subscribe", `{"uri":"n:1"}`)
		gone.conn.Close()
		synctest.Wait()
		srv.ResourceUpdated("n:1")
		synctest.Wait()
		if got := gone.takeNotes(); got != nil {
			t.Errorf("the ended session got %q", got)
		}
		if diff := cmp.Diff([]string{`notifications/resources/updated {"uri":"n:1"}`}, stays.takeNotes()); diff != "" {
			t.Errorf("the other session (-want +got):\n%s", diff)
		}
	})
}

// TestWatchedResourceRemoved shows that a removed resource can still be watched, and that clients
// can unsubscribe from it.
func TestWatchedResourceRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := watchable(t)
		c := connect(t, srv, "2024-11-05")
		c.must("resources/subscribe", `{"uri":"n:1"}`)
		srv.RemoveResourceTemplates("n:{x}")
		srv.ResourceUpdated("n:1")
		synctest.Wait()
		want := []string{"1 × notifications/resources/list_changed ", `1 × notifications/resources/updated {"uri":"n:1"}`}
		if diff := cmp.Diff(want, counted(c.takeNotes())); diff != "" {
			t.Errorf("notifications (-want +got):\n%s", diff)
		}
		c.must("resources/unsubscribe", `{"uri":"n:1"}`)
		srv.ResourceUpdated("n:1")
		synctest.Wait()
		if got := c.takeNotes(); got != nil {
			t.Errorf("got %q", got)
		}
	})
}
