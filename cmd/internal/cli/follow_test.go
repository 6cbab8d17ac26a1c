package cli

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFollowWaits starts follow before there is a capture, as a user does who has added a tap to a
// host's configuration and is about to start the host.
func TestFollowWaits(t *testing.T) {
	for _, tt := range []struct {
		name         string
		args, record []string
		want         string
	}{
		{"the newest", nil, nil, "waiting for a capture in "},
		{"a name", []string{"shop"}, []string{"--name", "shop"}, "waiting for the capture shop in "},
		{"a name of a capture", []string{"capture:shop"}, []string{"--name", "shop"}, "waiting for the capture capture:shop in "},
		{"a file", []string{"a.mcpcap.ndjson"}, []string{"-o", "a.mcpcap.ndjson"}, "waiting for the capture a.mcpcap.ndjson;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			start := func(args ...string) *exec.Cmd {
				cmd := exec.Command("mcpwire", args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "MCPWIRE_HOME="+filepath.Join(dir, "home"))
				return cmd
			}
			follow := start(append([]string{"show", "--follow"}, tt.args...)...)
			var out bytes.Buffer
			follow.Stdout = &out
			said, err := follow.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := follow.Start(); err != nil {
				t.Fatal(err)
			}
			defer follow.Process.Kill() // if the test ends early; else it has no effect
			line, err := bufio.NewReader(said).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, tt.want) {
				t.Fatalf("it says %q, %v; want %q", line, err, tt.want)
			}
			tap := start(append(append([]string{"tap"}, tt.record...), "--", "mcpwire", "serve")...)
			tap.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n")
			if text, err := tap.CombinedOutput(); err != nil {
				t.Fatalf("the tap: %v\n%s", err, text)
			}
			if err := follow.Wait(); err != nil {
				t.Errorf("the end: %v", err)
			}
			if !strings.Contains(out.String(), "initialize") {
				t.Errorf("it shows\n%s", out.String())
			}
		})
	}
}

// TestFollowLater shows that a capture that begins while another one is followed is followed too.
func TestFollowLater(t *testing.T) {
	dir := t.TempDir()
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command("mcpwire", args...)
		cmd.Env = append(os.Environ(), "MCPWIRE_HOME="+filepath.Join(dir, "home"))
		return cmd
	}
	// A closed capture is not followed.
	if text, err := start("tap", "--name", "old", "--", "mcpwire", "serve").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	follow := start("show", "--follow")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	defer follow.Process.Kill() // if the test ends early; else it has no effect
	lines := bufio.NewScanner(out)
	var seen []string
	for _, name := range []string{"first", "second"} {
		tap := start("tap", "--name", name, "--", "mcpwire", "serve")
		in, err := tap.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := tap.Start(); err != nil {
			t.Fatal(err)
		}
		defer tap.Wait()
		defer in.Close()
		if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			seen = append(seen, lines.Text())
			if strings.Contains(lines.Text(), "initialize") {
				break
			}
		}
	}
	if strings.Contains(strings.Join(seen, "\n"), "old") {
		t.Errorf("an old capture is shown:\n%s", strings.Join(seen, "\n"))
	}
	if last := seen[len(seen)-1]; !strings.Contains(last, "second") || !strings.Contains(last, "initialize") {
		t.Errorf("the lines do not end with the handshake of the second server:\n%s", strings.Join(seen, "\n"))
	}
}
