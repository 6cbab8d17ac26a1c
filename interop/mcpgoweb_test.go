package interop

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/server"
)

// mcpGoWebVerb as the first argument makes the test binary a server of the SDK
// over HTTP, in the modes that the further arguments name.
const mcpGoWebVerb = "mcp-go-http"

func mcpGoWebMain(words []string) int {
	s := newMCPGoServer()
	option := mcpgo.WithStateful(true)
	if slices.Contains(words, statelessWord) {
		option = mcpgo.WithStateLess(true)
	}
	h := mcpgo.NewStreamableHTTPServer(s.MCPServer, option)
	old := mcpgo.NewSSEServer(s.MCPServer)
	mux := http.NewServeMux()
	mux.Handle(webPath, h)
	mux.Handle(oldPath, old)
	mux.Handle("/message", old)
	return serveWeb(mux, func(ctx context.Context) error { return h.Shutdown(ctx) })
}

// mcpGoWeb is a server of the SDK over HTTP.
func mcpGoWeb(path string, revisions []string, words ...string) *peer {
	p := &peer{
		name:      ofMCPGo,
		info:      "mcp-go",
		revisions: revisions,
		launch: func(t *testing.T, _ ...string) *witnessed {
			t.Helper()
			return newWebProgram(t, path, mcpGoWebVerb, words...)
		},
		deviations: mcpGoWebDeviations,
	}
	p.quirks = mcpGoPeer.known("handlers cannot say that there is no such resource")
	if path == webPath {
		p.quirks["lost log"] = "what is in the queue of notifications when the answer is sent may be dropped"
		p.quirks["any progress"] = "notifications go through two queues, and some get lost"
	}
	if path == oldPath {
		maps.Copy(p.quirks, mcpGoPeer.known("late progress"))
	}
	if revisions[0] < "2025-06-18" {
		maps.Copy(p.quirks, mcpGoPeer.known("content of later revisions"))
	}
	if slices.Contains(revisions, modern) {
		maps.Copy(p.quirks, mcpGoPeer.known("no tasks in 2026-07-28", "resources cannot ask"))
		p.quirks["updates belong to no subscription"] = "the SDK leaves it to servers to tell of updates, and to find out whom"
	}
	if slices.Contains(revisions, latestLegacy) && len(words) == 0 {
		maps.Copy(p.quirks, mcpGoPeer.known("tasks cannot ask"))
		p.quirks["the loss of a session is noticed by POST"] = "GET takes any session"
	}
	return p
}

func mcpGoWebDeviations(revision string) []deviation {
	const queue = "notifications go through a queue of their own, or two"
	known := append(newerContent(revision), deviation{rule: serverProgress, why: queue, racy: true})
	if revision == modern {
		return append(known, unbuffered, deviation{rule: serverLogging, why: queue, racy: true})
	}
	if revision == latestLegacy {
		known = append(known, deviation{rule: serverSchema, has: `missing required property "ttl"`, why: "the time to live of a task is left out if there is none, where null is right"})
	}
	return append(known, deviation{rule: serverCancelled, has: "tools/call", why: "what a handler returns is sent, cancelled or not"})
}

// TestMCPGoServerHTTP runs our client against servers of the SDK.
func TestMCPGoServerHTTP(t *testing.T) {
	runTours(t, mcpGoWeb(webPath, allRevisions))
	t.Run("stateless", func(t *testing.T) { runTours(t, mcpGoWeb(webPath, []string{modern}, statelessWord)) })
	t.Run("stateless legacy", func(t *testing.T) {
		const why = "without a session it knows neither what was asked of it before, nor whom to ask"
		p := mcpGoWeb(webPath, []string{latestLegacy}, statelessWord)
		p.quirks = mcpGoPeer.known("handlers cannot say that there is no such resource")
		p.quirks["any progress"] = "notifications go through a queue of their own, and some get lost"
		p.deviations = func(string) []deviation {
			return []deviation{{rule: serverProgress, why: "notifications go through a queue of their own", racy: true}}
		}
		p.lacks = map[string]string{
			"log": why, "cancel": why, "timeout": why, "elicitation": why, "url elicitation": why, "sampling": why, "roots": why,
			"questions of prompts and resources": why, "tasks": why, "resource updated": why, "list changed": why, "crash": why,
		}
		runTours(t, p)
	})
	t.Run("HTTP+SSE", func(t *testing.T) {
		p := mcpGoWeb(oldPath, []string{"2024-11-05"})
		p.lacks = map[string]string{"sampling": "sessions of this transport cannot be asked", "roots": "likewise"}
		runTours(t, p)
	})
}
