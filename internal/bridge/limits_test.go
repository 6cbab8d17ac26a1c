package bridge

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// TestServersPerCaller: one caller gets only so many connections to the server, however it asks for them, and leaves the rest to others. Who ends one may have another.
func TestServersPerCaller(t *testing.T) {
	tokens, err := auth.NewStatic(
		auth.StaticToken{Token: "the-token-of-ann-which-is-long", Subject: "ann"},
		auth.StaticToken{Token: "the-token-of-ben-which-is-long", Subject: "ben"},
		auth.StaticToken{Token: "the-token-of-cis-which-is-long", Subject: "cis"},
	)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		t.Fatal(err)
	}
	// open asks for a session that shares with no other, and returns the status and the session.
	n := 0
	open := func(t *testing.T, url, who, way string) (int, string) {
		n++
		header := []string{"Authorization", "Bearer the-token-of-" + who + "-which-is-long"}
		body := strings.Replace(httpHello, `"name":"c"`, fmt.Sprintf(`"name":"c%d"`, n), 1)
		if way == "modern" {
			meta := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"experimental":{"x":{"n":%d}}}}`, n)
			body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`
			header = append(header, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		}
		status, h, text := post(t, url, body, header...)
		if status != 200 {
			if h.Get("Retry-After") != "10" || !strings.Contains(text, "too many sessions with this server") {
				t.Errorf("status %d without Retry-After or reason: %v %s", status, h, text)
			}
			return status, ""
		}
		if !strings.Contains(text, `"result"`) {
			t.Errorf("status 200, and %s", text)
		}
		return status, h.Get("Mcp-Session-Id")
	}
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			b := newBridge(t, &Options{Connect: connectTo(t, EraLegacy.revisions()), ServerEra: EraLegacy, Shared: shared, MaxServers: 7, MaxServersPerCaller: 3})
			url := served(t, b, &streamable.Options{Guard: guard}).URL + "/mcp"
			var got []int
			var last string
			for range 5 {
				status, id := open(t, url, "ann", "legacy")
				if got = append(got, status); id != "" {
					last = id
				}
			}
			for range 4 {
				status, _ := open(t, url, "ben", "legacy")
				got = append(got, status)
			}
			for range 2 {
				status, _ := open(t, url, "cis", "legacy")
				got = append(got, status)
			}
			if diff := cmp.Diff([]int{200, 200, 200, 429, 429, 200, 200, 200, 429, 200, 503}, got); diff != "" {
				t.Fatalf("statuses (-want +got):\n%s", diff)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Mcp-Session-Id", last)
			r.Header.Set("Authorization", "Bearer the-token-of-ann-which-is-long")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if status, _ := open(t, url, "ann", "legacy"); status != 200 {
				t.Errorf("status %d after a session was ended", status)
			}
		})
	}
	t.Run("modern", func(t *testing.T) { // what nobody uses makes room
		b := newBridge(t, &Options{Connect: connectTo(t, EraLegacy.revisions()), ServerEra: EraLegacy, MaxServersPerCaller: 3})
		url := served(t, b, &streamable.Options{Guard: guard}).URL + "/mcp"
		for range 8 {
			if status, _ := open(t, url, "ann", "modern"); status != 200 {
				t.Errorf("status %d", status)
			}
		}
		if n := len(clientsOf(b)); n != 3 {
			t.Errorf("%d clients, want 3", n)
		}
	})
}

// TestServersOfSockets: a client of a socket for which there is no room is told so.
func TestServersOfSockets(t *testing.T) {
	b := newBridge(t, &Options{Connect: connectTo(t, nil), MaxServersPerCaller: 2})
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- b.ServeListener(ctx, l, jsonrpc.FramingLine, 0) }()
	var got []string
	for range 3 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		p := newPipe(t, conn)
		p.send(hello)
		got = append(got, p.read()[:26])
	}
	want := []string{`{"jsonrpc":"2.0","id":0,"r`, `{"jsonrpc":"2.0","id":0,"r`, `{"jsonrpc":"2.0","id":null`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
