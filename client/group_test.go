package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// named returns a server that lists tools in pages of one, and responds to calls with its own name
// and the tool's.
func named(t testing.TB, name string, names ...string) *fakeServer {
	return newFake(t, modernDate, `{}`, map[string]answerer{
		"tools/list": func(_ context.Context, params string) (string, error) {
			at := 0
			fmt.Sscanf(params, `{"cursor":"%d"}`, &at)
			if at == len(names) {
				return tools(), nil
			}
			return strings.TrimSuffix(tools(tool(names[at], "")), "}") + fmt.Sprintf(`,"nextCursor":"%d"}`, at+1), nil
		},
		"tools/call": func(_ context.Context, params string) (string, error) {
			called := jsonwire.Text(jsonwire.Lookup([]byte(params), "name"))
			return `{"content":[` + text(name+" "+called) + `]}`, nil
		},
	})
}

// add adds a client of a server to a group.
func add(t *testing.T, g *Group, name string, s *fakeServer) *Client {
	t.Helper()
	c := s.dial(nil)
	if err := g.Add(name, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func toolNames(list []mcp.Tool) (names []string) {
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names
}

func TestGroupTools(t *testing.T) {
	g := NewGroup(nil)
	add(t, g, "web", named(t, "w", "read", "files__read", "_x", "", "__"))
	add(t, g, "files", named(t, "f", "write", "read", "write"))
	add(t, g, "empty", named(t, "e"))
	if want := []string{"empty", "files", "web"}; !slices.Equal(g.Members(), want) {
		t.Errorf("members: got %q, want %q", g.Members(), want)
	}
	list, err := g.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"files__write", "files__read", "web__read", "web__files__read", "web___x", "web__", "web____"}
	if diff := cmp.Diff(want, toolNames(list)); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
	answers := []string{"f write", "f read", "w read", "w files__read", "w _x", "w ", "w __"}
	for i, name := range want {
		r, err := g.CallTool(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Content[0].(mcp.TextContent).Text; got != answers[i] {
			t.Errorf("%s: got the text %q, want %q", name, got, answers[i])
		}
	}
}

func TestGroupNames(t *testing.T) {
	c := named(t, "x").dial(nil)
	for _, tt := range []struct {
		separator, name string
		ok              bool
	}{
		{"", "a", true}, {"", "a_b", true}, {"", "_a", true}, {"", "a.b", true}, {"", "é", true},
		{"", "", false}, {"", "a__b", false}, {"", "__", false}, {"", "a_", false}, {"", "_", false}, {"", "a", false},
		{".", "a_", true}, {".", "a__b", true}, {".", "a.b", false}, {".", ".", false},
		{"-x-", "a-x", false}, {"-x-", "ax", true}, {"-x-", "a-", true}, {"-x-", "-x-", false}, {"aba", "cab", false}, {"aba", "ca", true},
	} {
		g := NewGroup(&GroupOptions{Separator: tt.separator})
		if !tt.ok && tt.name == "a" {
			if err := g.Add("a", c); err != nil { // the name is in use
				t.Fatal(err)
			}
		}
		err := g.Add(tt.name, c)
		if (err == nil) != tt.ok {
			t.Errorf("separator %q, name %q: got %v, want ok %t", tt.separator, tt.name, err, tt.ok)
		}
		if err != nil {
			continue
		}
		// The member is found for every tool name.
		for _, tool := range []string{"t", "_t", "__t", ".", "-", "", "x-", "ba"} {
			full := tt.name + g.opts.Separator + tool
			if got, name, err := g.Route(full); got != c || name != tool || err != nil {
				t.Errorf("separator %q: %q is routed to tool %q, error %v, want %q", g.opts.Separator, full, name, err, tool)
			}
		}
	}
}

func TestGroupRoute(t *testing.T) {
	g := NewGroup(nil)
	for _, name := range []string{"read", "web__read", "__read", ""} {
		if _, err := g.CallTool(t.Context(), name, nil); !errors.Is(err, ErrNoMember) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	c := add(t, g, "web", named(t, "w"))
	if g.Member("web") != c || g.Member("other") != nil {
		t.Error("Member does not find exactly the members")
	}
	if g.Remove("web") != c || g.Remove("web") != nil || g.Member("web") != nil {
		t.Error("Remove does not return a member exactly once")
	}
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Errorf("a removed client does not work: %v", err)
	}
	if err := g.Add("web", c); err != nil {
		t.Errorf("the name of a removed member is not free: %v", err)
	}
}

// TestGroupOddMembers shows that a server without tools does not affect the list, and that one with
// too many is an error.
func TestGroupOddMembers(t *testing.T) {
	g := NewGroup(nil)
	add(t, g, "good", named(t, "g", "a"))
	add(t, g, "toolless", newFake(t, modernDate, `{"prompts":{}}`, nil))
	list, err := g.Tools(t.Context())
	if got := toolNames(list); !slices.Equal(got, []string{"good__a"}) || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	add(t, g, "broken", newFake(t, modernDate, `{"tools":{}}`, nil))
	if _, err := g.Tools(t.Context()); !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}) {
		t.Errorf("a server with tools whose list fails: %v", err)
	}
	g.Remove("broken")
	description := `,"description":"` + strings.Repeat("x", maxGroupTools/100) + `"`
	n := 0
	add(t, g, "large", newFake(t, modernDate, `{"tools":{}}`, map[string]answerer{"tools/list": func(context.Context, string) (string, error) {
		n++
		return strings.TrimSuffix(tools(tool(fmt.Sprint("large", n), description)), "}") + fmt.Sprintf(`,"nextCursor":"%d"}`, n), nil
	}}))
	list, err = g.Tools(t.Context())
	if e, ok := errors.AsType[*MemberError](err); !ok || e.Member != "large" || len(list) != 1 || n > 101 {
		t.Errorf("got %d tools after %d pages, %v", len(list), n, err)
	}
}

func TestGroupErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(&GroupOptions{ListTimeout: time.Second})
		add(t, g, "good", named(t, "g", "a", "b"))
		broken := named(t, "x", "a", "b")
		broken.answers["tools/list"] = inTurn(broken.answers["tools/list"], fails(jsonrpc.CodeInternalError))
		broken.answers["tools/call"] = fails(jsonrpc.CodeInvalidParams)
		add(t, g, "broken", broken)
		silent := named(t, "s", "a")
		silent.answers["tools/list"] = func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		add(t, g, "silent", silent)

		list, err := g.Tools(t.Context())
		if want := []string{"good__a", "good__b"}; !slices.Equal(toolNames(list), want) {
			t.Errorf("got %q, want %q", toolNames(list), want)
		}
		var failed []string
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			e := err.(*MemberError)
			failed = append(failed, e.Member)
			if peer := IsServerError(e); peer != (e.Member == "broken") || !peer && !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("error: %v", e)
			}
		}
		if want := []string{"broken", "silent"}; !slices.Equal(failed, want) {
			t.Errorf("failed: got %q, want %q", failed, want)
		}
		_, err = g.CallTool(t.Context(), "broken__a", nil)
		if e, ok := errors.AsType[*MemberError](err); !ok || e.Member != "broken" || !IsServerError(err) {
			t.Errorf("call: got %v", err)
		}
	})
}

func TestGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(&GroupOptions{Parallel: 3})
		var now, most atomic.Int32
		for i := range 10 {
			s := named(t, "x", "a")
			inner := s.answers["tools/list"]
			s.answers["tools/list"] = func(ctx context.Context, params string) (string, error) {
				n := now.Add(1)
				defer now.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				elapse(time.Second)
				return inner(ctx, params)
			}
			add(t, g, fmt.Sprintf("m%d", i), s)
		}
		list, err := g.Tools(t.Context())
		if len(list) != 10 || err != nil {
			t.Errorf("got %d tools, %v", len(list), err)
		}
		if most.Load() != 3 {
			t.Errorf("%d members had requests at once, want 3", most.Load())
		}
	})
}

func TestGroupClose(t *testing.T) {
	g := NewGroup(nil)
	a, b, c := add(t, g, "a", named(t, "a")), add(t, g, "b", named(t, "b")), named(t, "c").dial(nil)
	for range 2 {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, member := range []*Client{a, b} {
		select {
		case <-member.Done():
		default:
			t.Error("a member was not closed")
		}
	}
	if err := g.Add("c", c); !errors.Is(err, jsonrpc.ErrClosed) {
		t.Errorf("Add: got %v", err)
	}
	if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
		t.Errorf("a client that was not added was closed: %v", err)
	}
}

// downFor returns a transport whose first attempts fail, and the number of attempts.
func downFor(failures int32, err error, s *fakeServer) (Transport, *atomic.Int32) {
	attempts := new(atomic.Int32)
	return TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
		if attempts.Add(1) <= failures {
			return nil, err
		}
		return s.Connect(ctx)
	}), attempts
}

func TestGroupDial(t *testing.T) {
	down := errors.New("down")
	for _, tt := range []struct {
		name     string
		failures int32
		err      error
		opts     GroupOptions
		// attempts are those within an hour.
		attempts  int32
		connected bool
	}{
		{"up", 0, nil, GroupOptions{}, 1, true},
		{"down once", 1, down, GroupOptions{}, 2, true},
		{"down for minutes", 20, down, GroupOptions{}, 21, true},
		{"down for good", 1000, down, GroupOptions{}, 100, false},
		{"few attempts", 1000, down, GroupOptions{MaxDials: 3}, 3, false},
		{"no limit", 105, down, GroupOptions{MaxDials: -1}, 106, true},
		{"cannot reconnect", 1, fmt.Errorf("x: %w", ErrNoReconnect), GroupOptions{}, 1, false},
		{"incompatible", 1, &IncompatibleError{}, GroupOptions{}, 1, false},
		{"stopped", 1000, down, GroupOptions{OnDialError: func(string, error) bool { return false }}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				changes := 0
				tt.opts.OnToolsChanged = func() { changes++ }
				g := NewGroup(&tt.opts)
				defer g.Close()
				s := named(t, "s", "a")
				transport, attempts := downFor(tt.failures, tt.err, s)
				err := g.Dial(t.Context(), "m", transport, nil)
				if e, ok := errors.AsType[*MemberError](err); ok != (tt.failures > 0) || ok && (e.Member != "m" || !errors.Is(err, tt.err)) {
					t.Errorf("Dial: got %v", err)
				}
				if c := g.Member("m"); (c == nil) != (tt.failures > 0) {
					t.Errorf("Member: got %v", c)
				}
				if err := g.Dial(t.Context(), "m", transport, nil); err == nil {
					t.Error("the name is not taken")
				}
				elapse(time.Hour)
				synctest.Wait()
				list, err := g.Tools(t.Context())
				_, callErr := g.CallTool(t.Context(), "m__a", nil)
				if !tt.connected && (!errors.Is(err, tt.err) || !errors.Is(callErr, tt.err)) || tt.connected && (err != nil || callErr != nil) {
					t.Errorf("after an hour: list: %v; call: %v", err, callErr)
				}
				want := map[bool]int{true: 1}[tt.connected]
				if len(list) != want || changes != want || attempts.Load() != tt.attempts {
					t.Errorf("got %d tools, %d changes, %d attempts, want %d, %d, %d", len(list), changes, attempts.Load(), want, want, tt.attempts)
				}
				if err := g.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				s.wg.Wait()
			})
		})
	}
}

// TestGroupDialEnds shows that Remove and Close end the attempts, also one that hangs, and that the
// context of Dial ends its wait only.
func TestGroupDialEnds(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		for _, end := range []func(*Group){func(g *Group) { g.Remove("m") }, func(g *Group) { g.Close() }} {
			synctest.Test(t, func(t *testing.T) {
				g := NewGroup(nil)
				attempts := 0
				transport := TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
					if attempts++; hangs {
						<-ctx.Done()
					}
					return nil, errors.New("down")
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				err := g.Dial(ctx, "m", transport, nil)
				if hangs != errors.Is(err, context.DeadlineExceeded) || hangs != (time.Since(start) == time.Second) {
					t.Errorf("hangs %t: Dial returned after %v: %v", hangs, time.Since(start), err)
				}
				elapse(5 * time.Minute)
				synctest.Wait()
				if attempts < 5 {
					t.Errorf("hangs %t: got %d attempts in five minutes", hangs, attempts)
				}
				end(g)
				synctest.Wait()
				before := attempts
				elapse(time.Hour)
				synctest.Wait()
				if attempts != before {
					t.Errorf("hangs %t: %d attempts after the end", hangs, attempts-before)
				}
				g.Close()
				if err := g.Dial(t.Context(), "n", transport, nil); !errors.Is(err, jsonrpc.ErrClosed) {
					t.Errorf("Dial after Close: got %v", err)
				}
			})
		}
	}
	g := NewGroup(nil)
	defer g.Close()
	for _, tt := range []struct {
		name string
		opts *Options
	}{{"", nil}, {"a__b", nil}, {"m", &Options{Revisions: []mcp.Revision{99}}}} {
		if err := g.Dial(t.Context(), tt.name, named(t, "s"), tt.opts); err == nil {
			t.Errorf("%q, %v: no error", tt.name, tt.opts)
		}
	}
}

// TestGroupRedial shows that a member that ends for good connects again, unless it was closed.
func TestGroupRedial(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			changes := 0
			g := NewGroup(&GroupOptions{OnToolsChanged: func() { changes++ }})
			s := named(t, "s", "a")
			if err := g.Dial(t.Context(), "m", s, &Options{Reconnect: ReconnectPolicy{Disabled: true}}); err != nil {
				t.Fatal(err)
			}
			c := g.Member("m")
			if closed {
				c.Close()
			} else {
				s.crash()
			}
			elapse(time.Minute)
			synctest.Wait()
			_, err := g.CallTool(t.Context(), "m__a", nil)
			if closed != errors.Is(err, jsonrpc.ErrClosed) || closed != (g.Member("m") == c) {
				t.Errorf("closed %t: got %v", closed, err)
			}
			if want := map[bool]int{true: 2, false: 3}[closed]; changes != want {
				t.Errorf("closed %t: got %d changes, want %d", closed, changes, want)
			}
			g.Close()
			s.wg.Wait()
		})
	}
}

func TestGroupToolsChanged(t *testing.T) {
	const changed = "notifications/tools/list_changed"
	for _, revision := range []string{legacyDate, modernDate} {
		for _, capabilities := range []string{`{"tools":{"listChanged":true}}`, `{"tools":{}}`} {
			t.Run(revision+capabilities, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					changes := 0
					g := NewGroup(&GroupOptions{OnToolsChanged: func() { changes++ }})
					s := newFake(t, revision, capabilities, nil)
					params := ""
					s.answers = map[string]answerer{"subscriptions/listen": func(ctx context.Context, _ string) (string, error) {
						meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + idOf(ctx) + `}`
						s.notify("notifications/subscriptions/acknowledged", `{"notifications":{"toolsListChanged":true},`+meta+`}`)
						params = `{` + meta + `}`
						<-ctx.Done()
						return "", ctx.Err()
					}}
					c := add(t, g, "m", s)
					want := 0
					check := func(what string, more int) {
						synctest.Wait()
						if want += more; changes != want {
							t.Errorf("%s: got %d changes, want %d", what, changes, want)
						}
					}
					check("added", 0)
					announces := 0
					if strings.Contains(capabilities, "true") {
						announces = 1
					}
					for range 2 {
						s.notify(changed, params)
						check("changed", announces)
					}
					s.crash()
					elapse(time.Minute)
					check("reconnected", announces)
					s.notify(changed, params)
					check("changed after a reconnect", announces)
					g.Remove("m")
					synctest.Wait()
					s.notify(changed, params)
					check("changed after Remove", 0)
					if err := g.Add("again", c); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					s.notify(changed, params)
					check("added again", announces)
					g.Close()
				})
			})
		}
	}
}
