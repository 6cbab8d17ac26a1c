//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/tools/bench/raw"
)

// TestBridgeCommands checks which bridges are measured for each pair of transports and of eras, and
// their commands.
func TestBridgeCommands(t *testing.T) {
	p := &bridgeEnd{run: &run{}, bridge: "/mcpwire", packages: "/bin"}
	upstream := map[transport][]string{onHTTP: {"http://127.0.0.1:9/mcp"}, onStdio: {"/server", "-era", "x"}, onOld: {"http://127.0.0.1:9/sse"}}
	type row struct{ way, crossing string }
	got := map[row]string{}
	for _, w := range ways {
		for _, c := range crossings(w) {
			var names []string
			for _, b := range bridges {
				command := at(b.command(p, w, c, upstream[w.upstream]), "127.0.0.1:4321")
				if command == nil {
					continue
				}
				names = append(names, b.name)
				line := strings.Join(command, " ")
				if strings.Contains(line, "{") || !strings.Contains(line, upstream[w.upstream][0]) || (w.downstream != onStdio) != strings.Contains(line, "4321") {
					t.Errorf("%s, %s: %s", w, c, line)
				}
			}
			got[row{w.String(), c.String()}] = strings.Join(names, " ")
		}
	}
	const in, out = "client on stdio, server on HTTP", "client on HTTP, server on stdio"
	want := map[row]string{
		{in, "legacy"}:            "mcpwire mcp-remote supergateway",
		{in, "modern"}:            "mcpwire mcp-remote",
		{in, "legacy to modern"}:  "mcpwire mcp-remote",
		{in, "modern to legacy"}:  "mcpwire",
		{out, "legacy"}:           "mcpwire supergateway mcp-proxy",
		{out, "modern"}:           "mcpwire supergateway mcp-proxy",
		{out, "legacy to modern"}: "mcpwire mcp-proxy",
		{out, "modern to legacy"}: "mcpwire mcp-proxy",

		{"client on stdio, server on HTTP+SSE", "legacy"}: "mcpwire mcp-remote supergateway",
		{"client on HTTP+SSE, server on stdio", "legacy"}: "mcpwire supergateway mcp-proxy",
	}
	for at, names := range want {
		if got[at] != names {
			t.Errorf("%v: got %q, want %q", at, got[at], names)
		}
	}
	p.packages = ""
	for _, b := range bridges[1:] {
		if command := b.command(p, ways[1], crossings(ways[1])[0], upstream[onStdio]); command != nil {
			t.Errorf("%s: got a command without an installation", b.name)
		}
	}
}

// TestLargeTexts checks that a server that writes before it reads again gets all calls, although no
// pipe can buffer them.
func TestLargeTexts(t *testing.T) {
	theirIn, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer theirOut.Close()
		lines := bufio.NewReader(theirIn)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				done <- nil
				return
			}
			if _, err := theirOut.Write(raw.Answer(nil, line)); err != nil {
				done <- err
				return
			}
		}
	}()
	c, err := openConn(&exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}, in, out, eras[0], strings.Repeat("x", 200_000))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.loadHere(8, time.Millisecond)
	if err != nil || s.calls < 8 || s.time <= 0 || s.cpu <= 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	out.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestProcesses(t *testing.T) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip("no cat")
	}
	cmd := exec.Command(cat)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	all, err := processes(os.Getpid(), "")
	if err != nil || !slices.Contains(all, cmd.Process.Pid) || !slices.Contains(all, os.Getpid()) {
		t.Errorf("got %v, %v, want %d and %d in it", all, err, os.Getpid(), cmd.Process.Pid)
	}
	others, err := processes(os.Getpid(), exe)
	if err != nil || slices.Contains(others, cmd.Process.Pid) || !slices.Contains(others, os.Getpid()) {
		t.Errorf("without %s: got %v, %v", exe, others, err)
	}
	if sum, err := cpuTimes(append(others, 1<<30)); err != nil || sum <= 0 {
		t.Errorf("CPU time: got %v, %v", sum, err)
	}
}

func TestBridgeTable(t *testing.T) {
	micros := func(t, cpu time.Duration) sample {
		return sample{time: t * time.Microsecond, cpu: cpu * time.Microsecond}
	}
	m := &crossed{crossing: crossings(ways[0])[2], names: []string{unbridged, unbridged + ", on stdio", ours, "other"}}
	for i, window := range []int{1, 1, manyCalls, manyCalls} {
		k := time.Duration(i + 1)
		m.took = append(m.took, taken{window, [][]sample{{micros(10*k, 0)}, {micros(5*k, 0)}, {micros(20*k, 4)}, {micros(80*k, 12)}}, []bool{false, false, false, i == 3}})
	}
	got := bridgeTable("title", []*crossed{m}, 1)
	want := [][]string{
		{"modern", "no bridge", "20.0 µs", "1.00", "0.50", "", "", "40.0 µs", "1.00", "0.50", "", ""},
		{"modern", "no bridge, on stdio", "10.0 µs", "0.50 (0.50–0.50)", "0.25", "", "", "20.0 µs", "0.50 (0.50–0.50)", "0.25", "", ""},
		{"legacy to modern", "mcpwire", "40.0 µs", "2.00 (2.00–2.00)", "1.00", "4.0 µs", "1.00", "80.0 µs", "2.00 (2.00–2.00)", "1.00", "4.0 µs", "1.00"},
		{"legacy to modern", "other", "160.0 µs", "8.00 (8.00–8.00)", "4.00", "12.0 µs", "3.00", "failed", "", "", "", ""},
	}
	if !slices.EqualFunc(got.rows, want, slices.Equal) {
		t.Errorf("rows:\n got %q\nwant %q", got.rows, want)
	}
	for _, row := range got.rows {
		if len(row) != len(got.columns) {
			t.Errorf("%d cells under %d columns: %q", len(row), len(got.columns), row)
		}
	}
}

// TestFailures checks that another bridge may fail, and is omitted after that.
func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.WriteString("last words\n")
	for _, tt := range []struct {
		subject subject
		fatal   bool
	}{
		{subject{name: unbridged, log: log}, true},
		{subject{name: ours, pid: 1, log: log}, true},
		{subject{name: "other", pid: 1, log: log}, false},
	} {
		err := tt.subject.check(boom)
		if (err != nil) != tt.fatal || tt.fatal && (!errors.Is(err, boom) || !strings.Contains(err.Error(), "last words")) {
			t.Errorf("%s: got %v", tt.subject.name, err)
		}
		if (tt.subject.failed != nil) == tt.fatal {
			t.Errorf("%s: failed is %v", tt.subject.name, tt.subject.failed)
		}
	}
}

func TestNpmVersions(t *testing.T) {
	dir := t.TempDir()
	if got := npmVersions(dir); got != "" {
		t.Errorf("nothing is installed: got %q", got)
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node.js is missing")
	}
	if err := os.MkdirAll(filepath.Join(dir, "node_modules", ".bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"dependencies":{"b":"2.0.0","a":"1.0.0"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := npmVersions(dir); !strings.HasPrefix(got, "; Node.js v") || !strings.HasSuffix(got, ", a 1.0.0, b 2.0.0") {
		t.Errorf("got %q", got)
	}
}
