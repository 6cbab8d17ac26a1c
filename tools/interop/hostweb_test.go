package interop

import (
	"encoding/json"
	"slices"
	"testing"
)

// A webCase is a case of the tests of foreign clients over HTTP.
type webCase struct {
	name string
	path string
	// revision is the revision that the client requests. If it is empty, the client chooses one.
	revision        string
	serverRevisions []string // the revisions of the server; nil means all
	want            string   // the negotiated revision
}

// webCases returns the cases of clients whose requested revision is configurable.
func webCases(revisions ...string) (all []webCase) {
	for _, r := range revisions {
		all = append(all, webCase{name: r, path: webPath, revision: r, want: r})
	}
	return append(all,
		webCase{name: "any revision", path: webPath, want: modern},
		webCase{name: "any revision, legacy server", path: webPath, serverRevisions: legacyRevisions, want: latestLegacy},
		webCase{name: "HTTP+SSE", path: ssePath, revision: "2024-11-05", want: "2024-11-05"})
}

// goSDKCancelDeviations returns the deviations of the SDK's client.
func goSDKCancelDeviations(revision string) []deviation {
	if revision != modern {
		return nil
	}
	return []deviation{{rule: clientCancel, has: "over HTTP", why: "it also sends a notification when it closes the response"}}
}

// TestGoSDKHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestGoSDKHTTP(t *testing.T) {
	for _, tt := range webCases(allRevisions...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.serverRevisions...)
			checkReport(t, walk(t.Context(), connectGoSDK(t.Context(), t, s, tt.revision)), tt.want)
			s.audit(1, goSDKCancelDeviations(tt.want)...)
		})
	}
}

// TestGoSDKVisitHTTP lets a client of the SDK visit the everything server.
func TestGoSDKVisitHTTP(t *testing.T) {
	for _, tt := range webCases(allRevisions...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.serverRevisions...)
			// The SDK does not support tasks.
			able := featuresOf(tt.want).without(withoutTasks)
			g := newGoSDKGuest(t.Context(), t, s, tt.revision)
			checkVisit(t, makeVisit(t, g, able), expected(tt.want, able))
			s.audit(1, goSDKCancelDeviations(tt.want)...)
		})
	}
}

// TestMCPGoHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestMCPGoHTTP(t *testing.T) {
	for _, tt := range webCases(allRevisions...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.serverRevisions...)
			checkReport(t, walk(t.Context(), connectMCPGo(t.Context(), t, s, tt.revision)), tt.want)
			s.audit(1)
		})
	}
}

// TestMCPGoVisitHTTP lets a client of the SDK visit the everything server.
func TestMCPGoVisitHTTP(t *testing.T) {
	for _, tt := range webCases(allRevisions...) {
		if tt.revision == "" {
			continue // it opens the stream of GET only if it is configured for the legacy era
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.serverRevisions...)
			able := featuresOf(tt.want).without(func(c *features) {
				// In the legacy era, it only closes the response, which does not cancel.
				c.Cancel = tt.want == modern
				// It does not support the extension. In the legacy era, it drops input responses
				// that it has not sent when the call gets its response, and a task may request
				// input after that.
				c.Tasks, c.Interview = tt.want == latestLegacy, false
				if tt.path == ssePath {
					c.Sample, c.Roots = false, false // it does not respond to requests of the server there
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
	for _, tt := range []webCase{
		{name: "dual-era server", path: webPath, want: latestLegacy},
		{name: "2025-03-26", path: webPath, serverRevisions: []string{"2025-03-26"}, want: "2025-03-26"},
		{name: "HTTP+SSE", path: ssePath, serverRevisions: []string{"2024-11-05"}, want: "2024-11-05"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.serverRevisions...)
			checkReport(t, runScript(t, s, "v1.mjs", nil, true), tt.want)
			s.audit(1)
		})
	}
}

// TestTypeScript1VisitHTTP lets a client of the SDK visit the everything server.
func TestTypeScript1VisitHTTP(t *testing.T) {
	for _, tt := range []webCase{
		{name: "2025-03-26", path: webPath, want: "2025-03-26"},
		{name: "2025-06-18", path: webPath, want: "2025-06-18"},
		{name: "2025-11-25", path: webPath, want: latestLegacy},
		{name: "HTTP+SSE", path: ssePath, want: "2024-11-05"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			able := featuresOf(tt.want)
			checkVisit(t, sendGuest(t, s, "guest1.mjs", nil, able), expected(tt.want, able))
			s.audit(1)
		})
	}
}

// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestTypeScript2HTTP(t *testing.T) {
	pin := map[string]string{"pin": modern}
	for _, tt := range []struct {
		name            string
		mode            any
		serverRevisions []string
		want            string
	}{
		{name: "legacy", mode: "legacy", want: latestLegacy},
		{name: "modern", mode: pin, want: modern},
		{name: "auto", mode: "auto", want: modern},
		{name: "auto, legacy server", mode: "auto", serverRevisions: legacyRevisions, want: latestLegacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, webPath, tt.serverRevisions...)
			checkReport(t, runScript(t, s, "v2.mjs", tt.mode, tt.want != modern), tt.want)
			s.audit(1)
		})
	}
}

// TestTypeScript2VisitHTTP lets a client of the SDK visit the everything server.
func TestTypeScript2VisitHTTP(t *testing.T) {
	for _, revision := range []string{"2025-06-18", latestLegacy, modern} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, webPath, everythingWebVerb, revision)
			var mode any = "legacy"
			if revision == modern {
				mode = map[string]string{"pin": modern}
			}
			able := featuresOf(revision)
			want := expected(revision, able)
			want.Codes["missing resource"] = -32602 // it maps the older code to the newer one
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
				t.Fatalf("list: status = %d, want 0\n%s", status, out)
			}
			checkNames(t, resultOf(t, out), "tools", "name", append([]string{"interview", "work"}, surfaceTools...))
			status, out = inspect(t, s, era.name, "--method", "tools/call", "--tool-name", "sum", "--tool-args-json", `{"a":2,"b":40}`)
			if status != 0 {
				t.Fatalf("call: status = %d, want 0\n%s", status, out)
			}
			var sum struct{ StructuredContent json.RawMessage }
			if err := json.Unmarshal(resultOf(t, out), &sum); err != nil || !slices.Contains([]string{`{"sum":42}`, ``}, string(sum.StructuredContent)) {
				t.Errorf("call: result = %s, %v, want the sum 42", out, err)
			}
			if status, _ := inspect(t, s, era.name, "--method", "tools/call", "--tool-name", "fail", "--tool-args-json", `{"message":"no luck"}`); status != inspectorToolError {
				t.Errorf("fail: status = %d, want %d", status, inspectorToolError)
			}
			s.audit(1)
		})
	}
	t.Run("HTTP+SSE", func(t *testing.T) {
		s := newWebProgram(t, ssePath, everythingWebVerb)
		status, out := inspect(t, s, "legacy", "--method", "resources/read", "--uri", greetingURI)
		if status != 0 {
			t.Fatalf("read: status = %d, want 0\n%s", status, out)
		}
		checkMembers(t, resultOf(t, out), `{"contents":[{"uri":"test://greeting","mimeType":"text/plain","text":"hello \u2028 w\u00f6rld"}]}`)
		s.audit(1)
	})
}

// resultOf returns the result in the output of Inspector.
func resultOf(t *testing.T, out []byte) []byte {
	t.Helper()
	var output struct{ Result json.RawMessage }
	if err := json.Unmarshal(out, &output); err != nil {
		t.Fatalf("decode output: %v in %q", err, out)
	}
	return output.Result
}
