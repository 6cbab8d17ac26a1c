package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/proc/batchfile"
)

// brokenPipe returns the error of a write to a pipe that nobody reads.
func brokenPipe(t *testing.T) error {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	_, err = w.Write([]byte("x"))
	var path *fs.PathError
	if !errors.As(err, &path) {
		t.Fatalf("got %v", err)
	}
	return path.Err
}

// TestReportBrokenPipe checks that a broken pipe is reported unless it is standard output's.
func TestReportBrokenPipe(t *testing.T) {
	broken := brokenPipe(t)
	output := func(err error) error { return fmt.Errorf("write the output: %w", err) }
	for _, test := range []struct {
		name string
		err  error
		said bool
	}{
		{"output", output(&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: broken}), false},
		{"output with a code", fail(exitUnexpected, "output", "", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: broken}), false},
		{"server", &fs.PathError{Op: "write", Path: "|1", Err: broken}, true},
		{"full disk", output(&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: errors.New("no space left")}), true},
	} {
		var stderr strings.Builder
		status := reportError(&stderr, errorsAsText, test.err, 0)
		if diff := cmp.Diff([]any{exitUnexpected, test.said}, []any{status, stderr.Len() > 0}); diff != "" {
			t.Errorf("%s: %s%s", test.name, diff, stderr.String())
		}
	}
}

// TestBatchHint shows that the error for arguments that cannot be passed to a batch file has a
// hint.
func TestBatchHint(t *testing.T) {
	var line errorLine
	var stderr strings.Builder
	f := unreachable(fmt.Errorf("dial: start: %w", batchfile.ErrArguments))
	if f == nil || reportError(&stderr, errorsAsJSON, f, 0) != exitUnreachable {
		t.Fatalf("got %v", f)
	}
	if err := json.Unmarshal([]byte(stderr.String()), &line); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cannot_start", batchHint}, []string{line.Error.Code, line.Error.Hint}); diff != "" {
		t.Error(diff)
	}
}

// TestErrorFormat shows that the arguments decide how errors are written, even if they are invalid,
// but those of the server's command do not.
func TestErrorFormat(t *testing.T) {
	for _, tt := range []struct {
		env, args string
		want      errorFormat
	}{
		{"", "", errorsAsText},
		{"", "list everything", errorsAsText},
		{"", "list everything --json", errorsAsJSON},
		{"", "list --nope --json", errorsAsJSON},
		{"", "list -- server --json", errorsAsText},
		{"", "list --errors=json -- server", errorsAsJSON},
		{"", "list --errors json", errorsAsJSON},
		{"", "list --errors", errorsAsText},
		{"", "list --json --errors text", errorsAsText},
		{"", "list --errors=text --json", errorsAsText},
		{"json", "list", errorsAsJSON},
		{"json", "list --errors=text", errorsAsText},
		{"text", "list", errorsAsText},
	} {
		t.Setenv(errorsVariable, tt.env)
		if got := errorFormatOf(strings.Fields(tt.args)); got != tt.want {
			t.Errorf("%q with %s=%s: got %d, want %d", tt.args, errorsVariable, tt.env, got, tt.want)
		}
	}
}

// TestErrorText shows that an error on a terminal has one line for each part, whatever a server put
// into it.
func TestErrorText(t *testing.T) {
	f := fail(exitAnswer, "rpc_error", "do this", errors.New("no\ngood \x1b[1m")).(*failure)
	f.rpc = &rpcLine{Data: []byte("{\n}")}
	want := "error: no\\ngood \\x1b[1m\ndata: {\\n}\nhint: do this\n"
	if diff := cmp.Diff(want, plainError(fmt.Errorf("%w", f))); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
