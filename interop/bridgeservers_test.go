package interop

import (
	"testing"

	"mcpwire/capture"
)

// A shore is a server of one era behind the bridge, and how it is reached.
type shore struct {
	name   string
	peer   *peer    // as it is without a bridge
	speaks []string // what it is told to speak, if it can be told
	modern bool     // its era
	http   bool     // how it is reached
	flags  []string // of the bridge
	older  string   // a revision of our client, besides the latest of each era
}

var shores = []shore{
	{name: "ours, legacy, stdio", peer: ours, speaks: legacyRevisions, older: "2024-11-05"},
	{name: "ours, modern, stdio", peer: ours, speaks: []string{modern}, modern: true, older: "2025-03-26"},
	{name: "ours, legacy, HTTP", http: true, peer: ourWeb(webPath, nil), speaks: legacyRevisions, older: "2025-06-18"},
	{name: "ours, modern, HTTP", http: true, peer: ourWeb(webPath, nil), speaks: []string{modern}, modern: true, older: "2024-11-05"},
}

// TestBridgeServers takes our client through servers behind a bridge.
func TestBridgeServers(t *testing.T) {
	for i, s := range shores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			overHTTP := i%2 == 0
			for _, revision := range []string{latestLegacy, s.older, modern} {
				carrier := "stdio"
				if overHTTP {
					carrier = "HTTP"
				}
				t.Run(revision+" by "+carrier, func(t *testing.T) { s.cross(t, revision, overHTTP) })
				overHTTP = !overHTTP
			}
		})
	}
}

// cross takes our client through the server.
func (s *shore) cross(t *testing.T, revision string, overHTTP bool) {
	far := s.peer.launch(t, s.speaks...)
	far.crashes = true
	b := newBridge(t, far, overHTTP, s.flags...)
	p := *s.peer
	w := &tour{T: t, peer: &p, revision: revision, bridged: s}
	w.make(b.near)
	b.checkGone()
	events := b.recording()
	defer func() {
		if t.Failed() {
			logRecording(t, events)
		}
	}()
	if t.Failed() {
		return
	}
	if modern := modernCalls(events, capture.Far); modern != s.modern {
		t.Errorf("the server was called in the modern era: %v", modern)
	}
	b.near.audit(1)
	b.far.audit(p.processes(), p.excuses(revision)...)
	var e excuses
	for _, side := range []capture.Side{capture.Near, capture.Far} {
		e.report(t, "the capture", b.findings(side))
	}
}
