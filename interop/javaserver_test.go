package interop

import (
	"maps"
	"testing"
)

var javaPeer = &peer{
	name:      ofJava,
	info:      "java",
	revisions: legacyRevisions,
	launch: func(t *testing.T, _ ...string) *witnessed {
		t.Helper()
		return newCommand(t, append(java(t), "server", words(t, nil))...)
	},
	lacks: map[string]string{
		"pages":   "it lists everything on one page",
		"cancel":  "it does not act on a cancellation",
		"timeout": "likewise",
	},
	quirks: map[string]string{
		"content of later revisions": "it sends all kinds of content whatever the revision",
		"no tasks in 2025-11-25":     "it does not have them",
	},
	deviations: newerContent,
}

// TestJavaServer runs our client against a server of the SDK.
func TestJavaServer(t *testing.T) { runTours(t, javaPeer) }

// javaWeb is the server over HTTP.
func javaWeb(revisions []string) *peer {
	p := *javaPeer
	p.revisions = revisions
	p.lacks = maps.Clone(javaPeer.lacks)
	maps.Copy(p.lacks, crashOnce)
	p.deviations = func(revision string) []deviation {
		return append(newerContent(revision), deviation{rule: serverEvents, has: "again", why: "the id of each event is that of the session"})
	}
	p.launch = func(t *testing.T, _ ...string) *witnessed {
		t.Helper()
		return newWeb(t, webPath, append(java(t), "server", words(t, map[string]any{"listen": true}))...)
	}
	return &p
}

// TestJavaServerHTTP runs our client against servers of the SDK.
func TestJavaServerHTTP(t *testing.T) {
	runTours(t, javaWeb([]string{"2025-03-26", "2025-06-18", latestLegacy}))
}
