package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

// runRust runs the program on the Rust SDK in a role, with a job, and decodes its report.
func runRust(t *testing.T, s *recordedServer, role string, job, report any) {
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
		t.Fatalf("%s: decode report: %v in %q", role, err, out)
	}
}

// A revisionJob is a job with the revision that a legacy handshake requests.
type revisionJob struct {
	job
	Ask string `json:"ask"`
}

// walkRust runs the session with the SDK.
func walkRust(t *testing.T, s *recordedServer, mode, revision string) (r report) {
	t.Helper()
	work := job{address: s.address(), Mode: mode, Ping: revision != modern, Steps: session}
	runRust(t, s, "walk", revisionJob{work, revision}, &r)
	return r
}

// visitRust lets a client of the SDK visit the everything server.
func visitRust(t *testing.T, s *recordedServer, revision string, able features) (v visit) {
	t.Helper()
	to := s.address()
	runRust(t, s, "visit", map[string]any{
		"command": to.Command, "args": to.Args, "url": to.URL, "mode": revision, "ask": revision, "able": able, "words": guestTexts,
	}, &v)
	return v
}

// rustCases returns the cases of the SDK. The field revision is the mode of the SDK.
func rustCases(path string) []webCase {
	all := webCases(allRevisions...)
	all = all[:len(all)-1] // it does not support HTTP+SSE
	if path != "" {
		all = all[1:] // it does not support 2024-11-05 over HTTP
	}
	for i := range all {
		all[i].path = path
		if all[i].revision == "" {
			all[i].revision = "auto"
		}
	}
	return all
}

// TestRust runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestRust(t *testing.T) {
	for _, tt := range rustCases("") {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, walkRust(t, s, tt.revision, tt.want), tt.want)
			s.audit(1)
		})
	}
}

// TestRustVisit lets a client of the SDK visit our server.
func TestRustVisit(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			able := featuresOf(revision).without(withoutTasks)
			checkVisit(t, visitRust(t, s, revision, able), expected(revision, able))
			s.audit(1)
		})
	}
}

// TestRustHTTP runs the client of the SDK against our server.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestRustHTTP(t *testing.T) {
	for _, tt := range rustCases(webPath) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t, tt.path, tt.serverRevisions...)
			checkReport(t, walkRust(t, s, tt.revision, tt.want), tt.want)
			s.audit(1)
		})
	}
}

// TestRustVisitHTTP lets a client of the SDK visit the everything server.
func TestRustVisitHTTP(t *testing.T) {
	for _, tt := range rustCases(webPath) {
		if tt.revision == "auto" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newWebProgram(t, tt.path, everythingWebVerb, tt.want)
			able := featuresOf(tt.want).without(withoutTasks)
			checkVisit(t, visitRust(t, s, tt.revision, able), expected(tt.want, able))
			s.audit(1)
		})
	}
}
