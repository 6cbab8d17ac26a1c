package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/inspect/probe"
)

// TestDoctorSlow shows that a slow server is reported as slow, and as working.
func TestDoctorSlow(t *testing.T) {
	seen := func(outcome probe.Outcome, took time.Duration) probe.Observation {
		return probe.Observation{Outcome: outcome, Took: took}
	}
	for _, tt := range []struct {
		name   string
		all    []probe.Observation
		result string
		exit   int
	}{
		{"quick", []probe.Observation{seen(probe.Negotiated, time.Second)}, "healthy: no problems found\n", exitOK},
		{"slow", []probe.Observation{seen(probe.Negotiated, 14*time.Second)}, "healthy: no problems found, but it is slow: it takes 14s to respond\n", exitOK},
		{"slow only with concurrent processes", []probe.Observation{seen(probe.Refused, time.Second), seen(probe.Negotiated, 14*time.Second)}, "healthy: no problems found\n", exitOK},
		{"the first process sends no response", []probe.Observation{seen(probe.Silent, time.Second), seen(probe.Negotiated, 14*time.Second), seen(probe.Negotiated, 12*time.Second)}, "it is slow: it takes 12s to respond\n", exitOK},
		{"too slow", []probe.Observation{seen(probe.Negotiated, 2*time.Minute)}, "problems: it is slow: it takes 2m", exitFindings},
	} {
		var out bytes.Buffer
		r := &doctorReport{out: &out}
		(&doctor{report: r}).startup(r.section("Handshakes"), tt.all)
		_ = r.finish() // the exit status, below
		if !strings.Contains(out.String(), tt.result) || r.exit != tt.exit {
			t.Errorf("%s: exit status %d, want %d; printed:\n%s", tt.name, r.exit, tt.exit, out.String())
		}
	}
}

// TestStderrReasonVariable shows that the reason names the missing variable, or else the exception.
func TestStderrReasonVariable(t *testing.T) {
	for _, tt := range []struct{ stderr, what, variable string }{
		{"file:///x.mjs:1\nconst n = process.env.WEATHER_KEY.length;\n                      ^\n\nTypeError: Cannot read properties of undefined (reading 'length')\n    at file:///x.mjs:1:5", "WEATHER_KEY is missing", "WEATHER_KEY"},
		{"  File \"x.py\", line 2\n    key = os.environ['TOKEN']\nKeyError: 'TOKEN'", "TOKEN is missing", "TOKEN"},
		{"Missing GITHUB_TOKEN", "GITHUB_TOKEN is missing", "GITHUB_TOKEN"},
		{"file:///x.mjs:2\nconsole.error(`with ${key.length}`);\n\nTypeError: Cannot read properties of undefined (reading 'length')", "TypeError: Cannot read properties of undefined (reading 'length')", ""},
		{"using process.env.DEBUG_LEVEL\nError: the port is taken", "Error: the port is taken", ""},
		{"up and running", "", ""},
	} {
		got := stderrReason(strings.Split(tt.stderr, "\n"))
		if got.what != tt.what || got.variable != tt.variable {
			t.Errorf("%q: %q, variable %q; want %q, %q", tt.stderr, got.what, got.variable, tt.what, tt.variable)
		}
	}
}
