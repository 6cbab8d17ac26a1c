package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// runJava runs the program on the Java SDK in a role, with a job, and decodes its report.
func runJava(t *testing.T, s *recordedServer, role string, job, report any) {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := append(java(t), role, string(text))
	out, err := s.output(exec.CommandContext(ctx, command[0], command[1:]...))
	if err != nil {
		t.Fatalf("%s: %v\n%s", role, err, out)
	}
	if err := json.Unmarshal(out, report); err != nil {
		t.Fatalf("%s: decode report: %v in %q", role, err, out)
	}
}

// walkJava runs the session with the SDK, without the canceled call: the SDK cannot cancel calls.
func walkJava(t *testing.T, s *recordedServer, revision string) (r report) {
	t.Helper()
	steps := slices.DeleteFunc(slices.Clone(session), func(s step) bool { return s.CancelAt > 0 })
	runJava(t, s, "walk", revisionJob{job{address: s.address(), Ping: true, Steps: steps}, revision}, &r)
	if r.Outcomes != nil {
		r.Outcomes["cancel"] = outcome{Cancelled: true, Progress: []float64{1}}
	}
	return r
}

// visitJava lets a client of the SDK visit the everything server.
func visitJava(t *testing.T, s *recordedServer, revision string, able features) (v visit) {
	t.Helper()
	to := s.address()
	runJava(t, s, "visit", map[string]any{
		"command": to.Command, "args": to.Args, "url": to.URL, "old": to.Old, "ask": revision, "able": able, "words": guestTexts,
	}, &v)
	if len(v.Slow) == 3 {
		v.Slow = append(v.Slow, "given up", "cancelled") // the SDK cannot cancel the call
	}
	return v
}

// javaRoots is the result of the tool roots: the SDK lists the roots in this order.
const javaRoots = "file:///projects/b, file:///projects/a Project A"

// expectedJava returns the report that the guest must make.
func expectedJava(revision string, able features) visit {
	v := expected(revision, able)
	v.Answers["roots"] = javaRoots
	return v
}

// javaCases are the cases of the SDK over HTTP. It requests the latest legacy revision.
var javaCases = []webCase{
	{name: "2025-03-26", path: webPath, serverRevisions: []string{"2025-03-26"}, want: "2025-03-26"},
	{name: "2025-06-18", path: webPath, serverRevisions: []string{"2025-06-18"}, want: "2025-06-18"},
	{name: "2025-11-25", path: webPath, want: latestLegacy},
	{name: "HTTP+SSE", path: ssePath, serverRevisions: []string{"2024-11-05"}, want: "2024-11-05"},
}

// TestJava runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S58 S59 S64
func TestJava(t *testing.T) {
	for _, revision := range legacyRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, revision)
			checkReport(t, walkJava(t, s, revision), revision)
			s.audit(1)
		})
	}
	t.Run("dual-era server", func(t *testing.T) {
		t.Parallel()
		s := newServer(t)
		checkReport(t, walkJava(t, s, ""), latestLegacy)
		s.audit(1)
	})
}

// TestJavaVisit lets a client of the SDK visit our server.
func TestJavaVisit(t *testing.T) {
	for _, revision := range legacyRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			able := featuresOf(revision).without(withoutTasks)
			checkVisit(t, visitJava(t, s, revision, able), expectedJava(revision, able))
			s.audit(1)
		})
	}
}

// TestJavaHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S58 S59 S64
func TestJavaHTTP(t *testing.T) {
	for _, tt := range javaCases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.serverRevisions...)
			checkReport(t, walkJava(t, s, tt.want), tt.want)
			s.audit(1)
		})
	}
}

// TestJavaVisitHTTP lets a client of the SDK visit the everything server.
func TestJavaVisitHTTP(t *testing.T) {
	for _, tt := range javaCases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			able := featuresOf(tt.want).without(withoutTasks)
			checkVisit(t, visitJava(t, s, tt.want, able), expectedJava(tt.want, able))
			s.audit(1)
		})
	}
}
