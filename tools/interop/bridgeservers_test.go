package interop

import (
	"maps"
	"strings"
	"testing"

	"mcpwire/capture"
)

// A bridgeSide is a server of one era behind the bridge.
type bridgeSide struct {
	name            string
	peer            *peer    // the server without a bridge
	serverRevisions []string // the revisions that it is configured for, if it has that option
	modern          bool     // its era
	http            bool     // the transport is HTTP
	flags           []string // of the bridge, if the server supports both eras
	// older is a revision of our client, in addition to the latest of each era. With HTTP+SSE, it
	// replaces the latest legacy one.
	older string

	// quirks are the names of the peer's quirks that tours need here.
	quirks []string
	// lost are further quirks that the bridge causes for this peer, with the reason. A quirk that
	// no tour needs fails the test.
	lost map[string]string
	// through are the peer's deviations that remain when the bridge translates. Within an era, all
	// remain.
	through []deviation
}

var (
	upstreamLegacy = []string{"--server-era", "legacy"}
	upstreamModern = []string{"--server-era", "modern"}
)

// inFlight are deviations of a server before it reads a cancellation, which the bridge sends while
// the next request is in flight.
var inFlight = []deviation{
	{rule: serverProgress, has: "for no pending request", why: "progress of a call whose cancellation is in flight", racy: true},
	{rule: serverListen, has: "change for a canceled subscription", why: "a change while another subscription replaces this one", racy: true},
	{rule: serverListen, has: "update of a resource without subscription", why: "an update of a resource while the request to unsubscribe is in flight", racy: true},
}

// Deviations that remain when the bridge translates.
var (
	queued          = deviation{rule: serverProgress, has: "response after", why: "some progress comes after the result, or is lost", racy: true}
	unknownAsResult = deviation{rule: checkRule("tools/unknown-as-result"), has: "no_such_tool", why: "a call of an unknown tool got a result"}
)

var bridgeSides = []bridgeSide{
	{name: "ours, legacy, stdio", peer: ours, serverRevisions: legacyRevisions, older: "2024-11-05"},
	{name: "ours, modern, stdio", peer: ours, serverRevisions: []string{modern}, modern: true, older: "2025-03-26"},
	{name: "ours, legacy, HTTP", http: true, peer: ourWeb(webPath, nil), serverRevisions: legacyRevisions, older: "2025-06-18"},
	{name: "ours, modern, HTTP", http: true, peer: ourWeb(webPath, nil), serverRevisions: []string{modern}, modern: true, older: "2024-11-05"},
	{name: "ours, HTTP+SSE", http: true, peer: ourWeb(ssePath, nil), older: "2024-11-05"},

	{name: "go-sdk, legacy, stdio", peer: goSDKPeer, serverRevisions: legacyRevisions, older: "2025-06-18",
		quirks: []string{"resources cannot send input requests to legacy clients", "no tasks in 2025-11-25"}},
	{name: "go-sdk, modern, stdio", peer: goSDKPeer, flags: upstreamModern, modern: true, older: "2024-11-05",
		quirks: []string{"no tasks in 2026-07-28"},
		lost:   map[string]string{"one subscription ends the others": "it keeps one subscription for each connection, and removes it when any subscription ends"}},
	{name: "go-sdk, legacy, HTTP", http: true, peer: goSDKWeb(webPath, legacyRevisions), flags: upstreamLegacy, older: "2025-03-26",
		quirks: []string{"content of later revisions", "resources cannot send input requests to legacy clients", "no tasks in 2025-11-25"}},
	{name: "go-sdk, modern, HTTP", http: true, peer: goSDKWeb(webPath, []string{modern}, statelessArg), flags: upstreamModern, modern: true, older: "2025-06-18",
		quirks: []string{"no tasks in 2026-07-28"}},
	{name: "go-sdk, HTTP+SSE", http: true, peer: goSDKWeb(ssePath, legacyRevisions), older: "2024-11-05",
		quirks: []string{"content of later revisions", "resources cannot send input requests to legacy clients", "no tasks in 2025-11-25"}},

	{name: "mcp-go, legacy, stdio", peer: mcpGoPeer, flags: upstreamLegacy, older: "2025-03-26",
		quirks:  []string{"late progress", "late log", "content of later revisions", "handlers cannot report an unknown resource", "resources cannot send input requests", "tasks cannot send input requests"},
		through: []deviation{queued}},
	{name: "mcp-go, modern, stdio", peer: mcpGoPeer, flags: upstreamModern, modern: true, older: "2025-06-18",
		quirks:  []string{"late progress", "late log", "handlers cannot report an unknown resource", "resources cannot send input requests", "changes without subscription id", "no tasks in 2026-07-28"},
		through: []deviation{queued}},
	{name: "mcp-go, legacy, HTTP", http: true, peer: mcpGoWeb(webPath, allRevisions), flags: upstreamLegacy, older: "2024-11-05",
		quirks:  []string{"lost log", "unreliable progress", "content of later revisions", "handlers cannot report an unknown resource", "resources cannot send input requests", "tasks cannot send input requests"},
		through: []deviation{queued}},
	{name: "mcp-go, modern, HTTP", http: true, peer: mcpGoWeb(webPath, allRevisions), flags: upstreamModern, modern: true, older: "2025-03-26",
		quirks:  []string{"lost log", "unreliable progress", "handlers cannot report an unknown resource", "resources cannot send input requests", "updates without subscription id", "no tasks in 2026-07-28"},
		through: []deviation{queued}},

	{name: "TypeScript 1, legacy, stdio", peer: typeScript1Peer, older: "2025-06-18",
		quirks: []string{"an unknown tool is a tool error"}},
	{name: "TypeScript 1, legacy, HTTP", http: true, peer: typeScript1Web(webPath), older: "2025-03-26",
		quirks:  []string{"an unknown tool is a tool error", "content of later revisions"},
		lost:    map[string]string{"late log": "log messages use the stream of GET, so some come after the response, when a modern client ignores them"},
		through: []deviation{unknownAsResult}},
	{name: "TypeScript 1, HTTP+SSE", http: true, peer: typeScript1Web(ssePath), older: "2024-11-05",
		quirks:  []string{"an unknown tool is a tool error", "content of later revisions"},
		through: []deviation{unknownAsResult}},
	{name: "TypeScript 2, legacy, stdio", peer: typeScript2Peer, flags: upstreamLegacy, older: "2024-11-05",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "TypeScript 2, modern, stdio", peer: typeScript2Peer, serverRevisions: []string{modern}, modern: true, older: "2025-06-18",
		quirks: []string{"no tasks in 2026-07-28"}},
	{name: "TypeScript 2, legacy, HTTP", http: true, peer: typeScript2Web(), flags: upstreamLegacy, older: "2025-03-26",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "TypeScript 2, modern, HTTP", http: true, peer: typeScript2Web(), flags: upstreamModern, modern: true, older: "2025-03-26",
		quirks: []string{"no tasks in 2026-07-28"}},

	{name: "Python, legacy, stdio", peer: pythonPeer, flags: upstreamLegacy, older: "2025-06-18",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "Python, modern, stdio", peer: pythonPeer, flags: upstreamModern, modern: true, older: "2025-03-26",
		quirks: []string{"no tasks in 2026-07-28"}},
	{name: "Python, legacy, HTTP", http: true, peer: pythonWeb(nil), flags: upstreamLegacy, older: "2024-11-05",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "Python, modern, HTTP", http: true, peer: pythonWeb(nil), flags: upstreamModern, modern: true, older: "2025-06-18",
		quirks: []string{"no tasks in 2026-07-28"}},

	{name: "Java, stdio", peer: javaPeer, older: "2025-03-26",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "Java, HTTP", http: true, peer: javaWeb(nil), older: "2025-06-18",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},

	{name: "Rust, legacy, stdio", peer: rustPeer, flags: upstreamLegacy, older: "2025-03-26",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "Rust, modern, stdio", peer: rustPeer, flags: upstreamModern, modern: true, older: "2024-11-05",
		quirks: []string{"no tasks in 2026-07-28"}},
	{name: "Rust, legacy, HTTP", http: true, peer: rustWeb(nil), flags: upstreamLegacy, older: "2025-06-18",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"},
		lost:   map[string]string{"late log": "log messages use the stream of GET, so some come after the response, when a modern client ignores them"}},
	{name: "Rust, modern, HTTP", http: true, peer: rustWeb(nil), flags: upstreamModern, modern: true, older: "2025-03-26",
		quirks: []string{"no tasks in 2026-07-28"}},
}

func typeScript1Web(path string) *peer {
	p := typeScriptWeb(typeScript1Peer, path, "web1.mjs", nil, nil)
	p.quirks = typeScript1Peer.quirks
	return p
}

func typeScript2Web() *peer {
	p := typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", nil, map[string]any{"legacy": "sessions"})
	p.quirks = typeScript2Peer.quirks
	return p
}

// TestBridgeServers runs our client against servers behind a bridge.
func TestBridgeServers(t *testing.T) {
	for i := range bridgeSides {
		t.Run(bridgeSides[i].name, func(t *testing.T) {
			t.Parallel()
			bridgeSides[i].visit(t, i%2 == 0)
		})
	}
}

// visit runs tours in both eras. The transports to the bridge alternate.
func (s *bridgeSide) visit(t *testing.T, overHTTP bool) {
	p := *s.peer
	p.quirks = p.known(s.quirks...)
	maps.Copy(p.quirks, s.lost)
	p.lacks = maps.Clone(p.lacks)
	needed := map[string]bool{}
	skipped := false // the peer is not installed
	through := knownDeviations{known: s.through, seen: make([]bool, len(s.through))}
	revisions := []string{latestLegacy, s.older, modern}
	if s.old() {
		revisions = revisions[1:]
	}
	for _, revision := range revisions {
		transport := "stdio"
		if overHTTP {
			transport = "HTTP"
		}
		t.Run(revision+" by "+transport, func(t *testing.T) {
			defer func() { skipped = skipped || t.Skipped() }()
			maps.Copy(needed, s.runTour(t, &p, revision, overHTTP, &through))
		})
		overHTTP = !overHTTP
	}
	if skipped || t.Failed() {
		return
	}
	for name := range p.quirks {
		if !needed[name] {
			t.Errorf("quirk %q: no stop needs it", name)
		}
	}
	through.checkSeen(t)
}

// old reports whether the server has the transport HTTP+SSE.
func (s *bridgeSide) old() bool { return strings.HasSuffix(s.name, "HTTP+SSE") }

// runTour runs a tour through the bridge, and returns the quirks that it needed.
func (s *bridgeSide) runTour(t *testing.T, p *peer, revision string, overHTTP bool, through *knownDeviations) map[string]bool {
	upstream := p.launch(t, s.serverRevisions...)
	upstream.crashes = true
	b := newBridge(t, upstream, overHTTP, s.flags...)
	w := &tour{T: t, peer: p, revision: revision, bridged: s}
	w.run(b.downstream)
	b.checkGone()
	events := b.events()
	defer func() {
		if t.Failed() {
			logRecording(t, events)
		}
	}()
	if t.Failed() {
		return nil
	}
	if modern := modernCalls(events, capture.Upstream); modern != s.modern {
		t.Errorf("modern calls to the server = %t, want %t", modern, s.modern)
	}
	// These must occur in the tours without a bridge, and may occur here.
	known := &knownDeviations{known: append(p.knownDeviations(w.serverRevision()), inFlight...)}
	known.seen = make([]bool, len(known.known))
	downstreamKnown, downstreamPeer := through, ""
	if w.serverRevision() == revision {
		downstreamKnown, downstreamPeer = known, p.name
	}
	b.downstream.auditWith(1, downstreamKnown)
	b.upstream.auditWith(p.processes(), known)
	downstreamKnown.report(t, "downstream side of the capture", b.findings(capture.Downstream, downstreamPeer))
	// The capture does not identify HTTP+SSE, so the audit checks only the recording proxy's
	// traffic.
	if !s.old() {
		known.report(t, "upstream side of the capture", b.findings(capture.Upstream, p.name))
	}
	return w.needed
}
