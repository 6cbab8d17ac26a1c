package tap

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/test/wait"
)

func init() {
	helpers["arguments"] = func(args []string) int {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return 85
		}
		if err := json.NewEncoder(os.Stdout).Encode(args); err != nil {
			return 85
		}
		return 3
	}
}

// TestBatchFile checks that the program that a batch file starts gets the arguments and the end of
// its input, and that its exit status is the server's.
func TestBatchFile(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shim := filepath.Join(t.TempDir(), "npx.cmd")
	if err := os.WriteFile(shim, []byte("@echo off\r\n\""+self+"\" %*\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-y", "https://h/mcp?a=1&b=2", `x"y`, "p&echo INJECTED", `{"a": "b c"}`, `C:\dir\`, ""}
	o := &Options{Command: append([]string{shim}, args...), Env: append(os.Environ(), helperVar+"=arguments")}
	c, err := startChild(o, false)
	if err != nil {
		t.Fatal(err)
	}
	c.closeStdin()
	var out []byte
	wait.Within(t, "the server", func() {
		out, err = io.ReadAll(c.stdout)
		<-c.done
		c.goroutines.Wait()
	})
	c.closePipes()
	if err != nil {
		t.Errorf("read: %v", err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff(args, got); diff != "" {
		t.Error(diff)
	}
	if c.exit.Code != 3 {
		t.Errorf("exit status %d, want 3", c.exit.Code)
	}

	o.Command = []string{shim, "a\nb"}
	if _, err := startChild(o, false); !errors.Is(err, batchfile.ErrArguments) {
		t.Errorf("a line break: got %v", err)
	}
}
