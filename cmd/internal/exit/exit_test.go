package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		{"output with a code", Fail(Unexpected, "output", "", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: broken}), false},
		{"server", &fs.PathError{Op: "write", Path: "|1", Err: broken}, true},
		{"full disk", output(&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: errors.New("no space left")}), true},
	} {
		var stderr strings.Builder
		status := Report(&stderr, AsText, test.err, 0)
		if diff := cmp.Diff([]any{Unexpected, test.said}, []any{status, stderr.Len() > 0}); diff != "" {
			t.Errorf("%s: %s%s", test.name, diff, stderr.String())
		}
	}
}

// TestErrorFormat shows that the arguments decide how errors are written, even if they are invalid,
// but those of the server's command do not.
func TestErrorFormat(t *testing.T) {
	for _, tt := range []struct {
		env, args string
		want      Format
	}{
		{"", "", AsText},
		{"", "list everything", AsText},
		{"", "list everything --json", AsJSON},
		{"", "list --nope --json", AsJSON},
		{"", "list -- server --json", AsText},
		{"", "list --errors=json -- server", AsJSON},
		{"", "list --errors json", AsJSON},
		{"", "list --errors", AsText},
		{"", "list --json --errors text", AsText},
		{"", "list --errors=text --json", AsText},
		{"json", "list", AsJSON},
		{"json", "list --errors=text", AsText},
		{"text", "list", AsText},
	} {
		t.Setenv(FormatVariable, tt.env)
		if got := FormatOf(strings.Fields(tt.args)); got != tt.want {
			t.Errorf("%q with %s=%s: got %d, want %d", tt.args, FormatVariable, tt.env, got, tt.want)
		}
	}
}

// TestErrorText shows that an error on a terminal has one line for each part, whatever a server put
// into it.
func TestErrorText(t *testing.T) {
	f := Fail(Answer, "rpc_error", "do this", errors.New("no\ngood \x1b[1m")).(*Failure)
	f.RPC = &RPC{Data: []byte("{\n}")}
	want := "error: no\\ngood \\x1b[1m\ndata: {\\n}\nhint: do this\n"
	if diff := cmp.Diff(want, Text(fmt.Errorf("%w", f))); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
