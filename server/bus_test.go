package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
	"mcpwire/server"
)

// busServer returns a server on a bus, with one of each primitive. It is closed when the test ends.
func busServer(t *testing.T, bus server.Bus, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Bus: bus}
	if change != nil {
		change(o)
	}
	srv := server.MustNew("node", "1", o)
	must(t,
		server.AddTool(srv, "t", "", func(context.Context, struct{}) (string, error) { return "", nil }),
		server.AddResource(srv, mcp.Resource{URI: "lib://a", Name: "a"}, server.Static("")),
		server.AddPrompt(srv, mcp.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil }),
		server.AddTool(srv, "pay", "", func(context.Context, struct{}) (string, error) {
			return "", mcp.URLElicitationRequired(mcp.ElicitRequestParams{Message: "Pay", URL: "https://example.com/pay", ElicitationID: "e1"})
		}))
	t.Cleanup(func() {
		if err := srv.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return srv
}

const listenAll = `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["lib://a"]}}`

// TestBus shows that a change that one server announces reaches the clients of each server once.
func TestBus(t *testing.T) {
	noTool := func(context.Context, struct{}) (string, error) { return "", nil }
	for what, tt := range map[string]struct {
		do   func(srv *server.Server) error
		want []string
	}{
		"a tool":       {func(srv *server.Server) error { return server.AddTool(srv, "new", "", noTool) }, []string{"tools/list_changed"}},
		"tool removed": {func(srv *server.Server) error { srv.RemoveTools("t"); return nil }, []string{"tools/list_changed"}},
		"a prompt":     {func(srv *server.Server) error { return server.AddPrompt(srv, mcp.Prompt{Name: "new"}, noTool) }, []string{"prompts/list_changed"}},
		"a resource": {func(srv *server.Server) error {
			return server.AddResource(srv, mcp.Resource{URI: "lib://n", Name: "n"}, server.Static(""))
		}, []string{"resources/list_changed"}},
		"a template": {func(srv *server.Server) error {
			return server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "n://{x}", Name: "n"}, noTemplate)
		}, []string{"resources/list_changed"}},
		"an update":                     {func(srv *server.Server) error { srv.ResourceUpdated("lib://a"); return nil }, []string{"resources/updated lib://a"}},
		"an update of a part":           {func(srv *server.Server) error { srv.ResourceUpdated("lib://a/b"); return nil }, []string{"resources/updated lib://a/b"}},
		"an update without subscribers": {func(srv *server.Server) error { srv.ResourceUpdated("lib://b"); return nil }, nil},
		"other views": {func(srv *server.Server) error { srv.ListsChanged(); return nil },
			[]string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"}},
		"another view of this user": {func(srv *server.Server) error { srv.ListsChanged("nobody", "u"); return nil },
			[]string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"}},
		"another view of others": {func(srv *server.Server) error { srv.ListsChanged("nobody"); return nil }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			// the delay keeps events from being merged
			bus := &recordingBus{Bus: server.NewMemoryBus(), publish: func(context.Context) error { elapse(time.Second); return nil }}
			as := server.WithPrincipalID(context.Background(), "u")
			here, there := busServer(t, bus, nil), busServer(t, bus, nil)
			var clients []*client
			for _, srv := range []*server.Server{here, there} {
				listener, legacy := connectIn(as, t, srv, modern), connectIn(as, t, srv, "2025-11-25")
				listener.listen(t.Context(), listenAll)
				legacy.must("resources/subscribe", `{"uri":"lib://a"}`)
				clients = append(clients, listener, legacy)
			}
			for _, c := range clients {
				c.takeNotes()
			}
			must(t, tt.do(here))
			elapse(time.Minute)
			synctest.Wait()
			for i, c := range clients {
				if diff := cmp.Diff(tt.want, c.notifications()); diff != "" {
					t.Errorf("%s, client %d (-want +got):\n%s", what, i, diff)
				}
			}
		})
	}
}

// notifications returns the notifications of the client in short form.
func (c *client) notifications() (all []string) {
	for _, note := range c.takeNotes() {
		method, params, _ := strings.Cut(strings.TrimPrefix(note, "notifications/"), " ")
		var p struct{ URI, ElicitationID, TaskID string }
		_ = json.Unmarshal([]byte(params), &p)
		all = append(all, strings.TrimSpace(method+" "+p.URI+p.ElicitationID+p.TaskID))
	}
	slices.Sort(all)
	return all
}

// A lossyBus loses events: lose has the number of events to lose by kind.
type lossyBus struct {
	server.Bus
	mu   sync.Mutex
	lose map[server.EventKind]int
}

func (b *lossyBus) Publish(ctx context.Context, message []byte) error {
	var e server.Event
	if err := json.Unmarshal(message, &e); err != nil {
		return err
	}
	b.mu.Lock()
	lost := b.lose[e.Kind] > 0
	if lost {
		b.lose[e.Kind]--
	}
	b.mu.Unlock()
	if lost {
		return nil
	}
	return b.Bus.Publish(ctx, message)
}

// TestBusLosesEvents shows that the clients of other servers are notified of a change within 10
// seconds if the bus loses the event and some of the next ones, and not again after that.
func TestBusLosesEvents(t *testing.T) {
	tool := func(context.Context, struct{}) (string, error) { return "", nil }
	for what, tt := range map[string]struct {
		kind server.EventKind
		do   func(srv *server.Server) error
		want []string
	}{
		"a tool":   {server.EventTools, func(srv *server.Server) error { return server.AddTool(srv, "new", "", tool) }, []string{"tools/list_changed"}},
		"a prompt": {server.EventPrompts, func(srv *server.Server) error { return server.AddPrompt(srv, mcp.Prompt{Name: "new"}, tool) }, []string{"prompts/list_changed"}},
		"a resource": {server.EventResources, func(srv *server.Server) error {
			return server.AddResource(srv, mcp.Resource{URI: "lib://n", Name: "n"}, server.Static(""))
		}, []string{"resources/list_changed"}},
		"an update": {server.EventResource, func(srv *server.Server) error { srv.ResourceUpdated("lib://a"); return nil }, []string{"resources/updated lib://a"}},
		"views": {server.EventView, func(srv *server.Server) error { srv.ListsChanged("nobody"); return nil },
			[]string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			bus := &lossyBus{Bus: server.NewMemoryBus(), lose: map[server.EventKind]int{}}
			here, there := busServer(t, bus, nil), busServer(t, bus, nil)
			connect(t, here, modern)
			listener, legacy := connect(t, there, modern), connect(t, there, "2025-11-25")
			listener.listen(t.Context(), listenAll)
			legacy.must("resources/subscribe", `{"uri":"lib://a"}`)
			clients := []*client{listener, legacy}
			expect := func(when string, want []string) {
				t.Helper()
				synctest.Wait()
				for i, c := range clients {
					if diff := cmp.Diff(want, c.notifications()); diff != "" {
						t.Errorf("%s, %s, client %d (-want +got):\n%s", what, when, i, diff)
					}
				}
			}
			elapse(time.Minute)
			for _, c := range clients {
				c.takeNotes()
			}
			for range 2 { // the server's first event, and a later one
				bus.mu.Lock()
				bus.lose[tt.kind], bus.lose["sent"] = 1, 1
				bus.mu.Unlock()
				must(t, tt.do(here))
				expect("at once", nil)
				elapse(10 * time.Second)
				expect("10 s later", tt.want)
				elapse(time.Hour)
				expect("an hour later", nil)
				here.RemoveTools("new")
				here.RemovePrompts("new")
				here.RemoveResources("lib://n")
				elapse(time.Minute)
				for _, c := range clients {
					c.takeNotes()
				}
			}
		})
	}
}

// TestBusLate shows that a client is notified of events that its server missed because its
// subscription began late, and that a server that starts after the events sends no notifications.
func TestBusLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := server.NewMemoryBus()
		here := busServer(t, bus, nil)
		connect(t, here, modern)
		synctest.Wait()
		begin := make(chan struct{})
		late := busServer(t, &recordingBus{Bus: bus, subscribe: func(int) error { <-begin; return nil }}, nil)
		c := connect(t, late, modern)
		c.listen(t.Context(), listenAll)
		c.takeNotes()
		here.ResourceUpdated("lib://a")
		synctest.Wait()
		close(begin)
		elapse(10 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"resources/updated lib://a"}, c.notifications()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}

		new := busServer(t, bus, nil)
		first := connect(t, new, modern)
		elapse(100 * time.Millisecond)
		first.listen(t.Context(), listenAll)
		first.takeNotes()
		elapse(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string(nil), first.notifications()); diff != "" {
			t.Errorf("a new server (-want +got):\n%s", diff)
		}
	})
}

// TestBusElicitation checks that any server may serve the page that completes an elicitation.
func TestBusElicitation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := server.NewMemoryBus()
		here, there := busServer(t, bus, nil), busServer(t, bus, nil)
		connect(t, here, modern)
		c := connect(t, there, modern)
		c.revision = "2025-11-25"
		c.must("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"url":{}}},"clientInfo":{"name":"x","version":"1"}}`)
		must(t, c.conn.Notify(t.Context(), "notifications/initialized", nil))
		if _, err := c.tool("pay", "{}"); code(err) != mcp.CodeURLElicitationRequired {
			t.Fatalf("got %v", err)
		}
		for range 2 {
			here.ElicitationComplete("e0")
			here.ElicitationComplete("e1")
			synctest.Wait()
		}
		if diff := cmp.Diff([]string{"elicitation/complete e1"}, c.notifications()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestBusTasks shows that the other server sends notifications of a task to its owner and to
// clients that name the task.
func TestBusTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &recordingBus{Bus: server.NewMemoryBus()}
		store := server.NewTaskStore()
		tasks := func(o *server.Options) { o.Tasks = &server.TaskOptions{Store: store} }
		here, there := busServer(t, bus, tasks), busServer(t, bus, tasks)
		for _, srv := range []*server.Server{here, there} {
			addTaskTool(t, srv, "work", func(ctx context.Context, _ *server.Call) (string, error) { elapse(time.Second); return "", nil })
		}
		owner := dialTasks(t, there, coreTasks, "u")
		other := dialTasks(t, there, coreTasks, "v")
		named := dialTasks(t, there, modern, "u")
		core := dialTasks(t, here, coreTasks, "u").start("work", "").TaskID
		extension := dialTasks(t, here, modern, "u").start("work", "").TaskID
		// a task of a session without a principal
		nobodys := dialTasks(t, here, coreTasks, "").start("work", "").TaskID
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go named.conn.Call(ctx, "subscriptions/listen", []byte(`{`+extensionMeta+`,"notifications":{"taskIds":["`+extension+`"]}}`))
		elapse(2 * time.Second)
		synctest.Wait()
		for who, tt := range map[string]struct {
			c    *taskClient
			want string
		}{"owner": {owner, core}, "other": {other, ""}, "named": {named, extension}} {
			notes := strings.Join(tt.c.takeNotes(), "\n")
			if tt.want != "" && (!strings.Contains(notes, tt.want) || !strings.Contains(notes, `"completed"`)) {
				t.Errorf("%s: got %s", who, notes)
			}
			for _, id := range []string{core, extension, nobodys} {
				if id != tt.want && strings.Contains(notes, id) {
					t.Errorf("%s was notified of another task: %s", who, notes)
				}
			}
		}
		for _, e := range bus.events() {
			if e.Name == nobodys {
				t.Errorf("published: %+v", e)
			}
		}
	})
}

// A recordingBus is an in-memory Bus that records events and can fail. It always delivers events
// that only announce counts.
type recordingBus struct {
	server.Bus
	publish   func(ctx context.Context) error // called first, if not nil; an error is returned
	subscribe func(attempt int) error         // called first; an error is returned
	attempts  atomic.Int32

	mu  sync.Mutex
	all []server.Event
}

func (b *recordingBus) Publish(ctx context.Context, message []byte) error {
	var e server.Event
	if err := json.Unmarshal(message, &e); err != nil {
		return err
	}
	if e.Kind == "sent" || e.Kind == "ask" {
		return b.Bus.Publish(ctx, message)
	}
	b.mu.Lock()
	b.all = append(b.all, e)
	b.mu.Unlock()
	if b.publish != nil {
		if err := b.publish(ctx); err != nil {
			return err
		}
	}
	return b.Bus.Publish(ctx, message)
}

func (b *recordingBus) Subscribe(ctx context.Context, deliver func([]byte)) error {
	if n := b.attempts.Add(1); b.subscribe != nil {
		if err := b.subscribe(int(n)); err != nil {
			return err
		}
	}
	return b.Bus.Subscribe(ctx, deliver)
}

func (b *recordingBus) events() []server.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSlowBus shows that a slow bus delays no request, that equal events are published once, and
// that the queue is limited.
func TestSlowBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		bus := &recordingBus{Bus: server.NewMemoryBus(), publish: hang}
		srv := busServer(t, bus, func(o *server.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		connect(t, srv, modern)
		synctest.Wait()
		srv.ResourceUpdated("lib://first")
		synctest.Wait() // the publishing goroutine has taken the event
		srv.ResourceUpdated("lib://" + strings.Repeat("x", 8<<10))
		began := time.Now()
		for i := range 10_000 {
			srv.ResourceUpdated("lib://a")
			srv.ResourceUpdated(fmt.Sprint("lib://", i))
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("waited %v", d)
		}
		elapse(24 * time.Hour)
		synctest.Wait()
		if n := len(bus.events()); n != 1+4096 {
			t.Errorf("%d events were published", n)
		}
		if slices.ContainsFunc(bus.events(), func(e server.Event) bool { return len(e.Name) > 8<<10 }) {
			t.Error("a long name was published")
		}
		for _, want := range []string{"deadline exceeded", "kind=resource", "or too large\" number=5906"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q", want)
			}
		}
		if n := strings.Count(log.String(), "\n"); n > 10 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// TestBusFails shows that a bus that fails or panics loses only the events passed to it, and that a
// failed subscription is repeated.
func TestBusFails(t *testing.T) {
	for _, fail := range []func() error{
		func() error { return errors.New("bus is down") },
		func() error { panic("bus is down") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			down := true
			bus := &recordingBus{Bus: server.NewMemoryBus(),
				publish: func(context.Context) error {
					if down {
						return fail()
					}
					return nil
				},
				subscribe: func(attempt int) error {
					if attempt < 10 {
						return fail()
					}
					return nil
				},
			}
			logged := func(o *server.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
			here, there := busServer(t, bus, nil), busServer(t, bus, logged)
			connect(t, here, modern)
			c := connect(t, there, modern)
			c.listen(t.Context(), listenAll)
			elapse(5 * time.Minute)
			if n := bus.attempts.Load(); n < 10 || n > 12 {
				t.Errorf("subscribed %d times", n)
			}
			c.takeNotes()
			there.ResourceUpdated("lib://b")
			here.ResourceUpdated("lib://a")
			synctest.Wait()
			if got := c.notifications(); got != nil {
				t.Errorf("got %q", got)
			}
			down = false
			here.ResourceUpdated("lib://a")
			synctest.Wait()
			if diff := cmp.Diff([]string{"resources/updated lib://a"}, c.notifications()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, want := range []string{"subscribing again", "event not published", "bus is down"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %q:\n%s", want, &log)
				}
			}
		})
	}
}

// TestBusResubscribes shows that the server uses a backoff for a failing bus.
func TestBusResubscribes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		last := time.Now()
		bus := &recordingBus{Bus: server.NewMemoryBus(), subscribe: func(attempt int) error {
			waits = append(waits, time.Since(last))
			if attempt == 12 {
				elapse(time.Hour)
			}
			last = time.Now()
			return errors.New("bus is down")
		}}
		srv := busServer(t, bus, nil)
		connect(t, srv, modern)
		elapse(90 * time.Minute)
		synctest.Wait()
		var want []time.Duration
		for _, ms := range []int{0, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 100, 200, 400} {
			want = append(want, time.Duration(ms)*time.Millisecond)
		}
		if diff := cmp.Diff(want, waits[:len(want)]); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestBusBeginAndEnd shows that nothing is published before the server serves or after it is
// closed. Events that are queued at Close are published if there is time.
func TestBusBeginAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		bus := &recordingBus{Bus: server.NewMemoryBus(), publish: func(context.Context) error { <-slow; return nil }}
		srv := busServer(t, bus, nil)
		srv.ResourceUpdated("lib://early")
		if n := bus.attempts.Load(); n != 0 {
			t.Errorf("subscribed %d times before there is a client", n)
		}
		c := connect(t, srv, modern)
		synctest.Wait()
		for i := range 3 {
			srv.ResourceUpdated(fmt.Sprint("lib://", i))
		}
		closed := make(chan error)
		go func() { closed <- srv.Close(context.Background()) }()
		synctest.Wait()
		srv.ResourceUpdated("lib://late")
		close(slow)
		must(t, <-closed)
		connect(t, srv, modern)
		synctest.Wait()
		srv.ResourceUpdated("lib://later")
		// connections continue after Close
		must(t, c.conn.Notify(t.Context(), "notifications/x", nil))
		synctest.Wait()
		var names []string
		for _, e := range bus.events() {
			names = append(names, e.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"lib://0", "lib://1", "lib://2"}, names); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if n := bus.attempts.Load(); n != 1 {
			t.Errorf("subscribed %d times", n)
		}
	})
}

// TestBusHangs checks that the server abandons a bus that does not return.
func TestBusHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		bus := &recordingBus{Bus: server.NewMemoryBus(), publish: func(context.Context) error { <-released; return nil }}
		srv := busServer(t, bus, nil)
		connect(t, srv, modern)
		synctest.Wait()
		srv.ResourceUpdated("lib://a")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := srv.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		if err := srv.Close(context.Background()); err == nil || !strings.Contains(err.Error(), "does not return") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("took %v", d)
		}
		close(released)
	})
}

// TestBusForeignEvents shows that the server ignores unknown events, and events about items that
// its clients must not see.
func TestBusForeignEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := server.NewMemoryBus()
		srv := server.MustNew("empty", "1", &server.Options{Bus: bus})
		defer srv.Close(context.Background())
		as := server.WithPrincipalID(context.Background(), "u")
		c := connectIn(as, t, srv, "2025-11-25")
		c.revision = modern
		c.listen(t.Context(), listenAll)
		c.takeNotes()
		for _, kind := range []server.EventKind{server.EventTools, server.EventResources, server.EventPrompts, server.EventView,
			server.EventResource, server.EventTask, server.EventElicitation, "", "telepathy"} {
			message, err := json.Marshal(server.Event{From: "x", Kind: kind, Name: "lib://a", Owner: "principal u"})
			must(t, err)
			must(t, bus.Publish(t.Context(), message))
		}
		must(t, bus.Publish(t.Context(), []byte("no JSON")))
		synctest.Wait()
		if got := c.notifications(); got != nil {
			t.Errorf("got %q", got)
		}
	})
}

// TestTaskUpdated shows the message about a task, and that servers of different versions understand
// each other: unknown members are ignored.
func TestTaskUpdated(t *testing.T) {
	task := server.Task{ID: "n", Owner: "o"}
	if got, want := string(server.TaskUpdated(&task)), `{"from":"","kind":"task","name":"n"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	task.Core = true
	text := server.TaskUpdated(&task)
	if want := `{"from":"","kind":"task","name":"n","owner":"o"}`; string(text) != want {
		t.Errorf("core task: got %s, want %s", text, want)
	}
	var back server.Event
	must(t, json.Unmarshal([]byte(`{"later":1,`+string(text[1:])), &back))
	if want := (server.Event{Kind: server.EventTask, Name: "n", Owner: "o"}); back != want {
		t.Errorf("got %+v, want %+v", back, want)
	}
}

// BenchmarkNoBus measures the cost of announcements without Options.Bus.
func BenchmarkNoBus(b *testing.B) {
	srv := server.MustNew("x", "1", nil)
	b.ReportAllocs()
	for b.Loop() {
		srv.ResourceUpdated("lib://a")
	}
}
