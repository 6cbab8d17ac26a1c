//go:build linux

// Command gateway measures what a gateway in front of many servers must bear, beyond the calls that
// ../compare measures:
//
//	list     a list of the tools of 50 servers with 40 tools each
//	memory   idle sessions of legacy clients, and open streams
//	kill     one of 20 servers is killed every second, while the others are called
//	reload   the configuration of one of 50 servers changes, while the others are called
//
// In the folder bench:
//
//	go run ./gateway
//	go run ./gateway -only kill -duration 10m
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

func main() {
	only := flag.String("only", "list,memory,kill,reload", "what to measure")
	duration := flag.Duration("duration", 30*time.Second, "how long servers are killed, and how long configurations change")
	sessions := flag.Int("sessions", 2000, "how many sessions and streams to open")
	flag.Parse()
	if err := run(*only, *duration, *sessions); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(only string, duration time.Duration, sessions int) error {
	dir, err := os.MkdirTemp("", "gatewaybench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, server: filepath.Join(dir, "server"), mcpwire: filepath.Join(dir, "mcpwire")}
	for _, build := range []struct{ in, out, what string }{{".", b.server, "./server"}, {"../..", b.mcpwire, "./cmd/mcpwire"}} {
		cmd := exec.Command("go", "build", "-o", build.out, build.what)
		cmd.Dir = build.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := os.Setenv("MCPWIRE_HOME", filepath.Join(dir, "home")); err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Printf("load average before: %s\n", bytes.Fields(load)[0])
	ctx := context.Background()
	for name := range strings.SplitSeq(only, ",") {
		var err error
		switch name {
		case "list":
			err = b.list(ctx)
		case "memory":
			err = b.memory(ctx, sessions)
		case "kill":
			err = b.kill(ctx, duration)
		case "reload":
			err = b.reload(ctx, duration)
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

type bench struct {
	dir, server, mcpwire string
}

// A gateway is a running gateway.
type gateway struct {
	cmd    *exec.Cmd
	config string // the file
	addr   string
	admin  string
	log    *os.File
}

// A fleet is the configuration of servers on stdio.
type fleet struct {
	servers, tools int
	// marked is the server with one more argument, whose change is a change of its configuration.
	marked int
}

// maxClients is the limit of sessions and streams, which all come from one caller.
const maxClients = 1_000_000

// marker is the variable in the environment of a server that has its name.
const marker = "BENCH_SERVER"

func serverName(i int) string { return fmt.Sprintf("s%02d", i) }

func (b *bench) write(file, addr, admin string, f fleet) error {
	var text strings.Builder
	fmt.Fprintf(&text, "listen: {address: %q, sessions: %d, streams: %d, perCaller: %d}\nadmin: %q\n", addr, maxClients, maxClients, maxClients, admin)
	fmt.Fprintf(&text, "limits: {upstream: {processesPerCaller: 100}}\nupstreams:\n")
	for i := range f.servers {
		tools := f.tools
		if i == f.marked {
			tools++
		}
		fmt.Fprintf(&text, "  %s: {command: [%q, -tools, %q], env: {%s: %s}, isolation: shared, era: modern}\n", serverName(i), b.server, strconv.Itoa(tools), marker, serverName(i))
	}
	// As editors do: a reader sees the old file or the new one.
	if err := os.WriteFile(file+".new", []byte(text.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (b *bench) start(ctx context.Context, f fleet, env ...string) (*gateway, error) {
	addr, err := freeAddress()
	admin, err2 := freeAddress()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	g := &gateway{config: filepath.Join(b.dir, "gateway.yaml"), addr: addr, admin: admin}
	if err := b.write(g.config, addr, admin, f); err != nil {
		return nil, err
	}
	if g.log, err = os.CreateTemp(b.dir, "log"); err != nil {
		return nil, err
	}
	g.cmd = exec.Command(b.mcpwire, "gateway", g.config)
	g.cmd.Env = append(os.Environ(), env...)
	g.cmd.Stderr = g.log
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < 30*time.Second; pause(20 * time.Millisecond) {
		if resp, err := http.Get("http://" + admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return g, nil
			}
		}
	}
	return nil, errors.Join(errors.New("the gateway is not ready"), g.stop())
}

func pause(d time.Duration) { <-time.After(d) }

func (g *gateway) stop() error {
	defer g.log.Close()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := g.cmd.Wait()
	if err != nil {
		text, _ := os.ReadFile(g.log.Name())
		return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):])
	}
	return nil
}

func (g *gateway) dial(ctx context.Context, revision mcp.Revision) (*client.Client, error) {
	return client.Dial(ctx, streamable.NewTransport("http://"+g.addr+"/mcp", nil), &client.Options{
		Info: mcp.Implementation{Name: "bench", Version: "1.0.0"}, Revisions: []mcp.Revision{revision},
		Cache: client.CacheOptions{MaxBytes: -1},
	})
}

// children returns the processes that the gateway has started.
func (g *gateway) children() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(g.cmd.Process.Pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A usage is what a gateway has open.
type usage struct {
	processes, descriptors, threads int
	// resident is in bytes.
	resident int
}

func (g *gateway) usage() usage {
	u := usage{processes: len(g.children())}
	proc := fmt.Sprintf("/proc/%d/", g.cmd.Process.Pid)
	fds, _ := os.ReadDir(proc + "fd")
	u.descriptors = len(fds)
	status, _ := os.ReadFile(proc + "status")
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch n, _ := strconv.Atoi(fields[1]); fields[0] {
		case "VmRSS:":
			u.resident = n << 10
		case "Threads:":
			u.threads = n
		}
	}
	return u
}

// goroutines returns the number in the metrics of the gateway, or -1 if they do not have it.
func (g *gateway) goroutines() int {
	resp, err := http.Get("http://" + g.admin + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	text.ReadFrom(resp.Body)
	for line := range strings.Lines(text.String()) {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return -1
}

// quantile returns the quantile q of durations.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// list measures a list of 2,000 tools.
func (b *bench) list(ctx context.Context) error {
	g, err := b.start(ctx, fleet{servers: 50, tools: 40, marked: -1})
	if err != nil {
		return err
	}
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		c, err := g.dial(ctx, revision)
		if err != nil {
			return errors.Join(err, g.stop())
		}
		var took []time.Duration
		var first time.Duration
		n := 0
		for range 30 {
			began := time.Now()
			n = 0
			for _, err := range c.Tools(ctx) {
				if err != nil {
					return errors.Join(err, g.stop())
				}
				n++
			}
			if d := time.Since(began); first == 0 {
				first = d
			} else {
				took = append(took, d)
			}
		}
		fmt.Printf("list, %v: %d tools of 50 servers; first %v, then p50 %v, p99 %v with the decoding of the client\n", revision, n, first.Round(time.Millisecond), quantile(took, 0.5).Round(10*time.Microsecond), quantile(took, 0.99).Round(10*time.Microsecond))
		c.Close()
	}
	raw, err := g.rawList()
	if err != nil {
		return errors.Join(err, g.stop())
	}
	fmt.Printf("list, 2026-07-28: first page p50 %v without decoding\n", raw)
	return g.stop()
}

// rawList measures the first page of the list over one connection, without a client library.
func (g *gateway) rawList() (time.Duration, error) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	var took []time.Duration
	for range 100 {
		req, err := http.NewRequest(http.MethodPost, "http://"+g.addr+"/mcp", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": mcp.LatestRevision.String(), "Mcp-Method": "tools/list"} {
			req.Header.Set(name, value)
		}
		began := time.Now()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		var text bytes.Buffer
		_, err = text.ReadFrom(resp.Body)
		resp.Body.Close()
		if took = append(took, time.Since(began)); err != nil || !bytes.Contains(text.Bytes(), []byte(`"tools"`)) {
			return 0, fmt.Errorf("%v: %.200q", err, text.Bytes())
		}
	}
	return quantile(took, 0.5).Round(10 * time.Microsecond), nil
}

// memory measures idle sessions and open streams: first as the gateway runs, and then with a
// collector that leaves little garbage, which shows what they need.
func (b *bench) memory(ctx context.Context, sessions int) error {
	return errors.Join(b.memoryWith(ctx, sessions, "GOGC=100"), b.memoryWith(ctx, sessions, "GOGC=5"))
}

func (b *bench) memoryWith(ctx context.Context, sessions int, collector string) error {
	g, err := b.start(ctx, fleet{servers: 3, tools: 2, marked: -1}, collector)
	if err != nil {
		return err
	}
	handshake := []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + mcp.LatestLegacyRevision.String() + `","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s00__echo","arguments":{"text":"x"}}}`,
	}
	post := func(body, session string, connection *http.Client) (string, error) {
		req, err := http.NewRequest(http.MethodPost, "http://"+g.addr+"/mcp", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := connection.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var text bytes.Buffer
		text.ReadFrom(resp.Body)
		if resp.StatusCode >= http.StatusMultipleChoices {
			return "", fmt.Errorf("%s: %.200q", resp.Status, text.Bytes())
		}
		return resp.Header.Get("Mcp-Session-Id"), nil
	}
	open := func(n, messages int) (ids []string, err error) {
		for range n {
			id := ""
			for i, body := range handshake[:messages] {
				got, err := post(body, id, http.DefaultClient)
				if err != nil {
					return nil, err
				}
				if i == 0 {
					id = got
				}
			}
			ids = append(ids, id)
		}
		return ids, nil
	}
	if _, err := open(100, len(handshake)); err != nil { // warms up
		return errors.Join(err, g.stop())
	}
	var ids []string
	var idle usage
	for _, c := range []struct {
		messages int
		what     string
	}{{2, "have made the handshake"}, {3, "have called a tool, too"}} {
		pause(time.Second)
		before := g.usage()
		if ids, err = open(sessions, c.messages); err != nil {
			return errors.Join(err, g.stop())
		}
		pause(time.Second)
		idle = g.usage()
		fmt.Printf("memory, %s: %d sessions that %s: %d bytes each (%d MiB before, %d after)\n", collector, sessions, c.what, (idle.resident-before.resident)/sessions, before.resident>>20, idle.resident>>20)
	}
	var streams []net.Conn
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for _, id := range ids {
		c, err := net.Dial("tcp", g.addr)
		if err != nil {
			return errors.Join(err, g.stop())
		}
		streams = append(streams, c)
		fmt.Fprintf(c, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", g.addr, id)
		var head [12]byte
		if _, err := c.Read(head[:]); err != nil || string(head[9:]) != "200" {
			return errors.Join(fmt.Errorf("a stream: %v %q", err, head), g.stop())
		}
	}
	pause(time.Second)
	streaming := g.usage()
	fmt.Printf("memory, %s: %d streams of these sessions: %d bytes each more\n", collector, sessions, (streaming.resident-idle.resident)/sessions)
	return g.stop()
}

// A caller calls one server again and again.
type caller struct {
	server string
	calls  atomic.Int64
	failed atomic.Int64

	mu   sync.Mutex
	last string // the last error
	took []time.Duration
}

func (c *caller) run(ctx context.Context, cl *client.Client) {
	for ctx.Err() == nil {
		began := time.Now()
		_, err := client.CallTool[string](ctx, cl, c.server+"__echo", map[string]string{"text": "x"}, client.WithRetry(false))
		if ctx.Err() != nil {
			return
		}
		c.calls.Add(1)
		c.mu.Lock()
		if c.took = append(c.took, time.Since(began)); err != nil {
			c.failed.Add(1)
			c.last = err.Error()
		}
		c.mu.Unlock()
		pause(5 * time.Millisecond)
	}
}

// callers runs a caller for each server of a list, and returns how to stop them.
func callers(ctx context.Context, cl *client.Client, servers []string) (all []*caller, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, name := range servers {
		c := &caller{server: name}
		all = append(all, c)
		wg.Go(func() { c.run(ctx, cl) })
	}
	return all, func() { cancel(); wg.Wait() }
}

// summary adds up callers.
func summary(all []*caller) (calls, failed int64, p99 time.Duration, last string) {
	var took []time.Duration
	for _, c := range all {
		calls += c.calls.Load()
		failed += c.failed.Load()
		took = append(took, c.took...)
		last = cmp.Or(last, c.last)
	}
	return calls, failed, quantile(took, 0.99), last
}

// kill kills one server every second: those of the first half in turn. Those of the other half are
// called all the time.
func (b *bench) kill(ctx context.Context, duration time.Duration) error {
	const servers = 20
	g, err := b.start(ctx, fleet{servers: servers, tools: 2, marked: -1})
	if err != nil {
		return err
	}
	c, err := g.dial(ctx, mcp.LatestRevision)
	if err != nil {
		return errors.Join(err, g.stop())
	}
	defer c.Close()
	call := func(i int) error {
		_, err := client.CallTool[string](ctx, c, serverName(i)+"__echo", map[string]string{"text": "x"}, client.WithRetry(false), client.WithTimeout(10*time.Second))
		return err
	}
	for i := range servers { // each starts its process
		if err := call(i); err != nil {
			return errors.Join(err, g.stop())
		}
	}
	var names []string
	for i := servers / 2; i < servers; i++ {
		names = append(names, serverName(i))
	}
	all, stop := callers(ctx, c, names)
	pause(2 * time.Second) // the catalogs and the callers have their connections then
	before, goroutines := g.usage(), g.goroutines()
	var recovered []time.Duration
	kills, unrecovered := 0, 0
	for began := time.Now(); time.Since(began) < duration; {
		next := time.Now().Add(time.Second)
		i := kills % (servers / 2)
		pids := g.processesOf(i)
		if len(pids) == 0 {
			stop()
			return errors.Join(fmt.Errorf("no process of %s", serverName(i)), g.stop())
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		kills++
		at := time.Now()
		for time.Since(at) < 15*time.Second {
			if err = call(i); err == nil {
				break
			}
			pause(20 * time.Millisecond)
		}
		if err != nil {
			unrecovered++
		}
		recovered = append(recovered, time.Since(at))
		pause(time.Until(next))
	}
	pause(3 * time.Second)
	after, goroutinesAfter := g.usage(), g.goroutines()
	stop()
	calls, failed, p99, last := summary(all)
	fmt.Printf("kill: %d kills in %v; %d calls of the other 10 servers, %d failed, p99 %v; a killed server answers after p50 %v, max %v (%d not within 15s)\n", kills, duration, calls, failed, p99.Round(10*time.Microsecond), quantile(recovered, 0.5).Round(time.Millisecond), quantile(recovered, 1).Round(time.Millisecond), unrecovered)
	fmt.Printf("kill: processes %d → %d, descriptors %d → %d, goroutines %d → %d, resident %d → %d MiB\n", before.processes, after.processes, before.descriptors, after.descriptors, goroutines, goroutinesAfter, before.resident>>20, after.resident>>20)
	if last != "" {
		fmt.Printf("kill: the last error: %s\n", last)
	}
	return g.stop()
}

// processesOf returns the processes of a server, by the mark in their environment.
func (g *gateway) processesOf(i int) (pids []int) {
	for _, pid := range g.children() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(env, []byte(marker+"="+serverName(i)+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reload changes the configuration of one of 50 servers again and again, while others are called.
func (b *bench) reload(ctx context.Context, duration time.Duration) error {
	f := fleet{servers: 50, tools: 2, marked: -1}
	g, err := b.start(ctx, f)
	if err != nil {
		return err
	}
	c, err := g.dial(ctx, mcp.LatestRevision)
	if err != nil {
		return errors.Join(err, g.stop())
	}
	defer c.Close()
	var names []string
	for i := 1; i <= 10; i++ {
		names = append(names, serverName(i))
	}
	tools := func() (n int, err error) {
		for t, err := range c.Tools(ctx, client.WithoutCache()) {
			if err != nil {
				return 0, err
			}
			if strings.HasPrefix(t.Name, serverName(0)+"__") {
				n++
			}
		}
		return n, nil
	}
	if _, err := tools(); err != nil {
		return errors.Join(err, g.stop())
	}
	all, stop := callers(ctx, c, names)
	defer stop()
	var took []time.Duration
	for began := time.Now(); time.Since(began) < duration; {
		f.marked = -1 - f.marked // server 0 has a tool more, or not
		if err := b.write(g.config, g.addr, g.admin, f); err != nil {
			return errors.Join(err, g.stop())
		}
		at := time.Now()
		if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			return err
		}
		want := f.tools
		if f.marked == 0 {
			want++
		}
		for {
			n, err := tools()
			if err != nil {
				return errors.Join(err, g.stop())
			}
			if n == want {
				break
			}
			if time.Since(at) > 10*time.Second {
				return errors.Join(fmt.Errorf("%d tools of the changed server 10s after the change, want %d", n, want), g.stop())
			}
			pause(5 * time.Millisecond)
		}
		took = append(took, time.Since(at))
		pause(500 * time.Millisecond)
	}
	stop()
	calls, failed, p99, last := summary(all)
	fmt.Printf("reload: %d reloads of 1 of 50 servers; %d calls of 10 others, %d failed, p99 %v; clients see the change after p50 %v, max %v\n", len(took), calls, failed, p99.Round(10*time.Microsecond), quantile(took, 0.5).Round(time.Millisecond), quantile(took, 1).Round(time.Millisecond))
	if last != "" {
		fmt.Printf("reload: the last error: %s\n", last)
	}
	return g.stop()
}
