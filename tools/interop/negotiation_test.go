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

// revisionsOf parses revisions for the options of our client.
func revisionsOf(names ...string) (all []mcp.Revision) {
	for _, name := range names {
		r, _ := mcp.ParseRevision(name)
		all = append(all, r)
	}
	return all
}

// The requests with which a client detects the revisions of a server.
const (
	probed    = "server/discover"
	handshake = "initialize"
)

// A negotiation is a case of [TestNegotiation]: a client, a server and the negotiated revision.
type negotiation struct {
	name            string
	peer            *peer
	serverRevisions []string // the revisions of the server; nil means all that it supports
	clientRevisions []string // the revisions of our client; nil means all
	want            string   // the negotiated revision; empty means that they have none in common
	methods         []string // the requests of the negotiation
}

// TestNegotiation checks that our client detects the revisions of servers, with server/discover or,
// where that fails, with the handshake in the same process.
func TestNegotiation(t *testing.T) {
	for _, tt := range []negotiation{
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

// run dials twice: without a profile, and with the profile of the first connection.
func (tt negotiation) run(t *testing.T) {
	t.Parallel()
	s := tt.peer.launch(t, tt.serverRevisions...)
	ctx, cancel := context.WithTimeout(t.Context(), tourTimeout)
	defer cancel()
	c, err := client.Dial(ctx, s.transport(), &client.Options{Revisions: revisionsOf(tt.clientRevisions...)})
	var got string
	if incompatible := (*client.IncompatibleError)(nil); err == nil {
		got = c.Revision().String()
	} else if !errors.As(err, &incompatible) {
		t.Fatalf("dial: %v", err)
	}
	if got != tt.want {
		t.Errorf("revision = %q, want %q (%v)", got, tt.want, err)
	}
	if err == nil {
		dialWithProfile(ctx, t, tt.peer, tt.serverRevisions, c.Profile())
		c.Close()
	}
	s.checkGone()
	s.audit(1, tt.peer.racyDeviations(s, tt.want)...)
	if diff := cmp.Diff(tt.methods, s.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// dialWithProfile dials with the profile of an earlier connection, which makes the probe
// unnecessary.
func dialWithProfile(ctx context.Context, t *testing.T, p *peer, serverRevisions []string, profile client.Profile) {
	t.Helper()
	text, err := json.Marshal(profile)
	if err != nil {
		t.Fatal(err)
	}
	var known client.Profile
	if err := json.Unmarshal(text, &known); err != nil {
		t.Fatal(err)
	}
	s := p.launch(t, serverRevisions...)
	c, err := client.Dial(ctx, s.transport(), &client.Options{Profile: &known})
	if err != nil {
		t.Fatalf("dial with the profile %s: %v", text, err)
	}
	defer c.Close()
	if got, err := client.CallTool[string](ctx, c, "echo", map[string]string{"text": "again"}); err != nil || got != "again" {
		t.Errorf("echo with the profile %s = %q, %v, want %q", text, got, err, "again")
	}
	c.Close()
	want := []string{"initialize", "tools/call"}
	switch {
	case profile.Revision.Modern():
		want = []string{"tools/call"}
	case s.web != nil && s.web.path == ssePath:
		// The client must detect the transport again.
		want = []string{"initialize", "initialize", "tools/call"}
	}
	if diff := cmp.Diff(want, s.requests()); diff != "" {
		t.Errorf("requests with a profile (-want +got):\n%s", diff)
	}
	s.audit(1, p.racyDeviations(s, profile.Revision.String())...)
}

// racyDeviations returns the deviations of a peer over HTTP. In a short session only some of them
// occur.
func (p *peer) racyDeviations(s *recordedServer, revision string) []deviation {
	if s.web == nil || p.deviations == nil {
		return nil
	}
	known := p.deviations(revision)
	for i := range known {
		known[i].racy = true
	}
	return known
}

// requests returns the methods of the requests of the host, in order.
func (s *recordedServer) requests() (methods []string) {
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

// TestUndeclared calls tools that send input requests, with a client that has not declared the
// capabilities. Our client rejects the requests that servers send nevertheless.
func TestUndeclared(t *testing.T) {
	const unchecked = "the SDK leaves the check of capabilities to servers"
	sends := deviation{rule: serverRequest, has: "has not declared", why: unchecked}
	zeroCode := deviation{rule: serverResponse, has: `"code":0`, why: "errors of handlers that are not JSON-RPC errors get the code 0"}
	for _, tt := range []undeclaredCase{
		{ours, latestLegacy, nil},
		{ours, modern, nil},
		{goSDKPeer, latestLegacy, []deviation{sends, zeroCode}},
		{goSDKPeer, modern, []deviation{sends}},
		{mcpGoPeer, latestLegacy, []deviation{sends}},
		{mcpGoPeer, modern, []deviation{sends}},
		{typeScript1Peer, latestLegacy, []deviation{sends}},
		{typeScript2Peer, latestLegacy, nil},
		{typeScript2Peer, modern, nil},
	} {
		t.Run(tt.peer.name+" "+tt.revision, tt.run)
	}
}

// An undeclaredCase is a case of [TestUndeclared].
type undeclaredCase struct {
	peer     *peer
	revision string
	known    []deviation
}

func (tt undeclaredCase) run(t *testing.T) {
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
		rpcErr, toolErr, protocolErr := (*jsonrpc.Error)(nil), (*client.ToolError)(nil), (*client.ProtocolError)(nil)
		switch {
		case tt.revision != modern:
			if !errors.As(err, &rpcErr) && !errors.As(err, &toolErr) {
				t.Errorf("%s: error = %v, want a JSON-RPC error or a tool error", tool, err)
			}
		case len(tt.known) > 0:
			if !errors.As(err, &protocolErr) {
				t.Errorf("%s: error = %v, want a protocol error", tool, err)
			}
		case !errors.As(err, &rpcErr) || rpcErr.Code != -32021:
			t.Errorf("%s: error = %v, want code -32021", tool, err)
		}
	}
	c.Close()
	s.audit(1, tt.known...)
}
