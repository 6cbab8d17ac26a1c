package interop

import (
	"path/filepath"
	"testing"
)

// scriptWeb returns a server in ts over HTTP. more is added to its input.
func scriptWeb(t *testing.T, path, script string, more map[string]any) *recordedServer {
	t.Helper()
	return newWeb(t, path, node(t, 20), filepath.Join(nodeDir, script), words(t, more))
}

// typeScriptWeb returns a server of one of the SDKs over HTTP.
func typeScriptWeb(of *peer, path, script string, revisions []string, words map[string]any) *peer {
	return &peer{
		name:      of.name,
		info:      of.info,
		revisions: revisions,
		launch: func(t *testing.T, _ ...string) *recordedServer {
			t.Helper()
			return scriptWeb(t, path, script, words)
		},
		deviations: of.deviations,
	}
}

// crashOnce omits the stop crash, which takes a second start of the server and is the same for all
// servers over HTTP.
var crashOnce = map[string]string{"crash": "other tours have it"}

// TestTypeScript1ServerHTTP runs our client against servers of the SDK over HTTP.
func TestTypeScript1ServerHTTP(t *testing.T) {
	p := typeScriptWeb(typeScript1Peer, webPath, "web1.mjs", []string{"2025-03-26", "2025-06-18", latestLegacy}, nil)
	p.quirks = typeScript1Peer.quirks
	p.lacks = crashOnce
	runTours(t, p)
	t.Run("JSON", func(t *testing.T) {
		p := typeScriptWeb(typeScript1Peer, webPath, "web1.mjs", []string{latestLegacy}, map[string]any{"json": true})
		p.quirks = typeScript1Peer.known("an unknown tool is a tool error")
		const why = "with JSON responses, it drops the messages that belong to a request"
		p.lacks = map[string]string{
			"progress": why, "cancel": "the tour cancels by progress", "elicitation": why, "url elicitation": why, "sampling": why, "roots": why,
			"input requests of prompts and resources": why, "tasks": why, "crash": crashOnce["crash"],
		}
		runTours(t, p)
	})
	t.Run("HTTP+SSE", func(t *testing.T) {
		p := typeScriptWeb(typeScript1Peer, ssePath, "web1.mjs", []string{"2024-11-05"}, nil)
		p.quirks = typeScript1Peer.quirks
		runTours(t, p)
	})
}

// TestTypeScript2ServerHTTP runs our client against servers of the SDK over HTTP.
func TestTypeScript2ServerHTTP(t *testing.T) {
	p := typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", []string{"2025-03-26", latestLegacy}, map[string]any{"legacy": "sessions"})
	p.quirks = typeScript2Peer.known("content of later revisions", "no tasks in 2025-11-25")
	p.lacks = crashOnce
	runTours(t, p)
	t.Run("modern", func(t *testing.T) {
		p := typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", []string{modern}, map[string]any{"legacy": "sessions"})
		p.quirks = typeScript2Peer.known("no tasks in 2026-07-28")
		runTours(t, p)
	})
	t.Run("streams", func(t *testing.T) {
		p := typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", []string{modern}, map[string]any{"response": "sse"})
		p.quirks = typeScript2Peer.known("no tasks in 2026-07-28")
		p.lacks = crashOnce
		runTours(t, p)
	})
}
