package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/test/upstream"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestGateway runs three nodes with a gateway, whose upstream is a process at one of them, and
// kills that node.
func TestGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts three nodes")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	// The node's variable must not make the server a node.
	text := fmt.Sprintf("upstreams: {up: {command: [%q], env: {%s: '', %s: '1'}, timeouts: {restart: 30s}}}\n", os.Args[0], programVariable, upstream.Variable)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "--local", "3", "--listen", "127.0.0.1:0", "--gateway", file)
	var clients []*client.Client
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		clients = append(clients, connect(t, p.url, &client.Options{Revisions: []mcp.Revision{r}}, nil))
	}
	where := func(c *client.Client) (process, node int, err error) {
		got, err := call(t.Context(), c, "up__where", nil)
		if err == nil {
			_, err = fmt.Sscan(got, &process, &node)
		}
		return process, node, err
	}
	// The server speaks both eras, and has one process for each.
	var processes [2]int
	node := 0
	for i := range 12 { // each client at each node
		atProcess, atNode, err := where(clients[i%2])
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && node != atNode || i > 1 && processes[i%2] != atProcess {
			t.Errorf("client %d: got process %d of node %d, want %v of node %d", i%2, atProcess, atNode, processes, node)
		}
		processes[i%2], node = atProcess, atNode
	}
	if node == 0 || node == p.cmd.Process.Pid {
		t.Fatalf("the process runs below process %d", node)
	}

	failed := make(chan error, 3)
	var began sync.WaitGroup
	for range 3 { // one call at each node
		began.Add(1)
		go func() {
			began.Done()
			_, err := call(t.Context(), clients[1], "up__hang", nil)
			failed <- err
		}()
	}
	began.Wait()
	for range 6 { // until the calls have most likely arrived
		if _, _, err := where(clients[1]); err != nil {
			t.Fatal(err)
		}
	}
	killed := time.Now()
	if err := syscall.Kill(node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for range 3 {
		select {
		case err := <-failed:
			if e, ok := errors.AsType[*jsonrpc.Error](err); ok && strings.Contains(string(e.Data), `"reason":"node lost","mayHaveRun":true`) {
				lost++
			}
			t.Logf("after %v: %v", time.Since(killed), err)
		case <-time.After(testTimeout):
			t.Fatal("a call has not ended")
		}
	}
	if lost == 0 {
		t.Error("no call failed with node lost")
	}
	for _, c := range clients {
		for {
			atProcess, atNode, err := where(c)
			if err == nil {
				t.Logf("after %v: process %d of node %d", time.Since(killed), atProcess, atNode)
				if atNode == node || slices.Contains(processes[:], atProcess) {
					t.Errorf("got process %d of the killed node %d", atProcess, atNode)
				}
				break
			}
			t.Logf("after %v: %v", time.Since(killed), err)
			if time.Since(killed) > testTimeout {
				t.Fatal("no other node runs the process")
			}
		}
	}
	for _, process := range processes {
		wait.Until(t, "the process of the killed node to end", func() bool { return syscall.Kill(process, 0) != nil })
	}
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
