package interop

import (
	"net/http"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDKWebVerb as the first argument makes the test binary a server of the SDK over HTTP. Further
// arguments are modes, such as statelessArg.
const goSDKWebVerb = "go-sdk-http"

// The modes of servers over HTTP.
const (
	statelessArg = "stateless"
	jsonArg      = "json"
)

func goSDKWebMain(modes []string) int {
	s := newGoSDKServer(nil)
	get := func(*http.Request) *mcp.Server { return s.Server }
	mux := http.NewServeMux()
	mux.Handle(webPath, mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: slices.Contains(modes, statelessArg), JSONResponse: slices.Contains(modes, jsonArg), PropagateRequestCancellation: true,
	}))
	mux.Handle(ssePath, mcp.NewSSEHandler(get, nil))
	return serveWeb(mux, nil)
}

// goSDKWeb returns a server of the SDK over HTTP.
func goSDKWeb(path string, revisions []string, modes ...string) *peer {
	p := &peer{
		name:      goSDKName,
		info:      "go-sdk",
		revisions: revisions,
		launch: func(t *testing.T, _ ...string) *recordedServer {
			t.Helper()
			return newWebProgram(t, path, goSDKWebVerb, modes...)
		},
		deviations: goSDKWebDeviations,
	}
	switch {
	case revisions[0] == modern:
		p.quirks = goSDKPeer.known("no tasks in 2026-07-28")
	case len(revisions) > 1:
		p.quirks = goSDKPeer.known("content of later revisions", "resources cannot send input requests to legacy clients", "no tasks in 2025-11-25")
	case revisions[0] == latestLegacy:
		p.quirks = goSDKPeer.known("resources cannot send input requests to legacy clients", "no tasks in 2025-11-25")
	default:
		p.quirks = goSDKPeer.known("content of later revisions")
	}
	return p
}

func goSDKWebDeviations(revision string) []deviation {
	known := append(contentDeviations(revision),
		deviation{rule: serverResponse, has: `"code":0`, why: "errors of handlers that are not JSON-RPC errors get the code 0"})
	if revision == modern {
		return append(known, buffered)
	}
	probe := buffered // only if the client sends a modern probe
	probe.racy = true
	return append(known, probe,
		deviation{rule: serverProgress, why: "with JSON responses, progress uses a separate stream and may come after the response", racy: true},
		deviation{rule: serverCancelled, has: "tools/call", why: "it sends the results of canceled calls"},
		deviation{rule: serverLegacy, has: "ttlMs", why: "it sends caching hints in every revision; older clients ignore them"})
}

// buffered is a deviation of most SDKs: the configuration of proxies may replace the header.
var buffered = deviation{rule: serverBody, has: "proxies", why: "it does not send X-Accel-Buffering, so proxies may buffer streams"}

// TestGoSDKServerHTTP runs our client against servers of the SDK.
func TestGoSDKServerHTTP(t *testing.T) {
	runTours(t, goSDKWeb(webPath, legacyRevisions))
	t.Run("JSON", func(t *testing.T) {
		p := goSDKWeb(webPath, []string{latestLegacy}, jsonArg)
		p.quirks["late progress"] = "progress uses a separate stream, which may be slower than the response"
		runTours(t, p)
	})
	t.Run("stateless", func(t *testing.T) { runTours(t, goSDKWeb(webPath, []string{modern}, statelessArg)) })
	t.Run("stateless JSON", func(t *testing.T) {
		p := goSDKWeb(webPath, []string{modern}, statelessArg, jsonArg)
		p.lacks = map[string]string{
			"progress": "a JSON response cannot contain progress, and the tool fails",
			"cancel":   "the tour cancels by progress",
			"log":      "a JSON response cannot contain log messages",
		}
		runTours(t, p)
	})
	t.Run("HTTP+SSE", func(t *testing.T) { runTours(t, goSDKWeb(ssePath, []string{"2024-11-05"})) })
}
