package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

// runRust runs the program of the Rust SDK as what does the job and decodes its report.
func runRust(t *testing.T, s *witnessed, role string, job, report any) {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := s.output(exec.CommandContext(ctx, rust(t), role, string(text)))
	if err != nil {
		t.Fatalf("%s: %v\n%s", role, err, out)
	}
	if err := json.Unmarshal(out, report); err != nil {
		t.Fatalf("%s: %v in %q", role, err, out)
	}
}

// askingJob is a job with the revision that a legacy handshake requests.
type askingJob struct {
	job
	Ask string `json:"ask"`
}

// walkRust lets the SDK walk through the session.
func walkRust(t *testing.T, s *witnessed, mode, revision string) (r report) {
	t.Helper()
	work := job{address: s.address(), Mode: mode, Ping: revision != modern, Steps: session}
	runRust(t, s, "walk", askingJob{work, revision}, &r)
	return r
}

// visitRust has a client of the SDK visit our server with everything.
func visitRust(t *testing.T, s *witnessed, revision string, able can) (v visit) {
	t.Helper()
	to := s.address()
	runRust(t, s, "visit", map[string]any{
		"command": to.Command, "args": to.Args, "url": to.URL, "mode": revision, "ask": revision, "able": able, "words": guestWords,
	}, &v)
	return v
}

// rustWays are how the SDK reaches our servers. The revision is its mode.
func rustWays(path string) []way {
	all := ways(allRevisions...)
	all = all[:len(all)-1] // it has no HTTP+SSE
	if path != "" {
		all = all[1:] // nor 2024-11-05 over HTTP
	}
	for i := range all {
		all[i].path = path
		if all[i].revision == "" {
			all[i].revision = "auto"
		}
	}
	return all
}

// noRustTasks takes out what the guest does not do.
func noRustTasks(c *can) { c.Tasks, c.Interview = false, false }

// TestRust runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestRust(t *testing.T) {
	for _, tt := range rustWays("") {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.speaks...)
			checkReport(t, walkRust(t, s, tt.revision, tt.want), tt.want)
			s.audit(1)
		})
	}
}

// TestRustVisit has a client of the SDK visit our server.
func TestRustVisit(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			able := allOf(revision).without(noRustTasks)
			checkVisit(t, visitRust(t, s, revision, able), expected(revision, able))
			s.audit(1)
		})
	}
}

// TestRustHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestRustHTTP(t *testing.T) {
	for _, tt := range rustWays(webPath) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.speaks...)
			checkReport(t, walkRust(t, s, tt.revision, tt.want), tt.want)
			s.audit(1)
		})
	}
}

// TestRustVisitHTTP has a client of the SDK visit our server with everything.
func TestRustVisitHTTP(t *testing.T) {
	for _, tt := range rustWays(webPath) {
		if tt.revision == "auto" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			able := allOf(tt.want).without(noRustTasks)
			checkVisit(t, visitRust(t, s, tt.revision, able), expected(tt.want, able))
			s.audit(1)
		})
	}
}
