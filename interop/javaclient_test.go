package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// runJava runs the program of the Java SDK as what does the job and decodes its report.
func runJava(t *testing.T, s *witnessed, role string, job, report any) {
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
		t.Fatalf("%s: %v in %q", role, err, out)
	}
}

// walkJava lets the SDK walk through the session, but for the call that is canceled:
// it cannot do that.
func walkJava(t *testing.T, s *witnessed, revision string) (r report) {
	t.Helper()
	steps := slices.DeleteFunc(slices.Clone(session), func(s step) bool { return s.CancelAt > 0 })
	runJava(t, s, "walk", askingJob{job{address: s.address(), Ping: true, Steps: steps}, revision}, &r)
	if r.Outcomes != nil {
		r.Outcomes["cancel"] = outcome{Cancelled: true, Progress: []float64{1}}
	}
	return r
}

// visitJava has a client of the SDK visit our server with everything.
func visitJava(t *testing.T, s *witnessed, revision string, able can) (v visit) {
	t.Helper()
	to := s.address()
	runJava(t, s, "visit", map[string]any{
		"command": to.Command, "args": to.Args, "url": to.URL, "old": to.Old, "ask": revision, "able": able, "words": guestWords,
	}, &v)
	if len(v.Slow) == 3 {
		v.Slow = append(v.Slow, "given up", "cancelled") // it has not tried
	}
	return v
}

// javaRoots are the roots in the order in which it lists them.
const javaRoots = "file:///projects/b, file:///projects/a Project A"

// expectedJava returns the report that it must make.
func expectedJava(revision string, able can) visit {
	v := expected(revision, able)
	v.Answers["roots"] = javaRoots
	return v
}

// noJavaTasks takes out what the guest does not do.
func noJavaTasks(c *can) { c.Tasks, c.Interview = false, false }

// javaWays are how the SDK reaches our servers over HTTP. It requests the latest revision of the
// legacy era.
var javaWays = []way{
	{name: "2025-03-26", path: webPath, speaks: []string{"2025-03-26"}, want: "2025-03-26"},
	{name: "2025-06-18", path: webPath, speaks: []string{"2025-06-18"}, want: "2025-06-18"},
	{name: "2025-11-25", path: webPath, want: latestLegacy},
	{name: "HTTP+SSE", path: oldPath, speaks: []string{"2024-11-05"}, want: "2024-11-05"},
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

// TestJavaVisit has a client of the SDK visit our server.
func TestJavaVisit(t *testing.T) {
	for _, revision := range legacyRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			able := allOf(revision).without(noJavaTasks)
			checkVisit(t, visitJava(t, s, revision, able), expectedJava(revision, able))
			s.audit(1)
		})
	}
}

// TestJavaHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S58 S59 S64
func TestJavaHTTP(t *testing.T) {
	for _, tt := range javaWays {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.speaks...)
			checkReport(t, walkJava(t, s, tt.want), tt.want)
			s.audit(1)
		})
	}
}

// TestJavaVisitHTTP has a client of the SDK visit our server with everything.
func TestJavaVisitHTTP(t *testing.T) {
	for _, tt := range javaWays {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			able := allOf(tt.want).without(noJavaTasks)
			checkVisit(t, visitJava(t, s, tt.want, able), expectedJava(tt.want, able))
			s.audit(1)
		})
	}
}
