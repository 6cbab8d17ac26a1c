package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// runPython runs a program on the Python SDK with args and then a job, and decodes its report.
func runPython(t *testing.T, s *recordedServer, program string, job, report any, args ...string) {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := s.output(exec.CommandContext(ctx, python(t), slices.Concat([]string{filepath.Join(pythonDir, program)}, args, []string{string(text)})...))
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	if err := json.Unmarshal(out, report); err != nil {
		t.Fatalf("%s: decode report: %v in %q", program, err, out)
	}
}

// walkPython runs the session with the SDK.
func walkPython(t *testing.T, s *recordedServer, mode string, ping bool) (r report) {
	t.Helper()
	runPython(t, s, "walk.py", job{address: s.address(), Mode: mode, Ping: ping, Steps: session}, &r)
	return r
}

// visitPython lets a client of the SDK visit the everything server.
func visitPython(t *testing.T, s *recordedServer, mode string, able features) (v visit) {
	t.Helper()
	to := s.address()
	runPython(t, s, "visit.py", map[string]any{
		"command": to.Command, "args": to.Args, "url": to.URL, "old": to.Old, "mode": mode, "able": able, "words": guestTexts,
	}, &v)
	return v
}

// pythonCloseDeviations returns the deviations of the SDK's client when it ends a session.
func pythonCloseDeviations(path, revision string) []deviation {
	if path != webPath || revision == modern {
		return nil
	}
	return []deviation{{rule: clientSession, has: "GET after the end of the session", racy: true, why: "it reopens the stream that the end of the session has closed"}}
}

// pythonMode returns the SDK's name for the era of a revision.
func pythonMode(revision string) string {
	if revision == modern {
		return modern
	}
	return "legacy"
}

// TestPython runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestPython(t *testing.T) {
	for _, tt := range []struct {
		name, mode      string
		serverRevisions []string
		want            string
	}{
		{name: "legacy", mode: "legacy", want: latestLegacy},
		{name: "2025-06-18", mode: "legacy", serverRevisions: []string{"2025-06-18"}, want: "2025-06-18"},
		{name: "2025-03-26", mode: "legacy", serverRevisions: []string{"2025-03-26"}, want: "2025-03-26"},
		{name: "2024-11-05", mode: "legacy", serverRevisions: []string{"2024-11-05"}, want: "2024-11-05"},
		{name: "modern", mode: modern, want: modern},
		{name: "auto", mode: "auto", want: modern},
		{name: "auto, legacy server", mode: "auto", serverRevisions: legacyRevisions, want: latestLegacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, walkPython(t, s, tt.mode, tt.want != modern), tt.want)
			s.audit(1)
		})
	}
}

// TestPythonVisit lets a client of the SDK visit our server.
func TestPythonVisit(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			// The SDK does not support tasks.
			able := featuresOf(revision).without(withoutTasks)
			checkVisit(t, visitPython(t, s, pythonMode(revision), able), expected(revision, able))
			s.audit(1)
		})
	}
}

// TestPythonHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestPythonHTTP(t *testing.T) {
	for _, tt := range pythonCases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.serverRevisions...)
			checkReport(t, walkPython(t, s, tt.revision, tt.want != modern), tt.want)
			s.audit(1, pythonCloseDeviations(tt.path, tt.want)...)
		})
	}
}

// TestPythonVisitHTTP lets a client of the SDK visit the everything server.
func TestPythonVisitHTTP(t *testing.T) {
	for _, tt := range pythonCases {
		if tt.revision == "auto" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			// The SDK does not support tasks.
			able := featuresOf(tt.want).without(withoutTasks)
			checkVisit(t, visitPython(t, s, tt.revision, able), expected(tt.want, able))
			s.audit(1, pythonCloseDeviations(tt.path, tt.want)...)
		})
	}
}

// pythonCases are the cases of the SDK over HTTP. The field revision is the mode of the SDK.
var pythonCases = []webCase{
	{name: "2025-03-26", path: webPath, revision: "legacy", serverRevisions: []string{"2025-03-26"}, want: "2025-03-26"},
	{name: "2025-06-18", path: webPath, revision: "legacy", serverRevisions: []string{"2025-06-18"}, want: "2025-06-18"},
	{name: "legacy", path: webPath, revision: "legacy", want: latestLegacy},
	{name: "modern", path: webPath, revision: modern, want: modern},
	{name: "auto", path: webPath, revision: "auto", want: modern},
	{name: "auto, legacy server", path: webPath, revision: "auto", serverRevisions: legacyRevisions, want: latestLegacy},
	{name: "HTTP+SSE", path: ssePath, revision: "legacy", serverRevisions: []string{"2024-11-05"}, want: "2024-11-05"},
}

// pythonHasTasks reports whether the SDK's client has methods for tasks.
func pythonHasTasks(t *testing.T) bool {
	t.Helper()
	program := "import mcp; print(any('task' in name for name in dir(mcp.ClientSession) + dir(mcp.Client)))"
	out, err := exec.Command(python(t), "-c", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)) == "True"
}
