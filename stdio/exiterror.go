package stdio

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// An ExitError says how a server's process ended.
type ExitError struct {
	Name   string        // of the server, as Cmd.String gives it
	Code   int           // exit status; -1 if a signal ended it
	Signal os.Signal     // that ended it; nil if none did
	After  time.Duration // that it ran
	Stderr string        // the end of what it wrote to standard error, at most 64 KiB
}

const (
	tailLines = 10
	tailBytes = 2 << 10
)

// Error names the server and how it ended, and shows the last few lines it wrote to standard error.
func (e *ExitError) Error() string {
	var b strings.Builder
	if e.Signal != nil {
		fmt.Fprintf(&b, "server %q was ended by a signal (%v)", e.Name, e.Signal)
	} else {
		fmt.Fprintf(&b, "server %q exited with status %d", e.Name, e.Code)
	}
	unit := time.Millisecond
	if e.After > 10*time.Second {
		unit = time.Second
	}
	fmt.Fprintf(&b, " after %v", e.After.Round(unit))
	if tail := lastLines(e.Stderr); len(tail) > 0 {
		b.WriteString("; last stderr lines:")
		for _, line := range tail {
			b.WriteString("\n\t")
			b.Write(appendEscaped(nil, line, tailBytes))
		}
	}
	return b.String()
}

// lastLines returns the last lines that are not blank, as many as an error message can bear.
func lastLines(s string) []string {
	var lines []string
	size := 0
	for len(lines) < tailLines && s != "" {
		at := strings.LastIndexByte(s, '\n') + 1
		line := strings.TrimRight(s[at:], " \t\r")
		s = s[:max(at-1, 0)]
		if line == "" {
			continue
		}
		if size += len(line); size > tailBytes && len(lines) > 0 {
			break
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return lines
}

// newExitError makes one of what Wait returned.
func newExitError(cmd *exec.Cmd, name string, after time.Duration, stderr string) *ExitError {
	e := &ExitError{Name: name, Code: -1, After: after, Stderr: stderr}
	if state := cmd.ProcessState; state != nil {
		e.Code = state.ExitCode()
		e.Signal = exitSignal(state)
	}
	return e
}
