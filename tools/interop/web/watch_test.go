package web

import (
	"encoding/json"
	"strings"
	"testing"
)

// planted is a secret that a host sends, without a recognizable name or form. The tap that records
// it redacts nothing, so the export must redact it: a password in the same message has the same
// value.
const planted = "correct-horse-battery-staple"

// TestWatchLive drives the page while hosts call servers behind taps: one of each era on stdio, and
// one over HTTP.
func TestWatchLive(t *testing.T) {
	d := drivers.get(t)
	m := newMachine(t)
	m.tap("old")
	m.tap("new")
	m.tap("frank", "--redact", "off")
	http := m.tapHTTP(t, "web")
	recordCalls(t, m)
	callHTTP(t, http)
	m.translate(t)
	m.mustWatch()
	with := map[string]any{"secret": planted, "meta": modernMeta}
	// The scene run comes after reload, in which its captures would replace older ones.
	for _, scene := range []string{"access", "rows", "filter", "back", "facets", "columns", "menus", "strip", "pictures", "detail", "keys", "diff", "resend", "edit", "export", "save", "drop", "reload", "narrow", "axe", "run", "restart"} {
		t.Run(scene, func(t *testing.T) {
			with["url"] = m.url // it changes in a scene that restarts watch
			d.runScene(t, scene, with, m.functions())
		})
	}
}

// recordCalls sends the handshakes of the hosts, and the calls that scenes search for.
func recordCalls(t *testing.T, m *machine) {
	t.Helper()
	handshake := []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"old-host","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":5}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"slow","arguments":{"steps":3,"delay_ms":20},"_meta":{"progressToken":"t"}}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"fail","arguments":{"message":"disk full"}}}`,
		`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"no_such_tool"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"gone with the wire"}}}`,
	}
	sendLines(t, m, "old", handshake)
	sendLines(t, m, "frank", []string{
		handshake[0], handshake[1],
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"in","password":"` + planted + `"}}}`,
	})
	meta := `{` + strings.TrimPrefix(modernMeta, ",") + `}`
	sendLines(t, m, "new", []string{
		`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":` + meta + `}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"word_count","arguments":{"text":"every byte on the wire"},"_meta":` + meta + `}}`,
		`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"word_count","arguments":{"text":"two words"},"_meta":` + meta + `}}`,
		`{"jsonrpc":"2.0","id":"c","method":"resources/read","params":{"uri":"demo://about","_meta":` + meta + `}}`,
	})
}

// sendLines sends lines to a tap, and waits for the response to each request.
func sendLines(t *testing.T, m *machine, tap string, lines []string) {
	t.Helper()
	for _, line := range lines {
		args, err := json.Marshal(map[string]any{"tap": tap, "lines": []json.RawMessage{json.RawMessage(line)}, "wait": true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.sendLines(args); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchHeld drives the page while a tap holds messages.
func TestWatchHeld(t *testing.T) {
	d := drivers.get(t)
	m := newMachine(t)
	m.tap("stop", "--intercept", "tool:echo")
	sendLines(t, m, "stop", []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	})
	d.runScene(t, "held", map[string]any{"url": m.mustWatch()}, m.functions())
}

// TestWatchEmpty drives the page without traffic.
func TestWatchEmpty(t *testing.T) {
	d := drivers.get(t)
	m := newMachine(t)
	d.runScene(t, "empty", map[string]any{"url": m.mustWatch()}, m.functions())
}

// TestWatchHostile drives the page with malicious traffic of hosts and servers, live and in a
// capture.
func TestWatchHostile(t *testing.T) {
	d := drivers.get(t)
	m := newMachine(t)
	rows := writeHostile(t, m.captures())
	m.tap("old")
	sendLarge(t, m)
	d.runScene(t, "hostile", map[string]any{"url": m.mustWatch("--past", "-1"), "rows": rows}, m.functions())
}

// TestWatchMany drives the page with the maximum number of rows.
func TestWatchMany(t *testing.T) {
	d := drivers.get(t)
	m := newMachine(t)
	const rows = 100_000
	file := writeMany(t, m.captures(), rows)
	d.runScene(t, "many", map[string]any{"url": m.mustWatch(file), "rows": rows}, m.functions())
}

// TestWatchWhole drives the page with more rows than a view keeps.
func TestWatchWhole(t *testing.T) {
	d := drivers.get(t)
	m := newMachine(t)
	const rows, kept = 130_000, 100_000
	file := writeMany(t, m.captures(), rows)
	d.runScene(t, "whole", map[string]any{"url": m.mustWatch(file), "rows": rows, "kept": kept, "errors": rows / 97}, m.functions())
}
