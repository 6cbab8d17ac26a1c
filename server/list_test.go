package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// numbered returns a server with tools 0 to n-1, in pages of the given size.
func numbered(t *testing.T, n, page int) *server.Server {
	t.Helper()
	srv := server.New("test", "1", &server.Options{PageSize: page, Declare: []server.Kind{server.KindTool}})
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

// TestListWhileChanging sees that changes between two pages neither repeat nor skip a tool that was there throughout.
func TestListWhileChanging(t *testing.T) {
	srv := numbered(t, 6, 2)
	c := connect(t, srv, modern)
	first, cursor, err := c.list("")
	if err != nil {
		t.Fatal(err)
	}
	srv.RemoveTools("0", "1", "3") // the one the cursor names among them
	addNumber(t, srv, 6)
	addNumber(t, srv, 1) // it comes back, as a new one
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
		"blank behind":     cursor + " ",
		"line break":       cursor[:4] + "\n" + cursor[4:],
		"only a number":    base64.RawURLEncoding.EncodeToString([]byte{200, 1}),
		"zeros":            base64.RawURLEncoding.EncodeToString(make([]byte, 13)),
	}
	for i := range cursor {
		forged[fmt.Sprintf("cut to %d", i)] = cursor[:i]
	}
	delete(forged, "cut to 0") // that is no cursor in this test
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

// TestListConcurrently has sessions of all revisions list while tools come and go.
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
