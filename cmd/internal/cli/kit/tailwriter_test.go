package kit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// usageError is the output of programs with a flag parser: the error first, then all flags.
var usageError = append([]string{"Error: no configuration has been provided: no kubeconfig", "Usage:", "  server [command] [options]", "Flags:"}, usageFlags(30)...)

func usageFlags(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("      --token-%d int   an invalid token is an error (default 0)", i))
	}
	return list
}

func TestTailWriterLines(t *testing.T) {
	trace := []string{
		"starting", "loading", "{\"level\":\"fatal\",\"msg\":\"Authentication required: SLACK_TOKEN\"}", "node:internal/errors:984", "  const err = genericNodeError(", "              ^",
		"Error: Command failed: server", "    at genericNodeError (node:internal/errors:984:15)", "    at wrapped (node:internal/errors:538:14)", "    at checkExecSyncError (node:child_process:891:11)",
		"  status: 1,", "  signal: null", "}", "Node.js v20",
	}
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"few", []string{"a", "", "b"}, []string{"a", "b"}},
		{"usage", usageError, append(append([]string{}, usageError[:2]...), "… (30 lines)", usageError[32], usageError[33])},
		{"a trace", trace, []string{trace[0], trace[1], trace[2], "… (1 line)", trace[4], "… (1 line)", trace[6], "… (5 lines)", trace[12], trace[13]}},
	} {
		w := NewTailWriter(nil)
		for _, line := range tt.lines {
			fmt.Fprintln(w, line)
		}
		if diff := cmp.Diff(tt.want, w.Lines()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestTailWriterLimits shows that only the beginning and the end of long output are kept.
func TestTailWriterLimits(t *testing.T) {
	w := NewTailWriter(nil)
	fmt.Fprintln(w, "Error: first")
	for range 1000 {
		fmt.Fprintln(w, strings.Repeat("x", 100))
	}
	fmt.Fprint(w, "last")
	if len(w.head)+len(w.text) > maxHead+maxTail {
		t.Errorf("%d bytes are kept", len(w.head)+len(w.text))
	}
	got := w.Lines()
	if len(got) == 0 || got[0] != "Error: first" || got[len(got)-1] != "last" {
		t.Errorf("lines %q", got)
	}
	all := w.All()
	if !cmp.Equal(all[0], "Error: first") || all[len(all)-1] != "last" {
		t.Errorf("all lines begin with %q and end with %q", all[0], all[len(all)-1])
	}
}
