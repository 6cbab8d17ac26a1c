package interop

import (
	"maps"
	"testing"
)

var javaPeer = &peer{
	name:      javaName,
	info:      "java",
	revisions: legacyRevisions,
	launch: func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newCommand(t, append(java(t), "server", words(t, nil))...)
	},
	lacks: map[string]string{
		"pages":   "its lists have one page",
		"cancel":  "it ignores cancellations",
		"timeout": "it ignores cancellations",
	},
	quirks: map[string]string{
		"content of later revisions": "it sends all kinds of content in every revision",
		"no tasks in 2025-11-25":     "it does not support tasks",
	},
	deviations: contentDeviations,
}

// TestJavaServer runs our client against a server of the SDK.
func TestJavaServer(t *testing.T) { runTours(t, javaPeer) }

// javaWeb returns the server over HTTP.
func javaWeb(revisions []string) *peer {
	p := *javaPeer
	p.revisions = revisions
	p.lacks = maps.Clone(javaPeer.lacks)
	maps.Copy(p.lacks, crashOnce)
	p.deviations = func(revision string) []deviation {
		return append(contentDeviations(revision), deviation{rule: serverEvents, has: "repeated event id", why: "all events have the session id as their id"})
	}
	p.launch = func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newWeb(t, webPath, append(java(t), "server", words(t, map[string]any{"listen": true}))...)
	}
	return &p
}

// TestJavaServerHTTP runs our client against a server of the SDK over HTTP.
func TestJavaServerHTTP(t *testing.T) {
	runTours(t, javaWeb([]string{"2025-03-26", "2025-06-18", latestLegacy}))
}
