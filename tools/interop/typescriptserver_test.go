package interop

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"testing"
)

// scriptServer returns a server in ts that is not started yet. legacy is its mode for legacy
// clients, if it has one.
func scriptServer(t *testing.T, script, legacy string) *recordedServer {
	t.Helper()
	var more map[string]any
	if legacy != "" {
		more = map[string]any{"legacy": legacy}
	}
	return newCommand(t, node(t, 20), filepath.Join(nodeDir, script), words(t, more))
}

// words returns the texts of surface_test.go and more as the JSON input of servers in other
// languages.
func words(t *testing.T, more map[string]any) string {
	t.Helper()
	all := surfaceTexts()
	maps.Copy(all, more)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// surfaceTexts returns the texts of surface_test.go by the names that the servers use.
func surfaceTexts() map[string]any {
	type message struct {
		Level string `json:"level"`
		Text  string `json:"text"`
	}
	var messages []message
	for _, m := range logged {
		messages = append(messages, message{m.level, m.text})
	}
	return map[string]any{
		"instructions": instructions, "crashStatus": crashStatus, "pixel": pixel, "logged": messages, "state": trickyState,
		"askedURI": askedURI, "greetingURI": greetingURI, "greetingText": greetingText, "logoURI": logoURI, "logo": logoText,
		"itemTemplate": itemTemplate, "items": items, "styles": styles, "names": names(""), "formalNames": names("formal"),
		"askMessage": askMessage, "askSchema": json.RawMessage(askSchema), "visitMessage": visitMessage, "visitURL": visitURL, "sampleText": sampleText,
	}
}

var typeScript1Peer = &peer{
	name:      typeScript1Name,
	info:      "typescript-1",
	revisions: legacyRevisions,
	launch: func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return scriptServer(t, "server1.mjs", "")
	},
	quirks: map[string]string{
		"an unknown tool is a tool error": "a call of an unknown tool gets a result with isError",
		"content of later revisions":      "it sends all kinds of content in every revision",
	},
	deviations: contentDeviations,
}

var typeScript2Peer = &peer{
	name:      typeScript2Name,
	info:      "typescript-2",
	revisions: allRevisions,
	launch: func(t *testing.T, revisions ...string) *recordedServer {
		t.Helper()
		legacy := "serve"
		if len(revisions) == 1 && revisions[0] == modern {
			legacy = "reject"
		}
		return scriptServer(t, "server2.mjs", legacy)
	},
	quirks: map[string]string{
		"content of later revisions": "it sends all kinds of content in every revision",
		"no tasks in 2025-11-25":     "it no longer supports tasks",
		"no tasks in 2026-07-28":     "it does not support the extension",
	},
	deviations: contentDeviations,
}

// TestTypeScript1Server runs our client against a server of the SDK.
func TestTypeScript1Server(t *testing.T) { runTours(t, typeScript1Peer) }

// TestTypeScript2Server runs our client against a server of the SDK.
func TestTypeScript2Server(t *testing.T) { runTours(t, typeScript2Peer) }
