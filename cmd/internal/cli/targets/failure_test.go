package targets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// TestBatchHint shows that the error for arguments that cannot be passed to a batch file has a
// hint.
func TestBatchHint(t *testing.T) {
	var line exit.ErrorLine
	var stderr strings.Builder
	f := unreachable(fmt.Errorf("dial: start: %w", batchfile.ErrArguments))
	if f == nil || exit.Report(&stderr, exit.AsJSON, f, 0) != exit.Unreachable {
		t.Fatalf("got %v", f)
	}
	if err := json.Unmarshal([]byte(stderr.String()), &line); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"cannot_start", BatchHint}, []string{line.Error.Code, line.Error.Hint}); diff != "" {
		t.Error(diff)
	}
}

// TestHints shows that hints fit the failure, and lead nobody elsewhere.
func TestHints(t *testing.T) {
	moved := "/mcp/"
	exited := func(stderr string) error { return &stdio.ExitError{Name: "x", Code: 1, Stderr: stderr} }
	status := func(code int, text string) error { return &streamable.StatusError{StatusCode: code, Text: text} }
	for _, tt := range []struct {
		name      string
		err       error
		want, not string // in the hint
	}{
		{"404", status(404, ""), "many use /mcp", "proxy"},
		{"405", status(405, ""), "--transport sse", "proxy"},
		{"500", status(500, "boom"), "see its log", "URL"},
		{"502", status(502, "<html>bad gateway"), "start the server behind the proxy", "URL"},
		{"503", status(503, "unknown session"), "try again later", "URL"},
		{"504", status(504, ""), "waited too long", "URL"},
		{"429", status(429, ""), "Retry-After", "URL"},
		{"301", status(301, ""), "the endpoint is at /mcp/", "proxy"},
		{"403 for the host", status(403, "Invalid Host header: 127.0.0.1"), "allowed hosts", "token"},
		{"403", status(403, "no"), "this user", "allowed hosts"},
		{"an exit with a cause", exited("Error: WEATHER_KEY is required"), "WEATHER_KEY is missing", "looks for the cause"},
		{"an exit without a cause", exited("up and running\nas always"), "mcpwire doctor looks for the cause", "missing"},
		{"too many files", &exec.Error{Name: "/bin/x", Err: &fs.PathError{Op: "fork/exec", Path: "/bin/x", Err: syscall.EMFILE}}, "ulimit -n", "PATH"},
		{"too many files for a pipe", fmt.Errorf("start: %w", &fs.PathError{Op: "pipe", Err: syscall.EMFILE}), "ulimit -n", "executable"},
		{"not installed", &exec.Error{Name: "x", Err: exec.ErrNotFound}, "in the PATH", "ulimit"},
		{"silence", &client.TimeoutError{Method: "initialize"}, "allow more time", "missing"},
	} {
		d := &Dialer{Target: Spec{Name: "x", URL: "http://127.0.0.1:8000/mcp"}, HTTP: new(HTTPSide), Trace: newTrace(), Tail: kit.NewTailWriter(nil)}
		d.HTTP.location.Store(&moved)
		var f *exit.Failure
		if !errors.As(d.Failure(tt.err), &f) || !strings.Contains(f.Hint, tt.want) || strings.Contains(f.Hint, tt.not) {
			t.Errorf("%s: got hint %q; want %q, and not %q", tt.name, f.Hint, tt.want, tt.not)
		}
	}
}
