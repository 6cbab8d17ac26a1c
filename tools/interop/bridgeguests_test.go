package interop

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A bridgeGuest is a guest that visits our server through a bridge.
type bridgeGuest struct {
	name string
	// revisions are the revisions that it requests, including the latest legacy one and an older
	// one.
	revisions []string
	// latest is set if it always requests the latest legacy revision. It gets an older one only
	// from a server that supports no other.
	latest bool
	// old is its revision over HTTP+SSE. Empty means that it does not support HTTP+SSE.
	old  string
	send func(t *testing.T, s *recordedServer, revision string, able features) visit
	// adapt changes the expected report. Nil changes nothing.
	adapt func(*visit)
	// known returns its deviations. Nil means that it has none.
	known func(path, revision string) []deviation
	// twice is set if it probes for the modern era in a separate process.
	twice bool
}

var bridgeGuests = []bridgeGuest{
	{
		name: "go-sdk", revisions: []string{"2025-03-26", latestLegacy, modern}, old: "2024-11-05",
		send: func(t *testing.T, s *recordedServer, revision string, able features) visit {
			return makeVisit(t, newGoSDKGuest(t.Context(), t, s, revision), able)
		},
		known: func(path, revision string) []deviation {
			if path == "" {
				return nil
			}
			return goSDKCancelDeviations(revision)
		},
	},
	{
		name: "mcp-go", revisions: []string{"2025-06-18", latestLegacy, modern}, old: "2024-11-05",
		send: func(t *testing.T, s *recordedServer, revision string, able features) visit {
			return makeVisit(t, newMCPGoGuest(t.Context(), t, s, revision), able)
		},
	},
	{
		name: "TypeScript 1", revisions: []string{"2025-03-26", latestLegacy}, old: "2024-11-05", latest: true,
		send: func(t *testing.T, s *recordedServer, _ string, able features) visit {
			return sendGuest(t, s, "guest1.mjs", nil, able)
		},
	},
	{
		name: "TypeScript 2", revisions: []string{"2025-06-18", latestLegacy, modern}, latest: true, twice: true,
		send: func(t *testing.T, s *recordedServer, revision string, able features) visit {
			var mode any = "legacy"
			if revision == modern {
				mode = map[string]string{"pin": modern}
			}
			return sendGuest(t, s, "guest2.mjs", mode, able)
		},
		// It maps the older code to the newer one.
		adapt: func(v *visit) { v.Codes["missing resource"] = -32602 },
	},
	{
		name: "Python", revisions: []string{"2025-06-18", latestLegacy, modern}, old: "2024-11-05", latest: true,
		send: func(t *testing.T, s *recordedServer, revision string, able features) visit {
			return visitPython(t, s, pythonMode(revision), able)
		},
		known: pythonCloseDeviations,
	},
	{
		name: "Rust", revisions: []string{"2025-03-26", latestLegacy, modern}, send: visitRust,
	},
	{
		name: "Java", revisions: []string{"2025-06-18", latestLegacy}, old: "2024-11-05", latest: true, send: visitJava,
		adapt: func(v *visit) { v.Answers["roots"] = javaRoots },
	},
}

// A lack is a feature that a guest does not support, with a bridge or without.
type lack struct {
	guest string
	where func(path, revision string) bool
	what  func(*features)
	why   string
	// still reports whether the lack still exists. Nil means that the visit itself detects this.
	still func(t *testing.T) bool
}

// bridgeLacks are the lacks of all guests. Faults of the bridge must not be listed here.
var bridgeLacks = []lack{
	{
		guest: "go-sdk", where: func(string, string) bool { return true },
		what: withoutTasks, why: "it has no tasks",
		still: func(*testing.T) bool { return !hasMethod[*mcp.ClientSession]("Task") },
	},
	{
		guest: "Python", where: func(string, string) bool { return true },
		what: withoutTasks, why: "it has no tasks",
		still: func(t *testing.T) bool { return !pythonHasTasks(t) },
	},
	{
		guest: "Java", where: func(string, string) bool { return true },
		what: withoutTasks, why: "it has no tasks",
	},
	{
		guest: "Rust", where: func(string, string) bool { return true },
		what: withoutTasks, why: "the guest does not use the extension, and the SDK has no tasks of the legacy era",
	},
	{
		guest: "mcp-go", where: func(_, revision string) bool { return revision == modern },
		what: withoutTasks, why: "it does not support the tasks extension",
		still: func(*testing.T) bool { return !hasMethod[*client.Client]("UpdateTask") },
	},
	{
		guest: "mcp-go", where: func(path, revision string) bool { return path == webPath && revision == latestLegacy },
		what: func(c *features) { c.Interview = false }, why: "it drops input responses that it has not sent when the call gets its response, and a task may request input after that",
		still: func(*testing.T) bool { return true }, // depends on timing
	},
	{
		guest: "mcp-go", where: func(path, revision string) bool { return path != "" && revision != modern },
		what: func(c *features) { c.Cancel = false }, why: "it only closes the response, which does not cancel in the legacy era",
	},
	{
		guest: "mcp-go", where: func(path, _ string) bool { return path == ssePath },
		what: func(c *features) { c.Sample, c.Roots = false, false }, why: "it does not respond to requests of the server over HTTP+SSE",
		still: func(*testing.T) bool {
			_, responds := any(new(transport.SSE)).(transport.BidirectionalInterface)
			return !responds
		},
	},
}

// hasMethod reports whether T has a method whose name contains name.
func hasMethod[T any](name string) bool {
	for m := range reflect.TypeFor[T]().Methods() {
		if strings.Contains(m.Name, name) {
			return true
		}
	}
	return false
}

// applies reports whether a case of [TestBridgeGuests] has the lack.
func (l *lack) applies() bool {
	for _, g := range bridgeGuests {
		for _, revision := range g.revisions {
			if g.name == l.guest && (l.where("", revision) || l.where(webPath, revision)) {
				return true
			}
		}
		if g.name == l.guest && g.old != "" && l.where(ssePath, g.old) {
			return true
		}
	}
	return false
}

// TestBridgeLacks reports entries of bridgeLacks that are no longer needed.
func TestBridgeLacks(t *testing.T) {
	for _, l := range bridgeLacks {
		if !l.applies() {
			t.Errorf("%s: no case has the lack %q", l.guest, l.why)
		}
		if l.still != nil && !l.still(t) {
			t.Errorf("%s: the lack %q no longer exists, remove it", l.guest, l.why)
		}
	}
	t.Run("TypeScript 1 is legacy only", func(t *testing.T) {
		node(t, 20)
		text, err := os.ReadFile(filepath.Join(nodeDir, "node_modules/@modelcontextprotocol/sdk/dist/esm/types.js"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), latestLegacy) || strings.Contains(string(text), modern) {
			t.Errorf("TypeScript SDK 1 supports %s: add the revision to the guest", modern)
		}
	})
}

// TestBridgeGuests lets guests visit our server through a bridge, with each pair of eras and each
// pair of transports.
func TestBridgeGuests(t *testing.T) {
	skipWithoutBridge(t)
	turn := 0
	for _, g := range bridgeGuests {
		for _, revision := range g.revisions {
			for _, upstream := range []string{"legacy", "modern"} {
				for _, path := range []string{"", webPath} {
					turn++
					g.visit(t, revision, upstream, path, turn%2 == 0)
				}
				turn++ // vary the pairs of transports
			}
			turn++ // vary the transports of a pair of eras
		}
		if g.old != "" {
			g.visit(t, g.old, "legacy", ssePath, true)
			g.visit(t, g.old, "modern", ssePath, false)
		}
	}
}

// raceDeviations returns the deviations that may occur when both sides send at the same time.
func raceDeviations(path, revision string) []deviation {
	if path != "" && revision != modern {
		return []deviation{{rule: serverProgress, has: "for no pending request", racy: true,
			why: "progress that is sent before the cancellation arrives uses the session's stream, like progress of a task"}}
	}
	return nil
}

// visit runs one case.
func (g *bridgeGuest) visit(t *testing.T, revision, upstream, path string, upstreamWeb bool) {
	if g.latest && upstream == "modern" && revision != latestLegacy && revision != modern {
		return // it requests the latest revision, and the bridge supports it
	}
	name := func(path string) string {
		return map[string]string{"": "stdio", webPath: "HTTP", ssePath: "HTTP+SSE"}[path]
	}
	serverPath := ""
	if upstreamWeb {
		serverPath = webPath
	}
	t.Run(strings.Join([]string{g.name, revision, name(path), "to", upstream, name(serverPath)}, " "), func(t *testing.T) {
		t.Parallel()
		serverRevisions := []string{modern}
		switch {
		case upstream == "legacy" && g.latest && revision != modern:
			serverRevisions = []string{revision}
		case upstream == "legacy":
			serverRevisions = legacyRevisions
		}
		var server *recordedServer
		if upstreamWeb {
			server = newWebProgram(t, webPath, everythingWebVerb, serverRevisions...)
		} else {
			server = newProgram(t, everythingVerb, serverRevisions...)
		}
		p := newGuestBridge(t, path, server)
		able := featuresOf(revision)
		for _, l := range bridgeLacks {
			if l.guest == g.name && l.where(path, revision) {
				l.what(&able)
			}
		}
		want := expected(revision, able)
		if g.adapt != nil {
			g.adapt(&want)
		}
		checkVisit(t, g.send(t, p.downstream, revision, able), want)
		known := raceDeviations(path, revision)
		if g.known != nil {
			known = append(known, g.known(path, revision)...)
		}
		processes := 1
		if g.twice && revision == modern && path == "" {
			processes = 2
		}
		p.audit(processes, known...)
	})
}
