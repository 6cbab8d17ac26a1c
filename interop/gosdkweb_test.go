package interop

import (
	"net/http"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDKWebVerb as the first argument makes the test binary a server of the SDK
// over HTTP, in the modes that the further arguments name.
const goSDKWebVerb = "go-sdk-http"

// The modes of servers over HTTP.
const (
	statelessWord = "stateless"
	jsonWord      = "json"
)

func goSDKWebMain(words []string) int {
	s := newGoSDKServer(nil)
	get := func(*http.Request) *mcp.Server { return s.Server }
	mux := http.NewServeMux()
	mux.Handle(webPath, mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: slices.Contains(words, statelessWord), JSONResponse: slices.Contains(words, jsonWord), PropagateRequestCancellation: true,
	}))
	mux.Handle(oldPath, mcp.NewSSEHandler(get, nil))
	return serveWeb(mux, nil)
}

// goSDKWeb is a server of the SDK over HTTP.
func goSDKWeb(path string, revisions []string, words ...string) *peer {
	p := &peer{
		name:      ofGoSDK,
		info:      "go-sdk",
		revisions: revisions,
		launch: func(t *testing.T, _ ...string) *witnessed {
			t.Helper()
			return newWebProgram(t, path, goSDKWebVerb, words...)
		},
		deviations: goSDKWebDeviations,
	}
	switch {
	case revisions[0] == modern:
		p.quirks = goSDKPeer.known("no tasks in 2026-07-28")
	case len(revisions) > 1:
		p.quirks = goSDKPeer.known("content of later revisions", "resources cannot ask legacy clients", "no tasks in 2025-11-25")
	case revisions[0] == latestLegacy:
		p.quirks = goSDKPeer.known("resources cannot ask legacy clients", "no tasks in 2025-11-25")
	default:
		p.quirks = goSDKPeer.known("content of later revisions")
	}
	return p
}

func goSDKWebDeviations(revision string) []deviation {
	known := append(newerContent(revision),
		deviation{rule: serverAnswer, has: `"code":0`, why: "errors of handlers that are none of JSON-RPC get the code 0"})
	if revision == modern {
		return append(known, unbuffered)
	}
	probed := unbuffered // as a modern request is answered, if there is one
	probed.racy = true
	return append(known, probed,
		deviation{rule: serverProgress, why: "where answers are JSON, progress has a stream of its own, and may come behind the answer", racy: true},
		deviation{rule: serverCancelled, has: "tools/call", why: "what a handler returns is sent, cancelled or not"},
		deviation{rule: serverLegacy, has: "ttlMs", why: "caching hints are always sent; older clients ignore them"})
}

// unbuffered is a deviation of most, which may be left to who runs the proxy.
var unbuffered = deviation{rule: serverBody, has: "proxies", why: "it does not tell proxies to pass streams on, which it should"}

// TestGoSDKServerHTTP runs our client against servers of the SDK.
func TestGoSDKServerHTTP(t *testing.T) {
	runTours(t, goSDKWeb(webPath, legacyRevisions))
	t.Run("JSON", func(t *testing.T) {
		p := goSDKWeb(webPath, []string{latestLegacy}, jsonWord)
		p.quirks["late progress"] = "it has a stream of its own, which may be slower than the answer"
		runTours(t, p)
	})
	t.Run("stateless", func(t *testing.T) { runTours(t, goSDKWeb(webPath, []string{modern}, statelessWord)) })
	t.Run("stateless JSON", func(t *testing.T) {
		p := goSDKWeb(webPath, []string{modern}, statelessWord, jsonWord)
		p.lacks = map[string]string{
			"progress": "it cannot be told with an answer that is one message, and the tool fails",
			"cancel":   "the tour cancels by progress",
			"log":      "likewise",
		}
		runTours(t, p)
	})
	t.Run("HTTP+SSE", func(t *testing.T) { runTours(t, goSDKWeb(oldPath, []string{"2024-11-05"})) })
}
