package interop

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"testing"
)

// scriptServer returns a server in ts that has yet to be started. legacy says
// what it does with clients of the legacy era, if it has a choice.
func scriptServer(t *testing.T, script, legacy string) *witnessed {
	t.Helper()
	var more map[string]any
	if legacy != "" {
		more = map[string]any{"legacy": legacy}
	}
	return newCommand(t, node(t, 20), filepath.Join(nodeDir, script), words(t, more))
}

// words are those of the surface and some more, as the programs of other SDKs
// take them.
func words(t *testing.T, more map[string]any) string {
	t.Helper()
	all := surfaceWords()
	maps.Copy(all, more)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// surfaceWords are the texts of the surface that ts/surface.mjs gets.
func surfaceWords() map[string]any {
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
	name:      ofTypeScript1,
	info:      "typescript-1",
	revisions: legacyRevisions,
	launch: func(t *testing.T, _ ...string) *witnessed {
		t.Helper()
		return scriptServer(t, "server1.mjs", "")
	},
	quirks: map[string]string{
		"an unknown tool is a tool error": "so it is",
		"content of later revisions":      "it sends all kinds of content whatever the revision",
	},
	deviations: newerContent,
}

var typeScript2Peer = &peer{
	name:      ofTypeScript2,
	info:      "typescript-2",
	revisions: allRevisions,
	launch: func(t *testing.T, revisions ...string) *witnessed {
		t.Helper()
		legacy := "serve"
		if len(revisions) == 1 && revisions[0] == modern {
			legacy = "reject"
		}
		return scriptServer(t, "server2.mjs", legacy)
	},
	quirks: map[string]string{
		"content of later revisions": "it sends all kinds of content whatever the revision",
		"no tasks in 2025-11-25":     "it no longer has them",
		"no tasks in 2026-07-28":     "it does not have the extension",
	},
	deviations: newerContent,
}

// TestTypeScript1Server runs our client against a server of the SDK.
func TestTypeScript1Server(t *testing.T) { runTours(t, typeScript1Peer) }

// TestTypeScript2Server runs our client against a server of the SDK.
func TestTypeScript2Server(t *testing.T) { runTours(t, typeScript2Peer) }
