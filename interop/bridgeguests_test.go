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

// A bridgeGuest is a foreign client that visits our server through a bridge.
type bridgeGuest struct {
	name string
	// revisions are those that it is configured to request, including the latest legacy one and
	// another one.
	revisions []string
	// latest is set if its legacy revision is not configurable: it gets an older one only from a
	// server that has no other.
	latest bool
	old    string // the revision that it visits by HTTP+SSE with; empty has it not
	send   func(t *testing.T, s *witnessed, revision string, able can) visit
	// adapt changes what is expected of it; nil changes nothing.
	adapt func(*visit)
	known func(path, revision string) []deviation
	// twice is set if it probes for the modern era in a separate process.
	twice bool
}

var bridgeGuests = []bridgeGuest{
	{
		name: "go-sdk", revisions: []string{"2025-03-26", latestLegacy, modern}, old: "2024-11-05",
		send: func(t *testing.T, s *witnessed, revision string, able can) visit {
			return makeVisit(t, newGoSDKGuest(t.Context(), t, s, revision), able)
		},
		known: func(path, revision string) []deviation {
			if path == "" {
				return nil
			}
			return goSDKCancels(revision)
		},
	},
	{
		name: "mcp-go", revisions: []string{"2025-06-18", latestLegacy, modern}, old: "2024-11-05",
		send: func(t *testing.T, s *witnessed, revision string, able can) visit {
			return makeVisit(t, newMCPGoGuest(t.Context(), t, s, revision), able)
		},
	},
	{
		name: "TypeScript 1", revisions: []string{"2025-03-26", latestLegacy}, old: "2024-11-05", latest: true,
		send: func(t *testing.T, s *witnessed, _ string, able can) visit {
			return sendGuest(t, s, "guest1.mjs", nil, able)
		},
	},
	{
		name: "TypeScript 2", revisions: []string{"2025-06-18", latestLegacy, modern}, latest: true, twice: true,
		send: func(t *testing.T, s *witnessed, revision string, able can) visit {
			var mode any = "legacy"
			if revision == modern {
				mode = map[string]string{"pin": modern}
			}
			return sendGuest(t, s, "guest2.mjs", mode, able)
		},
		adapt: func(v *visit) { v.Codes["missing resource"] = -32602 }, // it takes the older code for the newer one
	},
	{
		name: "Python", revisions: []string{"2025-06-18", latestLegacy, modern}, old: "2024-11-05", latest: true,
		send: func(t *testing.T, s *witnessed, revision string, able can) visit {
			return visitPython(t, s, pythonMode(revision), able)
		},
		known: pythonLeaves,
	},
	{
		name: "Rust", revisions: []string{"2025-03-26", latestLegacy, modern}, send: visitRust,
	},
	{
		name: "Java", revisions: []string{"2025-06-18", latestLegacy}, old: "2024-11-05", latest: true, send: visitJava,
		adapt: func(v *visit) { v.Answers["roots"] = javaRoots },
	},
}

// A lack is something that a guest is not able to do, with a bridge or without.
type lack struct {
	guest string
	where func(path, revision string) bool
	what  func(*can)
	why   string
	// still reports whether the peer is still as it says in why; nil if the visit
	// itself finds out.
	still func(t *testing.T) bool
}

// bridgeLacks are all of them. Faults of the bridge must not be listed here.
var bridgeLacks = []lack{
	{
		guest: "go-sdk", where: func(string, string) bool { return true },
		what: func(c *can) { c.Tasks, c.Interview = false, false }, why: "it has no tasks",
		still: func(*testing.T) bool { return !hasMethod[*mcp.ClientSession]("Task") },
	},
	{
		guest: "Python", where: func(string, string) bool { return true },
		what: func(c *can) { c.Tasks, c.Interview = false, false }, why: "it has no tasks",
		still: func(t *testing.T) bool { return !pythonHasTasks(t) },
	},
	{
		guest: "Java", where: func(string, string) bool { return true },
		what: noJavaTasks, why: "it has no tasks",
	},
	{
		guest: "Rust", where: func(string, string) bool { return true },
		what: noRustTasks, why: "the guest does not use the extension, and the SDK has no tasks of the legacy era",
	},
	{
		guest: "mcp-go", where: func(_, revision string) bool { return revision == modern },
		what: func(c *can) { c.Tasks, c.Interview = false, false }, why: "it does not have the extension that tasks are now",
		still: func(*testing.T) bool { return !hasMethod[*client.Client]("UpdateTask") },
	},
	{
		guest: "mcp-go", where: func(path, revision string) bool { return path == webPath && revision == latestLegacy },
		what: func(c *can) { c.Interview = false }, why: "an answer that it has not sent when the call is answered is dropped, which is how a task may ask",
		still: func(*testing.T) bool { return true }, // whether it is in time is a matter of luck
	},
	{
		guest: "mcp-go", where: func(path, revision string) bool { return path != "" && revision != modern },
		what: func(c *can) { c.Cancel = false }, why: "it closes the response, which says nothing",
	},
	{
		guest: "mcp-go", where: func(path, _ string) bool { return path == oldPath },
		what: func(c *can) { c.Sample, c.Roots = false, false }, why: "it does not answer there",
		still: func(*testing.T) bool {
			_, answers := any(new(transport.SSE)).(transport.BidirectionalInterface)
			return !answers
		},
	},
}

// hasMethod reports whether a type has methods with such names.
func hasMethod[T any](name string) bool {
	for m := range reflect.TypeFor[T]().Methods() {
		if strings.Contains(m.Name, name) {
			return true
		}
	}
	return false
}

// applies reports whether there is a cell with it.
func (l *lack) applies() bool {
	for _, g := range bridgeGuests {
		for _, revision := range g.revisions {
			if g.name == l.guest && (l.where("", revision) || l.where(webPath, revision)) {
				return true
			}
		}
		if g.name == l.guest && g.old != "" && l.where(oldPath, g.old) {
			return true
		}
	}
	return false
}

// TestBridgeLacks finds entries of bridgeLacks that are no longer needed.
func TestBridgeLacks(t *testing.T) {
	for _, l := range bridgeLacks {
		if !l.applies() {
			t.Errorf("no cell is one where %s lacks something: %s", l.guest, l.why)
		}
		if l.still != nil && !l.still(t) {
			t.Errorf("it can be struck off that %s lacks something: %s", l.guest, l.why)
		}
	}
	t.Run("TypeScript 1 is of one era", func(t *testing.T) {
		node(t, 20)
		text, err := os.ReadFile(filepath.Join(nodeDir, "node_modules/@modelcontextprotocol/sdk/dist/esm/types.js"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), latestLegacy) || strings.Contains(string(text), modern) {
			t.Errorf("it speaks %s: add it to the guest", modern)
		}
	})
}

// TestBridgeGuests has foreign clients visit our server, on the other side of a bridge: of each era
// to a server of each era, from each transport to each.
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
				turn++ // so that the client's transport does not decide about the server's
			}
			turn++ // nor do both eras
		}
		if g.old != "" {
			g.visit(t, g.old, "legacy", oldPath, true)
			g.visit(t, g.old, "modern", oldPath, false)
		}
	}
}

// crossings are the possible results when both sides send at once.
func crossings(path, revision string) []deviation {
	if path != "" && revision != modern {
		return []deviation{{rule: serverProgress, has: "for no open request", racy: true,
			why: "a step that crosses the cancellation comes on the session's own stream, as that of a task would"}}
	}
	return nil
}

// visit is one cell.
func (g *bridgeGuest) visit(t *testing.T, revision, upstream, path string, upstreamWeb bool) {
	if g.latest && upstream == "modern" && revision != latestLegacy && revision != modern {
		return // it requests the latest, and the bridge has it
	}
	name := func(path string) string {
		return map[string]string{"": "stdio", webPath: "HTTP", oldPath: "HTTP+SSE"}[path]
	}
	serverPath := ""
	if upstreamWeb {
		serverPath = webPath
	}
	t.Run(strings.Join([]string{g.name, revision, name(path), "to", upstream, name(serverPath)}, " "), func(t *testing.T) {
		t.Parallel()
		speaks := []string{modern}
		switch {
		case upstream == "legacy" && g.latest && revision != modern:
			speaks = []string{revision}
		case upstream == "legacy":
			speaks = legacyRevisions
		}
		var server *witnessed
		if upstreamWeb {
			server = newWebProgram(t, webPath, everythingWebVerb, speaks...)
		} else {
			server = newProgram(t, everythingVerb, speaks...)
		}
		p := newPassage(t, path, server)
		able := allOf(revision)
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
		known := crossings(path, revision)
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
