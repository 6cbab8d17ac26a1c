//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpwire/internal/net/loopback"
)

const (
	nodeCount = 3
	// startTimeout limits the start of a node: it may wait for the others.
	startTimeout = 60 * time.Second
	// stopTimeout limits the end of a node in order.
	stopTimeout = 40 * time.Second
)

// A testbed has three nodes with embedded servers, a balancer in front of them and a network
// between them.
type testbed struct {
	dir      string
	balancer *balancer
	network  *network
	nodes    []*node
}

// A node is a core node in its own process.
type node struct {
	name string
	// address is that of its HTTP server, admin that of its admin endpoints, client that for the
	// clients of its engine.
	address, admin, client string
	args                   []string
	log                    *os.File

	mu  sync.Mutex
	cmd *exec.Cmd
	// ready is closed when the process listens, ended when it has ended.
	ready, ended chan struct{}
	err          error
}

// newTestbed starts the nodes, with the given program, below dir, and waits until they listen.
func newTestbed(ctx context.Context, dir string, program []string) (b *testbed, err error) {
	b = &testbed{dir: dir}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.network, err = newNetwork(nodeCount, b.pids); err != nil {
		return nil, err
	}
	var core, targets []string
	for i := range nodeCount {
		core = append(core, fmt.Sprintf("n%d=%s", i+1, b.network.address(i)))
	}
	addresses, err := loopback.FreeAddresses(3 * nodeCount)
	if err != nil {
		return nil, err
	}
	for i := range nodeCount {
		n := &node{name: fmt.Sprintf("n%d", i+1), address: addresses[3*i], admin: addresses[3*i+1], client: addresses[3*i+2]}
		if n.log, err = os.Create(filepath.Join(dir, n.name+".log")); err != nil {
			return nil, err
		}
		n.args = append(append([]string{}, program...),
			"--name", n.name, "--listen", n.address, "--admin", n.admin, "--dir", filepath.Join(dir, n.name),
			"--core", strings.Join(core, ","), "--core-listen", b.network.listen(i), "--client-listen", n.client)
		b.nodes = append(b.nodes, n)
		targets = append(targets, n.address)
	}
	if b.balancer, err = newBalancer(targets); err != nil {
		return nil, err
	}
	return b, b.startAll(ctx)
}

// startAll starts all nodes that do not run and waits until they listen.
func (b *testbed) startAll(ctx context.Context) error {
	for _, n := range b.nodes {
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, n := range b.nodes {
		if err := n.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pids returns the process ids of the nodes that run, and 0 for others.
func (b *testbed) pids() []int {
	pids := make([]int, nodeCount)
	for i, n := range b.nodes {
		pids[i] = n.pid()
	}
	return pids
}

// close kills the nodes.
func (b *testbed) close() {
	for _, n := range b.nodes {
		n.kill()
		n.log.Close()
	}
	if b.balancer != nil {
		b.balancer.close()
	}
	if b.network != nil {
		b.network.close()
	}
}

func (n *node) url() string { return "http://" + n.address + "/mcp" }

// start starts the process unless it runs.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		return nil
	}
	cmd := exec.Command(n.args[0], n.args[1:]...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	cmd.Stdout = n.log
	// The nodes end with this process, and a signal of the terminal is for this one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	fmt.Fprintf(n.log, "# %s start\n", time.Now().Format(time.RFC3339Nano))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node %s: %w", n.name, err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	n.cmd, n.ready, n.ended, n.err = cmd, ready, ended, nil
	go func() {
		defer close(ended)
		listening := sync.OnceFunc(func() { close(ready) })
		r := bufio.NewReader(stderr)
		for {
			line, err := r.ReadString('\n')
			io.WriteString(n.log, line) // a log that cannot be written does not fail the run
			if strings.Contains(line, "listening on") {
				listening()
			}
			if err != nil {
				break
			}
		}
		err := cmd.Wait()
		fmt.Fprintf(n.log, "# %s end: %v\n", time.Now().Format(time.RFC3339Nano), err)
		n.mu.Lock()
		n.cmd, n.err = nil, err
		n.mu.Unlock()
	}()
	return nil
}

// wait waits until the process listens.
func (n *node) wait(ctx context.Context) error {
	n.mu.Lock()
	ready, ended := n.ready, n.ended
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-ready:
		return nil
	case <-ended:
		return fmt.Errorf("node %s has ended: see %s", n.name, n.log.Name())
	case <-ctx.Done():
		return fmt.Errorf("node %s does not listen: %w; see %s", n.name, ctx.Err(), n.log.Name())
	}
}

func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// signal sends a signal to the process, if it runs.
func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return errors.New("node " + n.name + " does not run")
	}
	return n.cmd.Process.Signal(s)
}

// kill ends the process without a chance to do anything.
func (n *node) kill() {
	n.mu.Lock()
	ended := n.ended
	if n.cmd != nil {
		_ = n.cmd.Process.Kill() // it may have ended
	}
	n.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// stop ends the process in order.
func (n *node) stop() error {
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		n.kill()
		return fmt.Errorf("node %s does not end within %v of SIGTERM", n.name, stopTimeout)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return fmt.Errorf("node %s: %w; see %s", n.name, n.err, n.log.Name())
	}
	return nil
}

// rss returns the resident memory of the process, in bytes.
func (n *node) rss() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.pid()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
