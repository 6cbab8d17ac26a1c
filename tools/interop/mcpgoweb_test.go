package interop

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/server"
)

// mcpGoWebVerb as the first argument makes the test binary a server of the SDK over HTTP. Further
// arguments are modes, such as statelessArg.
const mcpGoWebVerb = "mcp-go-http"

func mcpGoWebMain(modes []string) int {
	s := newMCPGoServer()
	option := mcpgo.WithStateful(true)
	if slices.Contains(modes, statelessArg) {
		option = mcpgo.WithStateLess(true)
	}
	h := mcpgo.NewStreamableHTTPServer(s.MCPServer, option)
	old := mcpgo.NewSSEServer(s.MCPServer)
	mux := http.NewServeMux()
	mux.Handle(webPath, h)
	mux.Handle(ssePath, old)
	mux.Handle("/message", old)
	return serveWeb(mux, func(ctx context.Context) error { return h.Shutdown(ctx) })
}

// mcpGoWeb returns a server of the SDK over HTTP.
func mcpGoWeb(path string, revisions []string, modes ...string) *peer {
	p := &peer{
		name:      mcpGoName,
		info:      "mcp-go",
		revisions: revisions,
		launch: func(t *testing.T, _ ...string) *recordedServer {
			t.Helper()
			return newWebProgram(t, path, mcpGoWebVerb, modes...)
		},
		deviations: mcpGoWebDeviations,
	}
	p.quirks = mcpGoPeer.known("handlers cannot report an unknown resource")
	if path == webPath {
		p.quirks["lost log"] = "it may drop notifications that are in the queue when it sends the response"
		p.quirks["unreliable progress"] = "notifications have two queues, and some are lost"
	}
	if path == ssePath {
		maps.Copy(p.quirks, mcpGoPeer.known("late progress"))
	}
	if revisions[0] < "2025-06-18" {
		maps.Copy(p.quirks, mcpGoPeer.known("content of later revisions"))
	}
	if slices.Contains(revisions, modern) {
		maps.Copy(p.quirks, mcpGoPeer.known("no tasks in 2026-07-28", "resources cannot send input requests"))
		p.quirks["updates without subscription id"] = "the SDK leaves notifications of updates, and their receivers, to servers"
	}
	if slices.Contains(revisions, latestLegacy) && len(modes) == 0 {
		maps.Copy(p.quirks, mcpGoPeer.known("tasks cannot send input requests"))
		p.quirks["only POST detects a lost session"] = "GET accepts any session id"
	}
	return p
}

func mcpGoWebDeviations(revision string) []deviation {
	const queue = "notifications have one or two separate queues"
	known := append(contentDeviations(revision),
		deviation{rule: serverProgress, why: queue, racy: true}, deviation{rule: checkRule("progress/backwards"), why: queue, racy: true})
	if revision == modern {
		return append(known, buffered, deviation{rule: serverLogging, why: queue, racy: true})
	}
	if revision == latestLegacy {
		known = append(known, deviation{rule: serverSchema, has: `missing required property "ttl"`, why: "it omits the time to live of a task without one, where null is required"})
	}
	return append(known, deviation{rule: serverCancelled, has: "tools/call", why: "it sends the results of canceled calls"})
}

// TestMCPGoServerHTTP runs our client against servers of the SDK.
func TestMCPGoServerHTTP(t *testing.T) {
	runTours(t, mcpGoWeb(webPath, allRevisions))
	t.Run("stateless", func(t *testing.T) { runTours(t, mcpGoWeb(webPath, []string{modern}, statelessArg)) })
	t.Run("stateless legacy", func(t *testing.T) {
		const why = "without a session it keeps no state, and cannot send requests"
		p := mcpGoWeb(webPath, []string{latestLegacy}, statelessArg)
		p.quirks = mcpGoPeer.known("handlers cannot report an unknown resource")
		p.quirks["unreliable progress"] = "notifications have a separate queue, and some are lost"
		p.deviations = func(string) []deviation {
			return []deviation{{rule: serverProgress, why: "notifications have a separate queue", racy: true}}
		}
		p.lacks = map[string]string{
			"log": why, "cancel": why, "timeout": why, "elicitation": why, "url elicitation": why, "sampling": why, "roots": why,
			"input requests of prompts and resources": why, "tasks": why, "resource updated": why, "list changed": why, "crash": why,
		}
		runTours(t, p)
	})
	t.Run("HTTP+SSE", func(t *testing.T) {
		p := mcpGoWeb(ssePath, []string{"2024-11-05"})
		p.lacks = map[string]string{"sampling": "sessions of this transport cannot send requests", "roots": "sessions of this transport cannot send requests"}
		runTours(t, p)
	})
}
