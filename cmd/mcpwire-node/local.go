package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/net/loopback"
	"mcpwire/streamable"
)

const (
	// restartDelay is the time before a node that has ended is started again.
	restartDelay = time.Second
	// maxLogLine limits a line of a node's log, in bytes.
	maxLogLine = 64 << 10
	// dialTimeout limits an attempt of the proxy to connect to a node.
	dialTimeout = 2 * time.Second
)

// checkLocal returns an error if other flags do not go together with --local.
func (f *nodeFlags) checkLocal(fs *flag.FlagSet) (err error) {
	if f.local != 3 && f.local != 5 {
		return fmt.Errorf("--local %d: use 3 or 5", f.local)
	}
	f.watch, f.testTools, f.level = true, true, slog.LevelError
	fs.Visit(func(set *flag.Flag) {
		switch set.Name {
		case "local", "listen", "dir", "drain", "stop-at-eof", "gateway":
		case "watch", "test-tools":
			if f.gateway != "" {
				err = errors.Join(err, errDemoFlags)
			}
			if set.Name == "test-tools" {
				f.testTools = set.Value.String() == "true"
				break
			}
			f.watch = set.Value.String() == "true"
		case "log-level":
			err = errors.Join(err, f.level.UnmarshalText([]byte(set.Value.String())))
		default:
			err = errors.Join(err, fmt.Errorf("--%s does not go together with --local", set.Name))
		}
	})
	return err
}

// A localCluster is several nodes on this machine. They are processes, so that one can be killed.
type localCluster struct {
	flags  *nodeFlags
	stderr *lineWriter
	dir    string
	core   string
	// nodes has the address of each node's endpoint.
	nodes *roundRobin
	// path is that of the endpoint. It is nil until a node serves.
	path atomic.Pointer[string]
}

// serveLocal runs the nodes and the proxy until ctx ends.
func (f *nodeFlags) serveLocal(ctx context.Context, stderr io.Writer) (err error) {
	c := &localCluster{flags: f, stderr: &lineWriter{w: stderr}, dir: f.dir}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "mcpwire-node-"); err != nil {
			return err
		}
		defer os.RemoveAll(c.dir)
	}
	// Each node must know where the others are before one of them listens. So the ports are free
	// now, and another program may take one before the node does.
	ports, err := loopback.FreeAddresses(f.local)
	if err != nil {
		return err
	}
	var core []string
	for i := range f.local {
		core = append(core, fmt.Sprintf("n%d=%s", i+1, ports[i]))
	}
	c.core, c.nodes = strings.Join(core, ","), newRoundRobin(f.local)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{}, f.local)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for i := range f.local {
		running.Go(func() { c.keepNode(ctx, i, ready) })
	}
	for range f.local {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil
		}
	}
	return serveProxy(ctx, f.listen, c.nodes.dial, func(a net.Addr) { c.stderr.line(listening+"%s%s", a, *c.path.Load()) })
}

// keepNode runs a node, and starts it again when it has ended, until ctx ends. It sends to ready
// when the node first serves.
func (c *localCluster) keepNode(ctx context.Context, i int, ready chan<- struct{}) {
	name := fmt.Sprintf("n%d", i+1)
	var once sync.Once
	serving := func(address, path string) {
		c.nodes.set(i, address)
		once.Do(func() {
			c.path.Store(&path)
			ready <- struct{}{}
		})
	}
	for {
		err := c.runNode(ctx, name, serving)
		c.nodes.set(i, "")
		if ctx.Err() != nil {
			if !errors.Is(err, context.Canceled) { // it was not drained
				c.stderr.line("%s: %v", name, err)
			}
			return
		}
		c.stderr.line("%s: has ended and is started again: %v", name, err)
		if !wait.Sleep(ctx, restartDelay) {
			return
		}
	}
}

// runNode runs a node until it ends, and drains it when ctx ends. It calls serving when the node
// serves.
func (c *localCluster) runNode(ctx context.Context, name string, serving func(address, path string)) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	f := c.flags
	args := []string{"--name", name, "--listen", "127.0.0.1:0", "--dir", filepath.Join(c.dir, name), "--core", c.core, "--log-level", f.level.String(), "--stop-at-eof"}
	if f.gateway != "" {
		args = append(args, "--gateway", f.gateway)
	} else {
		args = append(args, "--drain", f.drain.String(), fmt.Sprintf("--watch=%t", f.watch), fmt.Sprintf("--test-tools=%t", f.testTools))
	}
	cmd := exec.CommandContext(ctx, exe, args...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = f.drain + 2*leaveTimeout
	if err := cmd.Start(); err != nil {
		return err
	}
	c.stderr.line("%s: process %d", name, cmd.Process.Pid)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), listening); ok {
			address, path, _ := strings.Cut(at, "/")
			serving(address, "/"+path)
		}
		c.stderr.line("%s: %s", name, lines.Text())
	}
	io.Copy(io.Discard, stderr) // after a long line
	return cmd.Wait()
}

// serveProxy serves a proxy that makes a connection with dial for each request, until ctx ends.
func serveProxy(ctx context.Context, listen string, dial func(ctx context.Context, network, address string) (net.Conn, error), onListen func(net.Addr)) error {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "node" // dial knows where
			r.Out.Host = r.In.Host
		},
		// Each request has its own connection, so that no request is sent twice.
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: dial},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				http.Error(w, "no node responds: "+err.Error(), http.StatusBadGateway)
			}
		},
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A node may respond before the proxy has read the end of the request. Without full duplex,
		// net/http then closes the request's body, which fails the exchange.
		http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
	return streamable.ListenAndServe(ctx, listen, handler, &streamable.ServeOptions{OnListen: onListen})
}

// A roundRobin connects to each of some addresses in turn.
type roundRobin struct {
	mu sync.Mutex
	// addresses has "" for a node that does not serve.
	addresses []string
	next      int
}

func newRoundRobin(n int) *roundRobin { return &roundRobin{addresses: make([]string, n)} }

func (rr *roundRobin) set(i int, address string) {
	rr.mu.Lock()
	defer rr.mu.Unlock()
	rr.addresses[i] = address
}

// inTurn returns the addresses, beginning with the next one.
func (rr *roundRobin) inTurn() []string {
	rr.mu.Lock()
	defer rr.mu.Unlock()
	rr.next = (rr.next + 1) % len(rr.addresses)
	return slices.Concat(rr.addresses[rr.next:], rr.addresses[:rr.next])
}

// dial connects to the next address that accepts connections.
func (rr *roundRobin) dial(ctx context.Context, network, _ string) (conn net.Conn, err error) {
	err = errors.New("no node serves yet")
	dialer := net.Dialer{Timeout: dialTimeout}
	for _, at := range rr.inTurn() {
		if at == "" {
			continue
		}
		if conn, err = dialer.DialContext(ctx, network, at); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// A lineWriter writes lines of several goroutines.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) line(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format+"\n", v...)
}
