package interop

import (
	"path/filepath"
	"testing"
)

var pythonServer = filepath.Join(pythonDir, "peer.py")

var pythonPeer = &peer{
	name:      pythonName,
	info:      "python",
	revisions: allRevisions,
	launch: func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newCommand(t, python(t), pythonServer, words(t, nil))
	},
	quirks: map[string]string{
		"content of later revisions": "it sends all kinds of content in every revision",
		"no tasks in 2025-11-25":     "it no longer supports tasks",
		"no tasks in 2026-07-28":     "it does not support the extension",
	},
	deviations: contentDeviations,
}

// TestPythonServer runs our client against a server of the SDK.
func TestPythonServer(t *testing.T) { runTours(t, pythonPeer) }

// pythonWeb returns the server over HTTP.
func pythonWeb(revisions []string) *peer {
	p := *pythonPeer
	p.revisions = revisions
	p.lacks = crashOnce
	p.deviations = func(revision string) []deviation {
		all := contentDeviations(revision)
		if revision != modern {
			all = append(all, deviation{rule: serverCancelled, has: `"code":-32800`, why: "over HTTP in the legacy era, it ends the response of a canceled request with an error"})
		}
		return all
	}
	p.launch = func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newWeb(t, webPath, python(t), pythonServer, words(t, map[string]any{"listen": true}))
	}
	return &p
}

// TestPythonServerHTTP runs our client against a server of the SDK over HTTP.
func TestPythonServerHTTP(t *testing.T) {
	runTours(t, pythonWeb([]string{"2025-03-26", "2025-06-18", latestLegacy, modern}))
}
