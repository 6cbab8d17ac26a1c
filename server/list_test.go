package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// numbered returns a server with tools 0 to n-1 and the given page size.
func numbered(t *testing.T, n, page int) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{PageSize: page}, AdvertiseKinds: []server.Kind{server.KindTool}})
	for i := range n {
		addNumber(t, srv, i)
	}
	return srv
}

func addNumber(t *testing.T, srv *server.Server, i int) {
	t.Helper()
	if err := server.AddTool(srv, fmt.Sprint(i), "", func(context.Context, empty) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
}

func TestListPages(t *testing.T) {
	for _, tt := range []struct {
		tools, page int
		want        [][]string
	}{
		{0, 2, [][]string{nil}},
		{2, 2, [][]string{{"0", "1"}}},
		{3, 2, [][]string{{"0", "1"}, {"2"}}},
		{4, 1, [][]string{{"0"}, {"1"}, {"2"}, {"3"}}},
		{3, 0, [][]string{{"0", "1", "2"}}},
		{3, -1, [][]string{{"0", "1", "2"}}},
	} {
		t.Run(fmt.Sprintf("%d in %d", tt.tools, tt.page), func(t *testing.T) {
			c := connect(t, numbered(t, tt.tools, tt.page), modern)
			var got [][]string
			for cursor := ""; ; {
				names, next, err := c.list(cursor)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, names)
				if cursor = next; cursor == "" {
					break
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
		})
	}
}

// TestListWhileChanging checks that changes between two pages neither repeat nor skip a tool that
// exists throughout.
func TestListWhileChanging(t *testing.T) {
	srv := numbered(t, 6, 2)
	c := connect(t, srv, modern)
	first, cursor, err := c.list("")
	if err != nil {
		t.Fatal(err)
	}
	srv.RemoveTools("0", "1", "3") // including the one that the cursor names
	addNumber(t, srv, 6)
	addNumber(t, srv, 1) // registered again as a new tool
	second, cursor, err := c.list(cursor)
	if err != nil {
		t.Fatal(err)
	}
	srv.RemoveTools("4")
	third, end, err := c.list(cursor)
	if err != nil {
		t.Fatal(err)
	}
	got := [][]string{first, second, third}
	if diff := cmp.Diff([][]string{{"0", "1"}, {"2", "4"}, {"5", "6"}}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	srv.RemoveTools("0", "1", "2", "3", "4", "5", "6")
	rest, _, err := c.list(end)
	if err != nil || rest != nil {
		t.Errorf("after all are gone: got %v, %v", rest, err)
	}
}

func TestCursors(t *testing.T) {
	srv := numbered(t, 300, 1) // enough for sequence numbers of two bytes
	c := connect(t, srv, modern)
	cursor, seen := "", map[string]bool{}
	for range 200 {
		var err error
		if _, cursor, err = c.list(cursor); err != nil {
			t.Fatal(err)
		}
		if seen[cursor] {
			t.Fatalf("cursor %s came twice", cursor)
		}
		seen[cursor] = true
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		t.Fatalf("cursor %q: %v", cursor, err)
	}
	_, foreign, err := connect(t, numbered(t, 2, 1), modern).list("")
	if err != nil {
		t.Fatal(err)
	}
	forged := map[string]string{
		"another server's": foreign,
		"padded":           cursor + "=",
		"doubled":          cursor + cursor,
		"trailing space":   cursor + " ",
		"line break":       cursor[:4] + "\n" + cursor[4:],
		"only a number":    base64.RawURLEncoding.EncodeToString([]byte{200, 1}),
		"zeros":            base64.RawURLEncoding.EncodeToString(make([]byte, 13)),
	}
	for i := range cursor {
		forged[fmt.Sprintf("cut to %d", i)] = cursor[:i]
	}
	delete(forged, "cut to 0") // not a cursor in this test
	for i := range raw {
		for bit := range 8 {
			b := slices.Clone(raw)
			b[i] ^= 1 << bit
			forged[fmt.Sprintf("bit %d of byte %d", bit, i)] = base64.RawURLEncoding.EncodeToString(b)
		}
	}
	for name, cursor := range forged {
		if names, _, err := c.list(cursor); code(err) != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: got %v, %v; want invalid params", name, names, err)
		}
	}
}

// TestCursorsOfAnotherServer shows that a cursor of one server works at another server with the
// same keys. The list continues after the item of that name, in any order of registration, even if
// it is the last one.
func TestCursorsOfAnotherServer(t *testing.T) {
	keys := stateKeys(t, secret(1))
	open := func(t *testing.T, name string, keys *server.StateKeys, tools ...string) *client {
		t.Helper()
		srv := server.MustNew(name, "1", &server.Options{Limits: server.Limits{PageSize: 2}, StateKeys: keys, AdvertiseKinds: []server.Kind{server.KindTool, server.KindPrompt}})
		for _, tool := range tools {
			if err := server.AddTool(srv, tool, "", func(context.Context, empty) (string, error) { return "", nil }); err != nil {
				t.Fatal(err)
			}
		}
		return connect(t, srv, modern)
	}
	long := strings.Repeat("l", 300)
	for _, tt := range []struct {
		name         string
		here         []string
		there, wants []string
	}{
		{"the same", []string{"a", "b", "c", "d", "e"}, []string{"a", "b", "c", "d", "e"}, []string{"c", "d"}},
		{"more before it", []string{"a", "b", "c", "d"}, []string{"x", "a", "y", "b", "c", "d"}, []string{"c", "d"}},
		{"fewer before it", []string{"a", "b", "c", "d"}, []string{"b", "c", "d"}, []string{"c", "d"}},
		{"another order", []string{"a", "b", "c", "d"}, []string{"d", "c", "b", "a"}, []string{"a"}},
		{"it is the last", []string{"a", "b", "c"}, []string{"c", "a", "b"}, nil},
		{"removed", []string{"a", "b", "c", "d"}, []string{"a", "x", "c", "d"}, []string{"c", "d"}},
		{"all are gone", []string{"a", "b", "c"}, nil, nil},
		{"a long name", []string{"a", long, "c"}, []string{"x", "y", "z", long, "c"}, []string{"c"}},
		{"another long name", []string{"a", long, "c"}, []string{"a", long + "l", "c"}, []string{"c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, cursor, err := open(t, "s", keys, tt.here...).list("")
			if err != nil || cursor == "" {
				t.Fatalf("cursor %q, %v", cursor, err)
			}
			names, _, err := open(t, "s", keys, tt.there...).list(cursor)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.wants, names); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
			for name, c := range map[string]*client{
				"another name": open(t, "other", keys, tt.here...),
				"other keys":   open(t, "s", stateKeys(t, secret(2)), tt.here...),
				"own keys":     open(t, "s", nil, tt.here...),
			} {
				if names, _, err := c.list(cursor); code(err) != jsonrpc.CodeInvalidParams {
					t.Errorf("%s: got %v, %v; want invalid params", name, names, err)
				}
			}
			if _, err := open(t, "s", keys).call(t.Context(), "prompts/list", fmt.Sprintf(`{"cursor":%q}`, cursor)); code(err) != jsonrpc.CodeInvalidParams {
				t.Errorf("the cursor of another list: %v, want invalid params", err)
			}
		})
	}
}

// TestCursorKeysRotate shows that a cached page gets a new cursor when the key is replaced.
func TestCursorKeysRotate(t *testing.T) {
	keys := stateKeys(t, secret(1))
	srv := server.MustNew("s", "1", &server.Options{Limits: server.Limits{PageSize: 1}, StateKeys: keys})
	addNumber(t, srv, 0)
	addNumber(t, srv, 1)
	c := connect(t, srv, modern)
	_, old, err := c.list("")
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Replace(secret(2), secret(1)); err != nil {
		t.Fatal(err)
	}
	_, cursor, err := c.list("")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{old, cursor} {
		if names, _, err := c.list(at); err != nil || !slices.Equal(names, []string{"1"}) {
			t.Errorf("got %v, %v", names, err)
		}
	}
	if err := keys.Replace(secret(2)); err != nil {
		t.Fatal(err)
	}
	if names, _, err := c.list(cursor); err != nil || !slices.Equal(names, []string{"1"}) {
		t.Errorf("got %v, %v", names, err)
	}
	if _, _, err := c.list(old); code(err) != jsonrpc.CodeInvalidParams {
		t.Errorf("the cursor of a key that is gone: %v", err)
	}
}

// TestListConcurrently lists tools in sessions of all revisions while tools are added and removed.
func TestListConcurrently(t *testing.T) {
	srv := numbered(t, 10, 3)
	var wg sync.WaitGroup
	for _, revision := range append(legacyRevisions(), modern) {
		c := connect(t, srv, revision)
		wg.Go(func() {
			for range 50 {
				cursor, names := "", []string(nil)
				for {
					page, next, err := c.list(cursor)
					if err != nil {
						t.Error(err)
						return
					}
					names = append(names, page...)
					if cursor = next; cursor == "" {
						break
					}
				}
				if len(names) < 10 || !slices.Equal(names[:10], []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
					t.Errorf("got %v", names)
				}
			}
		})
	}
	for i := range 100 {
		addNumber(t, srv, 100+i)
		srv.RemoveTools(fmt.Sprint(100 + i))
	}
	wg.Wait()
}
