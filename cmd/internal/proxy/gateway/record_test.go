package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestRecord checks that both sides of each message are recorded once, and linked.
func TestRecord(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := fullServer("up", mcp.LatestRevision)
				defer srv.Close(context.Background())
				var file bytes.Buffer
				w := capture.NewWriter(&file, nil)
				g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", srv)}, Record: w})
				c := dialStream(t, g, fullClientOptions(revision))
				if _, err := client.CallTool[string](t.Context(), c, "up__form", nil); err != nil {
					t.Fatal(err)
				}
				c.Close()
				g.Close()
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				checkRecord(t, &file, revision.Modern())
			})
		})
	}
}

// checkRecord checks the events of a call of up__form.
func checkRecord(t *testing.T, file io.Reader, modern bool) {
	t.Helper()
	r := capture.NewReader(file, nil)
	names := map[uint64]string{}
	sides := map[capture.Side]map[uint64]bool{capture.Downstream: {}, capture.Upstream: {}}
	counts := map[string]int{}
	var links []string
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case capture.KindMessage:
			sides[e.Side][e.Session] = true
			m := new(jsonrpc.Message)
			if err := jsonrpc.Parse(e.Data, m, 0); err != nil {
				t.Fatal(err)
			}
			name, _ := m.Param("name")
			names[e.N] = fmt.Sprint(e.Side, " ", string(m.Method), string(name))
			counts[names[e.N]]++
		case capture.KindTranslate:
			for _, to := range e.Translation.To {
				links = append(links, names[e.Translation.Of]+" > "+names[to])
			}
		}
	}
	if n := len(sides[capture.Downstream]); n != 1 {
		t.Errorf("got %d clients, want 1", n)
	}
	call := `downstream tools/call"up__form"`
	want := map[string]int{call: 1, `upstream tools/call"form"`: 2}
	if modern {
		want[call] = 2 // the call is retried with the input
	}
	for name, n := range want {
		if counts[name] != n {
			t.Errorf("%s was recorded %d times, want %d", name, counts[name], n)
		}
	}
	found := 0
	for _, l := range links {
		if l == call+` > upstream tools/call"form"` {
			found++
		}
	}
	if diff := cmp.Diff(2, found); diff != "" && modern {
		t.Errorf("links of the call (-want +got):\n%s\n%q", diff, links)
	}
	if found == 0 {
		t.Errorf("the call is not linked: %q", links)
	}
}
