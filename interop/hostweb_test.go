package interop

import (
	"encoding/json"
	"slices"
	"testing"
)

// A way is how a foreign client reaches one of our servers over HTTP.
type way struct {
	name string
	path string
	// revision is the revision that the client requests; empty leaves the choice to it.
	revision string
	speaks   []string // the server; nothing is all
	want     string   // the revision that comes of it
}

// ways are those of clients whose requested revision is configurable.
func ways(revisions ...string) (all []way) {
	for _, r := range revisions {
		all = append(all, way{name: r, path: webPath, revision: r, want: r})
	}
	return append(all,
		way{name: "its choice", path: webPath, want: modern},
		way{name: "its choice, legacy server", path: webPath, speaks: legacyRevisions, want: latestLegacy},
		way{name: "HTTP+SSE", path: oldPath, revision: "2024-11-05", want: "2024-11-05"})
}

// goSDKCancels are the deviations of the SDK's client.
func goSDKCancels(revision string) []deviation {
	if revision != modern {
		return nil
	}
	return []deviation{{rule: clientCancel, has: "over HTTP", why: "it posts a notification, besides closing the response"}}
}

// TestGoSDKHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestGoSDKHTTP(t *testing.T) {
	for _, tt := range ways(allRevisions...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.speaks...)
			checkReport(t, walk(t.Context(), connectGoSDK(t.Context(), t, s, tt.revision)), tt.want)
			s.audit(1, goSDKCancels(tt.want)...)
		})
	}
}

// TestGoSDKVisitHTTP has a client of the SDK visit our server with everything.
func TestGoSDKVisitHTTP(t *testing.T) {
	for _, tt := range ways(allRevisions...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.speaks...)
			able := allOf(tt.want).without(func(c *can) { c.Tasks, c.Interview = false, false }) // it has none
			g := newGoSDKGuest(t.Context(), t, s, tt.revision)
			checkVisit(t, makeVisit(t, g, able), expected(tt.want, able))
			s.audit(1, goSDKCancels(tt.want)...)
		})
	}
}

// TestMCPGoHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestMCPGoHTTP(t *testing.T) {
	for _, tt := range ways(allRevisions...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.speaks...)
			checkReport(t, walk(t.Context(), connectMCPGo(t.Context(), t, s, tt.revision)), tt.want)
			s.audit(1)
		})
	}
}

// TestMCPGoVisitHTTP has a client of the SDK visit our server with everything.
func TestMCPGoVisitHTTP(t *testing.T) {
	for _, tt := range ways(allRevisions...) {
		if tt.revision == "" {
			continue // it listens only if it is configured for the legacy era
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.speaks...)
			able := allOf(tt.want).without(func(c *can) {
				c.Cancel = tt.want == modern // otherwise it closes the response, which says nothing
				// It does not have the extension; in the legacy era, an answer that
				// it has not sent when the call is answered is dropped, which is how
				// a task may ask.
				c.Tasks, c.Interview = tt.want == latestLegacy, false
				if tt.path == oldPath {
					c.Sample, c.Roots = false, false // it does not answer there
				}
			})
			g := newMCPGoGuest(t.Context(), t, s, tt.revision)
			checkVisit(t, makeVisit(t, g, able), expected(tt.want, able))
			s.audit(1)
		})
	}
}

// TestTypeScript1HTTP runs the client of the SDK against our server. The client accepts any
// revision that the server offers, so the server supports only one.
//
// Spec: S2 S6 S9 S58 S59 S64
func TestTypeScript1HTTP(t *testing.T) {
	for _, tt := range []way{
		{name: "dual-era server", path: webPath, want: latestLegacy},
		{name: "2025-03-26", path: webPath, speaks: []string{"2025-03-26"}, want: "2025-03-26"},
		{name: "HTTP+SSE", path: oldPath, speaks: []string{"2024-11-05"}, want: "2024-11-05"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.speaks...)
			checkReport(t, runScript(t, s, "v1.mjs", nil, true), tt.want)
			s.audit(1)
		})
	}
}

// TestTypeScript1VisitHTTP has a client of the SDK visit our server with everything.
func TestTypeScript1VisitHTTP(t *testing.T) {
	for _, tt := range []way{
		{name: "2025-03-26", path: webPath, want: "2025-03-26"},
		{name: "2025-06-18", path: webPath, want: "2025-06-18"},
		{name: "2025-11-25", path: webPath, want: latestLegacy},
		{name: "HTTP+SSE", path: oldPath, want: "2024-11-05"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			able := allOf(tt.want)
			checkVisit(t, sendGuest(t, s, "guest1.mjs", nil, able), expected(tt.want, able))
			s.audit(1)
		})
	}
}

// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestTypeScript2HTTP(t *testing.T) {
	pin := map[string]string{"pin": modern}
	for _, tt := range []struct {
		name   string
		mode   any
		speaks []string
		want   string
	}{
		{name: "legacy", mode: "legacy", want: latestLegacy},
		{name: "modern", mode: pin, want: modern},
		{name: "auto", mode: "auto", want: modern},
		{name: "auto, legacy server", mode: "auto", speaks: legacyRevisions, want: latestLegacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, webPath, tt.speaks...)
			checkReport(t, runScript(t, s, "v2.mjs", tt.mode, tt.want != modern), tt.want)
			s.audit(1)
		})
	}
}

// TestTypeScript2VisitHTTP has a client of the SDK visit our server with everything.
func TestTypeScript2VisitHTTP(t *testing.T) {
	for _, revision := range []string{"2025-06-18", latestLegacy, modern} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, webPath, everythingWebVerb, revision)
			var mode any = "legacy"
			if revision == modern {
				mode = map[string]string{"pin": modern}
			}
			able := allOf(revision)
			want := expected(revision, able)
			want.Codes["missing resource"] = -32602 // it takes the older code for the newer one
			checkVisit(t, sendGuest(t, s, "guest2.mjs", mode, able), want)
			s.audit(1)
		})
	}
}

// TestInspectorHTTP runs single commands of Inspector, each in its own session.
func TestInspectorHTTP(t *testing.T) {
	for _, era := range inspectorEras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, webPath, everythingWebVerb)
			status, out := inspect(t, s, era.name, "--method", "tools/list", "--strict")
			if status != 0 {
				t.Fatalf("list: status: got %d, want 0\n%s", status, out)
			}
			checkNames(t, resultOf(t, out), "tools", "name", append([]string{"interview", "work"}, surfaceTools...))
			status, out = inspect(t, s, era.name, "--method", "tools/call", "--tool-name", "sum", "--tool-args-json", `{"a":2,"b":40}`)
			if status != 0 {
				t.Fatalf("call: status: got %d, want 0\n%s", status, out)
			}
			var sum struct{ StructuredContent json.RawMessage }
			if err := json.Unmarshal(resultOf(t, out), &sum); err != nil || !slices.Contains([]string{`{"sum":42}`, ``}, string(sum.StructuredContent)) {
				t.Errorf("call: %s, %v", out, err)
			}
			if status, _ := inspect(t, s, era.name, "--method", "tools/call", "--tool-name", "fail", "--tool-args-json", `{"message":"no luck"}`); status != inspectorToolError {
				t.Errorf("fail: status: got %d, want %d", status, inspectorToolError)
			}
			s.audit(1)
		})
	}
	t.Run("HTTP+SSE", func(t *testing.T) {
		s := newWebProgram(t, oldPath, everythingWebVerb)
		status, out := inspect(t, s, "legacy", "--method", "resources/read", "--uri", greetingURI)
		if status != 0 {
			t.Fatalf("status: got %d, want 0\n%s", status, out)
		}
		checkMembers(t, resultOf(t, out), `{"contents":[{"uri":"test://greeting","mimeType":"text/plain","text":"hello \u2028 w\u00f6rld"}]}`)
		s.audit(1)
	})
}

// resultOf is the result in what Inspector writes.
func resultOf(t *testing.T, out []byte) []byte {
	t.Helper()
	var answer struct{ Result json.RawMessage }
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return answer.Result
}
