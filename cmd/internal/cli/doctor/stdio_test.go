package doctor

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/probe"
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
		{"quick", []probe.Observation{seen(probe.Negotiated, time.Second)}, "healthy: no problems found\n", exit.OK},
		{"slow", []probe.Observation{seen(probe.Negotiated, 14*time.Second)}, "healthy: no problems found, but it is slow: it takes 14s to respond\n", exit.OK},
		{"slow only with concurrent processes", []probe.Observation{seen(probe.Refused, time.Second), seen(probe.Negotiated, 14*time.Second)}, "healthy: no problems found\n", exit.OK},
		{"the first process sends no response", []probe.Observation{seen(probe.Silent, time.Second), seen(probe.Negotiated, 14*time.Second), seen(probe.Negotiated, 12*time.Second)}, "it is slow: it takes 12s to respond\n", exit.OK},
		{"too slow", []probe.Observation{seen(probe.Negotiated, 2*time.Minute)}, "problems: it is slow: it takes 2m", exit.Findings},
	} {
		var out bytes.Buffer
		r := &doctorReport{out: &out}
		(&doctor{report: r}).startup(r.section(sectionHandshakes), tt.all)
		_ = r.finish() // the exit status, below
		if !strings.Contains(out.String(), tt.result) || r.exit != tt.exit {
			t.Errorf("%s: exit status %d, want %d; printed:\n%s", tt.name, r.exit, tt.exit, out.String())
		}
	}
}
