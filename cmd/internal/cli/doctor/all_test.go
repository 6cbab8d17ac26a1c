package doctor

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
)

// TestDoctorTable shows that a long reason is wrapped, and not cut.
func TestDoctorTable(t *testing.T) {
	const reason = "it exits before it responds: exit status 2 after 1.2s: In-memory databases require the --read-write flag."
	for _, width := range []int{0, 40, 80, 200} {
		var out bytes.Buffer
		table := &doctorTable{e: &kit.Env{Stdout: &out}, width: width, servers: []hosts.Server{{Host: "cursor", Name: "duck"}, {Host: "claude-desktop", Name: "files"}}}
		if err := table.line(0, &doctorReport{Status: "unreachable", Verdict: reason, exit: exit.Unreachable}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != "✗ cursor:duck unreachable: "+reason {
			t.Errorf("width %d: got %q", width, got)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n ")); width >= 80 && n > width {
				t.Errorf("width %d: a line has %d characters", width, n)
			}
		}
	}
}

func TestRunning(t *testing.T) {
	servers := []hosts.Server{{Host: "a", Name: "1"}, {Host: "b", Name: "2"}, {Host: "c", Name: "3"}}
	if got := running(servers, []bool{false, true, false}); got != "a:1, c:3" {
		t.Errorf("got %q", got)
	}
}
