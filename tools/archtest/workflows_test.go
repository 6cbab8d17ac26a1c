package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	usedAction = regexp.MustCompile(`^\s*(?:- )?uses:\s*(\S+)(.*)$`)
	// pinnedAction is an action at a commit, which cannot be moved like a tag.
	pinnedAction = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	version      = regexp.MustCompile(`^ # v\d+\.\d+\.\d+$`)
	expression   = regexp.MustCompile(`\$\{\{[^}]*\}\}`)
)

// checkWorkflow complains of workflows that let others run code in a job, or give a job more rights
// than it needs.
func checkWorkflow(name, text string) []string {
	var complaints []string
	complain := func(line int, format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf("%s:%d: ", name, line)+fmt.Sprintf(format, args...))
	}
	isWorkflow := strings.Contains(name, "workflows/")
	if isWorkflow && !strings.Contains(text, "\npermissions:\n  contents: read\n") {
		complain(1, "want permissions of the workflow that are contents: read; a job that needs more says so")
	}
	if isWorkflow && strings.Count(text, "\n    runs-on:") != strings.Count(text, "\n    timeout-minutes:") {
		complain(1, "want timeout-minutes in each job")
	}
	block := -1 // the column of a run that has several lines
	for i, line := range strings.Split(text, "\n") {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if m := usedAction.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "./") {
			if !pinnedAction.MatchString(m[1]) || !version.MatchString(m[2]) {
				complain(i+1, "pin %s by its commit, with the version as a comment", m[1])
			}
		}
		if strings.Contains(line, "pull_request_target") || strings.Contains(line, "workflow_run") {
			complain(i+1, "this event runs with rights that the code of others must not have")
		}
		_, command, isRun := strings.Cut(line, "run: ")
		switch {
		case isRun && strings.HasPrefix(command, "|"):
			block = strings.Index(line, "run: ") // the column of the key
		case strings.TrimSpace(line) != "" && block >= 0 && indent <= block:
			block = -1
		}
		if isRun || block >= 0 {
			if e := expression.FindString(line); e != "" {
				complain(i+1, "%s becomes part of a command; pass it as a variable in env", e)
			}
		}
	}
	return complaints
}

func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	for _, file := range append(files, filepath.Join(root, "action", "action.yml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		report(t, checkWorkflow(filepath.ToSlash(name), string(text)))
	}
}

func TestCheckWorkflow(t *testing.T) {
	const head = "on:\n  push:\npermissions:\n  contents: read\njobs:\n  a:\n    runs-on: ubuntu-latest\n    timeout-minutes: 5\n    steps:\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"good", head + "      - uses: a/b@0123456789abcdef0123456789abcdef01234567 # v1.2.3\n      - uses: ./action\n      - run: x \"$REF\"\n        env:\n          REF: ${{ github.ref }}\n", nil},
		{"tag", head + "      - uses: a/b@v4\n", []string{"workflows/x.yml:10: pin a/b@v4 by its commit, with the version as a comment"}},
		{"no version", head + "      - uses: a/b@0123456789abcdef0123456789abcdef01234567\n", []string{"workflows/x.yml:10: pin a/b@0123456789abcdef0123456789abcdef01234567 by its commit, with the version as a comment"}},
		{"expression", head + "      - run: echo ${{ github.head_ref }}\n", []string{"workflows/x.yml:10: ${{ github.head_ref }} becomes part of a command; pass it as a variable in env"}},
		{"expression in a block", head + "      - run: |\n          echo ${{ inputs.a }}\n        env:\n          B: ${{ inputs.b }}\n", []string{"workflows/x.yml:11: ${{ inputs.a }} becomes part of a command; pass it as a variable in env"}},
		{"rights", strings.Replace(head, "contents: read", "contents: write", 1), []string{"workflows/x.yml:1: want permissions of the workflow that are contents: read; a job that needs more says so"}},
		{"no timeout", strings.Replace(head, "    timeout-minutes: 5\n", "", 1), []string{"workflows/x.yml:1: want timeout-minutes in each job"}},
		{"event", strings.Replace(head, "  push:", "  pull_request_target:", 1), []string{"workflows/x.yml:2: this event runs with rights that the code of others must not have"}},
	} {
		if diff := cmp.Diff(tt.want, checkWorkflow("workflows/x.yml", tt.text)); diff != "" {
			t.Errorf("%s: complaints (-want +got):\n%s", tt.name, diff)
		}
	}
}
