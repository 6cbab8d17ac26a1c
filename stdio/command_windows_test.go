package stdio

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/proc/batchfile"
)

func init() {
	helpers["arguments"] = func() {
		json.NewEncoder(os.Stdout).Encode(os.Args[1:])
		io.Copy(io.Discard, os.Stdin)
	}
}

// TestBatchFile checks that the program started by a batch file gets the arguments unchanged, and
// that it uses the process's input and output.
func TestBatchFile(t *testing.T) {
	args := []string{"-y", "https://h/mcp?a=1&b=2", `x"y`, "p&echo INJECTED", `{"a": "b c"}`, `C:\dir\`, ""}
	c := helperCommand(t, "arguments", args...)
	shim := filepath.Join(t.TempDir(), "npx.cmd")
	if err := os.WriteFile(shim, []byte("@echo off\r\n\""+c.Path+"\" %*\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Path = shim
	p, err := c.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.NewDecoder(p).Decode(&got); err != nil {
		t.Errorf("read: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if diff := cmp.Diff(args, got); diff != "" {
		t.Error(diff)
	}

	c.Args = []string{"a\nb"}
	if p, err := c.Start(t.Context()); !errors.Is(err, batchfile.ErrArguments) {
		t.Errorf("a line break: got %v and %v", p, err)
	}
}
