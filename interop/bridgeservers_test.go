package interop

import (
	"maps"
	"strings"
	"testing"

	"mcpwire/capture"
)

// A bridgeSide is a server of one era behind the bridge, and how it is reached.
type bridgeSide struct {
	name   string
	peer   *peer    // the server without a bridge
	speaks []string // the revisions that it is configured for, if it has that option
	modern bool     // its era
	http   bool     // how it is reached
	flags  []string // of the bridge, if the server has both eras
	older  string   // a revision of our client, in addition to the latest of each era; of HTTP+SSE, instead of the latest legacy one

	// quirks are those of the peer that tours meet here, by their names.
	quirks []string
	// lost are what cannot cross between the eras, or not from this peer, and why: quirks and
	// stops. What no tour needs fails the test.
	lost map[string]string
	// through is what the peer gets wrong and the bridge passes on when it translates. Of one era,
	// all passes.
	through []deviation
}

var (
	upstreamLegacy = []string{"--server-era", "legacy"}
	upstreamModern = []string{"--server-era", "modern"}
)

// inFlight are deviations that a server may send before it reads a cancellation, which the bridge
// sends while the next request is in flight.
var inFlight = []deviation{
	{rule: serverProgress, has: "for no open request", why: "progress of a call that is just being cancelled", racy: true},
	{rule: serverListen, has: "the subscription was cancelled before", why: "a change when another subscription takes the place of one", racy: true},
	{rule: serverListen, has: "nobody has subscribed to it", why: "a change of a resource that is just being unsubscribed from", racy: true},
}

// What passes when the bridge translates.
var (
	queued          = deviation{rule: serverProgress, has: "a response after", why: "some of the progress comes behind the result, or not at all", racy: true}
	unknownAsResult = deviation{rule: checkRule("tools/unknown-as-result"), has: "no_such_tool", why: "a call of an unknown tool got a result"}
)

var bridgeSides = []bridgeSide{
	{name: "ours, legacy, stdio", peer: ours, speaks: legacyRevisions, older: "2024-11-05"},
	{name: "ours, modern, stdio", peer: ours, speaks: []string{modern}, modern: true, older: "2025-03-26"},
	{name: "ours, legacy, HTTP", http: true, peer: ourWeb(webPath, nil), speaks: legacyRevisions, older: "2025-06-18"},
	{name: "ours, modern, HTTP", http: true, peer: ourWeb(webPath, nil), speaks: []string{modern}, modern: true, older: "2024-11-05"},
	{name: "ours, HTTP+SSE", http: true, peer: ourWeb(oldPath, nil), older: "2024-11-05"},

	{name: "go-sdk, legacy, stdio", peer: goSDKPeer, speaks: legacyRevisions, older: "2025-06-18",
		quirks: []string{"resources cannot ask legacy clients", "no tasks in 2025-11-25"}},
	{name: "go-sdk, modern, stdio", peer: goSDKPeer, flags: upstreamModern, modern: true, older: "2024-11-05",
		quirks: []string{"no tasks in 2026-07-28"},
		lost:   map[string]string{"one subscription ends the others": "it knows one subscription for each connection, and forgets it when any ends"}},
	{name: "go-sdk, legacy, HTTP", http: true, peer: goSDKWeb(webPath, legacyRevisions), flags: upstreamLegacy, older: "2025-03-26",
		quirks: []string{"content of later revisions", "resources cannot ask legacy clients", "no tasks in 2025-11-25"}},
	{name: "go-sdk, modern, HTTP", http: true, peer: goSDKWeb(webPath, []string{modern}, statelessWord), flags: upstreamModern, modern: true, older: "2025-06-18",
		quirks: []string{"no tasks in 2026-07-28"}},
	{name: "go-sdk, HTTP+SSE", http: true, peer: goSDKWeb(oldPath, legacyRevisions), older: "2024-11-05",
		quirks: []string{"content of later revisions", "resources cannot ask legacy clients", "no tasks in 2025-11-25"}},

	{name: "mcp-go, legacy, stdio", peer: mcpGoPeer, flags: upstreamLegacy, older: "2025-03-26",
		quirks:  []string{"late progress", "late log", "content of later revisions", "handlers cannot say that there is no such resource", "resources cannot ask", "tasks cannot ask"},
		through: []deviation{queued}},
	{name: "mcp-go, modern, stdio", peer: mcpGoPeer, flags: upstreamModern, modern: true, older: "2025-06-18",
		quirks:  []string{"late progress", "late log", "handlers cannot say that there is no such resource", "resources cannot ask", "changes belong to no subscription", "no tasks in 2026-07-28"},
		through: []deviation{queued}},
	{name: "mcp-go, legacy, HTTP", http: true, peer: mcpGoWeb(webPath, allRevisions), flags: upstreamLegacy, older: "2024-11-05",
		quirks:  []string{"lost log", "any progress", "content of later revisions", "handlers cannot say that there is no such resource", "resources cannot ask", "tasks cannot ask"},
		through: []deviation{queued}},
	{name: "mcp-go, modern, HTTP", http: true, peer: mcpGoWeb(webPath, allRevisions), flags: upstreamModern, modern: true, older: "2025-03-26",
		quirks:  []string{"lost log", "any progress", "handlers cannot say that there is no such resource", "resources cannot ask", "updates belong to no subscription", "no tasks in 2026-07-28"},
		through: []deviation{queued}},

	{name: "TypeScript 1, legacy, stdio", peer: typeScript1Peer, older: "2025-06-18",
		quirks: []string{"an unknown tool is a tool error"}},
	{name: "TypeScript 1, legacy, HTTP", http: true, peer: typeScript1Web(webPath), older: "2025-03-26",
		quirks:  []string{"an unknown tool is a tool error", "content of later revisions"},
		lost:    map[string]string{"late log": "log messages come on the stream of GET, so some come behind the answer, after which a modern client takes none"},
		through: []deviation{unknownAsResult}},
	{name: "TypeScript 1, HTTP+SSE", http: true, peer: typeScript1Web(oldPath), older: "2024-11-05",
		quirks:  []string{"an unknown tool is a tool error", "content of later revisions"},
		through: []deviation{unknownAsResult}},
	{name: "TypeScript 2, legacy, stdio", peer: typeScript2Peer, flags: upstreamLegacy, older: "2024-11-05",
		quirks: []string{"content of later revisions", "no tasks in 2025-11-25"}},
	{name: "TypeScript 2, modern, stdio", peer: typeScript2Peer, speaks: []string{modern}, modern: true, older: "2025-06-18",
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
		lost:   map[string]string{"late log": "log messages come on the stream of GET, so some come behind the answer, after which a modern client takes none"}},
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

// visit makes a tour in each era. The bridge is reached over HTTP, or is started, by turns.
func (s *bridgeSide) visit(t *testing.T, overHTTP bool) {
	p := *s.peer
	p.quirks = p.known(s.quirks...)
	maps.Copy(p.quirks, s.lost)
	p.lacks = maps.Clone(p.lacks)
	needed := map[string]bool{}
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
			maps.Copy(needed, s.cross(t, &p, revision, overHTTP, &through))
		})
		overHTTP = !overHTTP
	}
	if t.Failed() {
		return
	}
	for name := range p.quirks {
		if !needed[name] {
			t.Errorf("no stop needs the quirk %q", name)
		}
	}
	through.checkSeen(t)
}

// old reports whether the server is reached by the transport of 2024-11-05.
func (s *bridgeSide) old() bool { return strings.HasSuffix(s.name, "HTTP+SSE") }

// cross takes our client through the server, and returns the quirks that it has looked for.
func (s *bridgeSide) cross(t *testing.T, p *peer, revision string, overHTTP bool, through *knownDeviations) map[string]bool {
	upstream := p.launch(t, s.speaks...)
	upstream.crashes = true
	b := newBridge(t, upstream, overHTTP, s.flags...)
	w := &tour{T: t, peer: p, revision: revision, bridged: s}
	w.make(b.downstream)
	b.checkGone()
	events := b.recording()
	defer func() {
		if t.Failed() {
			logRecording(t, events)
		}
	}()
	if t.Failed() {
		return nil
	}
	if modern := modernCalls(events, capture.Upstream); modern != s.modern {
		t.Errorf("the server was called in the modern era: %v", modern)
	}
	known := &knownDeviations{known: append(p.knownDeviations(w.serverRevision()), inFlight...)} // the direct tours must see these, and this one may
	known.seen = make([]bool, len(known.known))
	downstreamKnown, downstreamPeer := through, ""
	if w.serverRevision() == revision {
		downstreamKnown, downstreamPeer = known, p.name
	}
	b.downstream.auditWith(1, downstreamKnown)
	b.upstream.auditWith(p.processes(), known)
	downstreamKnown.report(t, "downstream side of the capture", b.findings(capture.Downstream, downstreamPeer))
	if !s.old() { // the capture has only messages, which do not identify HTTP+SSE: the witness checks it instead
		known.report(t, "upstream side of the capture", b.findings(capture.Upstream, p.name))
	}
	return w.needed
}
