package interop

import (
	"testing"
)

var rustPeer = &peer{
	name:      rustName,
	info:      "rust",
	revisions: allRevisions,
	launch: func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newCommand(t, rust(t), "server", words(t, nil))
	},
	quirks: map[string]string{
		"content of later revisions": "it sends all kinds of content in every revision",
		"no tasks in 2025-11-25":     "it no longer supports tasks",
		"no tasks in 2026-07-28":     "the server here does not use the extension",
	},
	deviations: contentDeviations,
}

// TestRustServer runs our client against a server of the SDK.
func TestRustServer(t *testing.T) { runTours(t, rustPeer) }

// rustWeb returns the server over HTTP.
func rustWeb(revisions []string) *peer {
	p := *rustPeer
	p.revisions = revisions
	p.lacks = crashOnce
	p.deviations = func(revision string) []deviation {
		all := contentDeviations(revision)
		if revision != modern {
			all = append(all, deviation{rule: serverEvents, has: `repeated event id "0"`, why: "its stream of GET begins with the id of its first event"})
		}
		return all
	}
	p.launch = func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newWeb(t, webPath, rust(t), "server", words(t, map[string]any{"listen": true}))
	}
	return &p
}

// TestRustServerHTTP runs our client against a server of the SDK over HTTP.
func TestRustServerHTTP(t *testing.T) {
	runTours(t, rustWeb([]string{"2025-03-26", "2025-06-18", latestLegacy, modern}))
}
