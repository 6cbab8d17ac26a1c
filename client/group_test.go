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
			called, _ := stringValue(jsonwire.Lookup([]byte(params), "name"))
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
			if peer := IsPeer(e); peer != (e.Member == "broken") || !peer && !errors.Is(e, context.DeadlineExceeded) {
				t.Errorf("error: %v", e)
			}
		}
		if want := []string{"broken", "silent"}; !slices.Equal(failed, want) {
			t.Errorf("failed: got %q, want %q", failed, want)
		}
		_, err = g.CallTool(t.Context(), "broken__a", nil)
		if e, ok := errors.AsType[*MemberError](err); !ok || e.Member != "broken" || !IsPeer(err) {
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
