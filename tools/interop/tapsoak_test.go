package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"mcpwire/capture"
	"mcpwire/internal/test/soak"
)

const (
	soakInFlight = 4        // pending requests; more would take memory until they are redacted
	soakGrowth   = 16 << 20 // limit of the growth in bytes, after a tenth of the messages
)

// TestTapSoak sends many messages through one tap, in both directions, half of them requests. The
// tap records them all, and its memory must not grow.
func TestTapSoak(t *testing.T) {
	messages := soak.Choose(1_000_000, 100_000)
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skip("this system has no /proc/PID/statm")
	}
	file := filepath.Join(t.TempDir(), "soak"+capture.Suffix)
	cmd := exec.Command(serverCommand[0], "tap", "-o", file, "--", serverCommand[0], "serve", "--lenient")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()

	slots := make(chan struct{}, soakInFlight)
	sent := make(chan error, 1)
	go func() {
		var line []byte
		for id := range messages / 2 {
			slots <- struct{}{}
			line = fmt.Appendf(line[:0], `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", id)
			if _, err := stdin.Write(line); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var early int
	lines := bufio.NewReader(stdout)
	for id := range messages / 2 {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			t.Fatalf("response %d: %v", id, err)
		}
		if want := fmt.Appendf(nil, `"id":%d,`, id); !bytes.Contains(line, want) {
			t.Fatalf("response %d = %q, want %s in it", id, line, want)
		}
		<-slots
		if id == messages/20 {
			early = resident(t, cmd.Process.Pid)
		}
	}
	late := resident(t, cmd.Process.Pid)
	t.Logf("resident memory: %d KiB after a tenth, %d KiB at the end", early>>10, late>>10)
	if late-early > soakGrowth {
		t.Errorf("growth of the tap = %d bytes, want at most %d", late-early, soakGrowth)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("output after the last response = %q, %v, want none", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("tap: %v", err)
	}
	checkSoakCapture(t, file, messages)
}

// checkSoakCapture checks that a capture has every message, each request before its response.
func checkSoakCapture(t *testing.T, file string, want int) {
	t.Helper()
	r, err := capture.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	messages, lost, lastRequest := 0, uint64(0), -1
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Kind == capture.KindGap:
			lost += e.Gap.Lost
		case e.Kind == capture.KindMessage && e.Dir == capture.ToServer:
			messages++
			lastRequest++
		case e.Kind == capture.KindMessage:
			messages++
			if id := idOf(t, e.Data); id > lastRequest {
				t.Fatalf("event %d: response %d precedes its request", e.N, id)
			}
		}
	}
	if uint64(messages)+lost < uint64(want) || messages == 0 {
		t.Errorf("capture has %d messages and %d lost events, want %d in all", messages, lost, want)
	}
	t.Logf("capture has %d messages and %d lost events", messages, lost)
}

var soakID = regexp.MustCompile(`"id":([0-9]+)`)

func idOf(t *testing.T, message []byte) int {
	t.Helper()
	m := soakID.FindSubmatch(message)
	if m == nil {
		t.Fatalf("no id in %q", message)
	}
	id, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// resident returns the resident memory of a process, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
