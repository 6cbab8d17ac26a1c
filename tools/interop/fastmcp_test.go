package interop

import (
	"path/filepath"
	"testing"
)

var fastMCP = filepath.Join(pythonDir, "fast.py")

// fastMCPLacks returns the stops that would test the Python SDK, on which FastMCP is built.
func fastMCPLacks() map[string]string {
	const why = "the Python SDK implements it, which has its own peer"
	lacks := map[string]string{}
	for _, stop := range []string{
		"server", "tools", "pages", "log", "content", "resources", "unknown resource", "prompts", "completion", "elicitation", "url elicitation",
		"sampling", "roots", "input requests of prompts and resources", "tasks", "resource updated", "list changed", "crash",
	} {
		lacks[stop] = why
	}
	return lacks
}

var fastMCPPeer = &peer{
	name:      fastMCPName,
	info:      "fastmcp",
	revisions: allRevisions,
	launch: func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newCommand(t, python(t), fastMCP, "server", words(t, nil))
	},
	lacks:  fastMCPLacks(),
	quirks: map[string]string{"an unknown tool is a tool error": "a call of an unknown tool gets a result with isError"},
}

// TestFastMCPServer runs our client against a server on FastMCP.
func TestFastMCPServer(t *testing.T) { runTours(t, fastMCPPeer) }

// TestFastMCPServerHTTP runs our client against a server on FastMCP over HTTP.
func TestFastMCPServerHTTP(t *testing.T) {
	p := *fastMCPPeer
	p.revisions = []string{"2025-03-26", latestLegacy, modern}
	p.launch = func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newWeb(t, webPath, python(t), fastMCP, "server", words(t, map[string]any{"listen": true}))
	}
	p.deviations = func(revision string) []deviation {
		if revision == modern {
			return nil
		}
		return []deviation{{rule: serverCancelled, has: `"code":-32800`, why: "over HTTP in the legacy era, it ends the response of a canceled request with an error"}}
	}
	runTours(t, &p)
}

// TestFastMCP runs the client of FastMCP against our server.
//
// Spec: S2 S6 S9 S58 S59 S64 S65
func TestFastMCP(t *testing.T) {
	for _, tt := range []struct {
		name            string
		serverRevisions []string
		want            string
	}{
		{name: "dual-era server", want: modern},
		{name: "legacy server", serverRevisions: legacyRevisions, want: latestLegacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, walkFastMCP(t, s), tt.want)
			s.audit(1)
		})
		t.Run(tt.name+" over HTTP", func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, webPath, tt.serverRevisions...)
			checkReport(t, walkFastMCP(t, s), tt.want)
			s.audit(1, pythonCloseDeviations(webPath, tt.want)...)
		})
	}
}

func walkFastMCP(t *testing.T, s *recordedServer) (r report) {
	t.Helper()
	runPython(t, s, "fast.py", job{address: s.address(), Steps: session}, &r, "walk")
	return r
}
