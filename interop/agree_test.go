package interop

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// revisionsOf are the revisions that our client is configured with.
func revisionsOf(names ...string) (all []mcp.Revision) {
	for _, name := range names {
		r, _ := mcp.ParseRevision(name)
		all = append(all, r)
	}
	return all
}

// The requests by which a client detects the revisions of a server.
const (
	probed    = "server/discover"
	handshake = "initialize"
)

// An agreement is the result of negotiation between a client and a server.
type agreement struct {
	name    string
	peer    *peer
	speaks  []string // the server; nothing is all that it can
	wants   []string // our client, likewise
	want    string   // nothing if there is no agreement
	methods []string // the requests by which they come to it
}

// TestAgreement has our client detect the revisions of servers: by server/discover or, where that
// fails, by the handshake in the same process.
func TestAgreement(t *testing.T) {
	for _, tt := range []agreement{
		{"ours", ours, nil, nil, modern, []string{probed}},
		{"ours, legacy server", ours, legacyRevisions, nil, latestLegacy, []string{probed, handshake}},
		{"ours, old server", ours, []string{"2024-11-05"}, nil, "2024-11-05", []string{probed, handshake}},
		{"ours, modern server, legacy client", ours, []string{modern}, legacyRevisions, "", []string{handshake}},
		{"ours, old client", ours, nil, []string{"2024-11-05"}, "2024-11-05", []string{handshake}},
		{"go-sdk", goSDKPeer, nil, nil, modern, []string{probed}},
		{"go-sdk, legacy server", goSDKPeer, legacyRevisions, nil, latestLegacy, []string{probed, handshake}},
		{"go-sdk, old server", goSDKPeer, []string{"2024-11-05"}, nil, "2024-11-05", []string{probed, handshake}},
		{"go-sdk, modern server", goSDKPeer, []string{modern}, nil, modern, []string{probed}},
		{"go-sdk, modern client", goSDKPeer, nil, []string{modern}, modern, []string{probed}},
		{"go-sdk, old server, newer client", goSDKPeer, []string{"2024-11-05"}, []string{"2025-03-26", latestLegacy}, "", []string{handshake}},
		{"mcp-go", mcpGoPeer, nil, nil, modern, []string{probed}},
		{"mcp-go, old client", mcpGoPeer, nil, []string{"2024-11-05"}, "2024-11-05", []string{handshake}},
		{"TypeScript 1", typeScript1Peer, nil, nil, latestLegacy, []string{probed, handshake}},
		{"TypeScript 1, modern client", typeScript1Peer, nil, []string{modern}, "", []string{probed}},
		{"TypeScript 2", typeScript2Peer, nil, nil, modern, []string{probed}},
		{"TypeScript 2, modern server", typeScript2Peer, []string{modern}, nil, modern, []string{probed}},
		{"TypeScript 2, modern server, legacy client", typeScript2Peer, []string{modern}, legacyRevisions, "", []string{handshake}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// run dials, twice.
func (tt agreement) run(t *testing.T) {
	t.Parallel()
	s := tt.peer.launch(t, tt.speaks...)
	ctx, cancel := context.WithTimeout(t.Context(), tourTimeout)
	defer cancel()
	c, err := client.Dial(ctx, s.transport(), &client.Options{Revisions: revisionsOf(tt.wants...)})
	var got string
	if incompatible := (*client.IncompatibleError)(nil); err == nil {
		got = c.Revision().String()
	} else if !errors.As(err, &incompatible) {
		t.Fatalf("dial: %v", err)
	}
	if got != tt.want {
		t.Errorf("revision: got %q, want %q (%v)", got, tt.want, err)
	}
	if err == nil {
		again(ctx, t, tt.peer, tt.speaks, c.Profile())
		c.Close()
	}
	s.checkGone()
	s.audit(1, tt.peer.mayDeviate(s, tt.want)...)
	if diff := cmp.Diff(tt.methods, s.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// again dials with the profile of an earlier dial, which spares the probe.
func again(ctx context.Context, t *testing.T, p *peer, speaks []string, outcome client.Profile) {
	t.Helper()
	text, err := json.Marshal(outcome)
	if err != nil {
		t.Fatal(err)
	}
	var known client.Profile
	if err := json.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	s := p.launch(t, speaks...)
	c, err := client.Dial(ctx, s.transport(), &client.Options{Profile: &known})
	if err != nil {
		t.Fatalf("with the profile %s: %v", text, err)
	}
	defer c.Close()
	if got, err := client.CallTool[string](ctx, c, "echo", map[string]string{"text": "again"}); err != nil || got != "again" {
		t.Errorf("with the profile %s: echo: %q, %v", text, got, err)
	}
	c.Close()
	want := []string{"initialize", "tools/call"}
	switch {
	case outcome.Revision.Modern():
		want = []string{"tools/call"}
	case s.web != nil && s.web.path == oldPath:
		want = []string{"initialize", "initialize", "tools/call"} // the client must detect the transport again
	}
	if diff := cmp.Diff(want, s.requests()); diff != "" {
		t.Errorf("requests with a profile (-want +got):\n%s", diff)
	}
	s.audit(1, p.mayDeviate(s, outcome.Revision.String())...)
}

// mayDeviate are the deviations of a peer over HTTP. A short session shows only
// some of them.
func (p *peer) mayDeviate(s *witnessed, revision string) []deviation {
	if s.web == nil || p.deviations == nil {
		return nil
	}
	known := p.deviations(revision)
	for i := range known {
		known[i].racy = true
	}
	return known
}

// requests returns the methods of the requests of one host of s, in order.
func (s *witnessed) requests() (methods []string) {
	if s.web != nil {
		return s.web.requests()
	}
	for _, events := range s.transcripts() {
		for _, e := range events {
			if e.Kind != toServer {
				continue
			}
			if m, err := parse(e.Line); err == nil && m.isRequest() {
				methods = append(methods, m.Method)
			}
		}
	}
	return methods
}

// TestUndeclared has servers send input requests to a client without these capabilities. Requests
// that servers send nevertheless reveal nothing.
func TestUndeclared(t *testing.T) {
	const careless = "capabilities are left for servers to look at"
	asks := deviation{rule: serverRequest, has: "has not declared", why: careless}
	coded := deviation{rule: serverAnswer, has: `"code":0`, why: "errors of handlers that are none of JSON-RPC get the code 0"}
	for _, tt := range []undeclared{
		{ours, latestLegacy, nil},
		{ours, modern, nil},
		{goSDKPeer, latestLegacy, []deviation{asks, coded}},
		{goSDKPeer, modern, []deviation{asks}},
		{mcpGoPeer, latestLegacy, []deviation{asks}},
		{mcpGoPeer, modern, []deviation{asks}},
		{typeScript1Peer, latestLegacy, []deviation{asks}},
		{typeScript2Peer, latestLegacy, nil},
		{typeScript2Peer, modern, nil},
	} {
		t.Run(tt.peer.name+" "+tt.revision, tt.run)
	}
}

// undeclared is a server whose requests need capabilities that the client has not declared.
type undeclared struct {
	peer     *peer
	revision string
	known    []deviation
}

func (tt undeclared) run(t *testing.T) {
	t.Parallel()
	s := tt.peer.launch(t)
	ctx, cancel := context.WithTimeout(t.Context(), tourTimeout)
	defer cancel()
	c, err := client.Dial(ctx, s.transport(), &client.Options{Revisions: revisionsOf(tt.revision)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tool := range []string{"ask", "visit", "sample", "roots"} {
		_, err := client.CallTool[string](ctx, c, tool, nil)
		refusal, failure, broken := (*jsonrpc.Error)(nil), (*client.ToolError)(nil), (*client.ProtocolError)(nil)
		switch {
		case tt.revision != modern:
			if !errors.As(err, &refusal) && !errors.As(err, &failure) {
				t.Errorf("%s: got %v", tool, err)
			}
		case len(tt.known) > 0:
			if !errors.As(err, &broken) {
				t.Errorf("%s: got %v, want that the server broke the protocol", tool, err)
			}
		case !errors.As(err, &refusal) || refusal.Code != -32021:
			t.Errorf("%s: got %v, want code -32021", tool, err)
		}
	}
	c.Close()
	s.audit(1, tt.known...)
}
