package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/cmd/internal/gatewayd"
	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A gatewayRun is a gateway in its own process, with its configuration in a folder.
type gatewayRun struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
	// url is the endpoint, and admin the address for operators.
	url, admin string

	ended chan struct{}
	mu    sync.Mutex
	log   bytes.Buffer
}

var adminLine = regexp.MustCompile(`admin address=(\S+)`)

// countingServer is the entry of an upstream that appends a line with its process id to a file for
// each start. more are further members.
func countingServer(name, more string) string {
	return fmt.Sprintf("  %s: {command: [sh, -c, 'echo $$ >>%s.pids; exec mcpwire serve'], timeouts: {restart: 5s}%s}\n", name, name, more)
}

// startGateway starts a gateway with these upstreams.
func startGateway(t *testing.T, upstreams string) *gatewayRun {
	t.Helper()
	g := &gatewayRun{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	g.write(upstreams)
	g.cmd = exec.Command("mcpwire", "gateway", "gateway.yaml")
	g.cmd.Dir = g.dir
	g.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=1", "MCPWIRE_HOME="+g.dir)
	out, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for g.url == "" {
		line, err := lines.ReadString('\n')
		g.log.WriteString(line)
		if m := adminLine.FindStringSubmatch(line); m != nil {
			g.admin = "http://" + m[1]
		}
		if m := urlLine.FindStringSubmatch(line); m != nil {
			g.url = m[1]
		} else if err != nil {
			t.Fatalf("the gateway does not listen: %v\n%s", err, g.log.Bytes())
		}
	}
	go func() {
		defer close(g.ended)
		_, _ = io.Copy(writerFunc(func(p []byte) (int, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.log.Write(p)
		}), lines) // it may be killed
	}()
	t.Cleanup(g.kill)
	return g
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// kill ends the gateway at once.
func (g *gatewayRun) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
	_ = g.cmd.Wait()
}

// write replaces the configuration atomically.
func (g *gatewayRun) write(upstreams string) {
	g.t.Helper()
	text := "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nlistWait: 1m\nupstreams:\n" + upstreams
	if err := os.WriteFile(filepath.Join(g.dir, "new"), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(g.dir, "new"), filepath.Join(g.dir, "gateway.yaml")); err != nil {
		g.t.Fatal(err)
	}
}

// pids returns the process ids of the starts of an upstream.
func (g *gatewayRun) pids(upstream string) []string {
	text, err := os.ReadFile(filepath.Join(g.dir, upstream+".pids"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// get returns the body of a page for operators.
func (g *gatewayRun) get(path string) []byte {
	g.t.Helper()
	resp, err := http.Get(g.admin + path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return body
}

// status returns the state of reloads.
func (g *gatewayRun) status() (s gatewayd.ReloadStatus) {
	g.t.Helper()
	var page struct{ Status *gatewayd.ReloadStatus }
	page.Status = &s
	if err := json.Unmarshal(g.get("/configz"), &page); err != nil {
		g.t.Fatal(err)
	}
	return s
}

// dial connects a client of an era, whose calls fail if it loses its session.
func (g *gatewayRun) dial(era string, changed func()) *client.Client {
	g.t.Helper()
	o := &client.Options{Revisions: revisionsOf(era), Reconnect: client.ReconnectPolicy{Disabled: true}, OnNotification: func(method string, _ json.RawMessage) {
		if method == mcp.NotificationToolsChanged && changed != nil {
			changed()
		}
	}}
	c, err := client.Dial(g.t.Context(), streamable.NewTransport(g.url, nil), o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

// echo calls the tool echo of an upstream.
func (g *gatewayRun) echo(c *client.Client, upstream string) {
	g.t.Helper()
	if err := echoes(g.t.Context(), c, upstream); err != nil {
		g.t.Errorf("%s: %v", upstream, err)
	}
}

func echoes(ctx context.Context, c *client.Client, upstream string) error {
	got, err := client.CallTool[string](ctx, c, upstream+"__echo", map[string]string{"text": "hello"})
	if err == nil && got != "hello" {
		err = fmt.Errorf("got %q, want hello", got)
	}
	return err
}

// checkKept checks that the processes of an upstream still live. The gateway may have started
// others since then, such as one to read the lists for clients of the other era.
func (g *gatewayRun) checkKept(when, upstream string, before []string) {
	g.t.Helper()
	for _, pid := range before {
		if !livesText(pid) {
			g.t.Errorf("%s: the process %s of %s has ended; processes before %q, now %q", when, pid, upstream, before, g.pids(upstream))
		}
	}
}

// TestGatewayReload changes one of three upstreams in the file, then makes the file invalid. The
// other upstreams keep their processes, and clients their sessions.
func TestGatewayReload(t *testing.T) {
	a, b, c := countingServer("a", ""), countingServer("b", ""), countingServer("c", "")
	g := startGateway(t, a+b)
	changed := make(chan struct{}, 100)
	legacy := g.dial("legacy", func() { changed <- struct{}{} })
	modern := g.dial("modern", nil)
	for _, cl := range []*client.Client{legacy, modern} {
		g.echo(cl, "a")
		g.echo(cl, "b")
	}
	first := g.pids("a")

	g.write(a + strings.Replace(b, "b.pids", "b2.pids", 1) + c)
	wait.Until(t, "the reload", func() bool { return g.status().Reloads == 1 })
	for _, cl := range []*client.Client{legacy, modern} {
		g.echo(cl, "a")
		g.echo(cl, "b")
		g.echo(cl, "c")
	}
	g.checkKept("after the reload", "a", first)
	if len(g.pids("b2")) == 0 {
		t.Errorf("b has no new process; the old ones were %q", g.pids("b"))
	}
	wait.Until(t, "the end of the old processes of b", func() bool { return !slices.ContainsFunc(g.pids("b"), livesText) })
	wait.Until(t, "the notification about changed tools", func() bool { return len(changed) > 0 })

	second := map[string][]string{"a": g.pids("a"), "b": g.pids("b2"), "c": g.pids("c")}
	g.write(a + "  b: {comand: x}\n" + c)
	wait.Until(t, "the reload to fail", func() bool { return g.status().Failures == 1 })
	if s := g.status(); s.Reloads != 1 || !strings.Contains(s.LastError, `gateway.yaml:6:7: unknown key "comand" in upstreams.b: did you mean "command"?`) {
		t.Errorf("after an invalid file, the status is %+v", s)
	}
	for name := range second {
		g.echo(legacy, name)
		g.echo(modern, name)
		g.checkKept("after an invalid file", name, second[name])
	}

	// What needs a restart is not applied in part.
	g.write(a + c + "capture: captures\n")
	wait.Until(t, "the reload to fail", func() bool { return g.status().Failures == 2 })
	g.echo(legacy, "b")

	g.write(c + a)
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the reload by a signal", func() bool { return g.status().Reloads == 2 })
	var names []string
	tools, err := legacy.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		upstream, _, _ := strings.Cut(tool.Name, "__")
		if !slices.Contains(names, upstream) {
			names = append(names, upstream)
		}
	}
	if diff := gocmp.Diff([]string{"c", "a"}, names); diff != "" {
		t.Errorf("upstreams of listed tools (-want +got):\n%s", diff)
	}
	g.echo(legacy, "a")
	g.checkKept("at the end", "a", first)
}

// TestGatewayPins checks that a running gateway notices that another process has changed the
// accepted definitions, as mcpwire gateway pins accept does.
func TestGatewayPins(t *testing.T) {
	g := startGateway(t, "  one: {command: [mcpwire, serve], pin: hide}\npins: pins.json\n")
	path := filepath.Join(g.dir, "pins.json")
	c := g.dial("modern", nil)
	lists := func() bool {
		tools, err := c.ListTools(t.Context(), nil, client.WithoutCache())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(tools.Tools, func(tool mcp.Tool) bool { return tool.Name == "one__echo" })
	}
	if !lists() {
		t.Fatal("the tool is not listed")
	}
	wait.Until(t, "the tool to be hidden", func() bool {
		// This has no lock, unlike pins accept, so the gateway may write the file meanwhile.
		pins, _ := os.ReadFile(path)
		other := regexp.MustCompile(`("sha256": *")[0-9a-f]{8}`).ReplaceAll(pins, []byte("${1}00000000"))
		if len(pins) > 0 && !bytes.Equal(pins, other) {
			if err := os.WriteFile(filepath.Join(g.dir, "new"), other, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(g.dir, "new"), path); err != nil {
				t.Fatal(err)
			}
		}
		return !lists()
	})
	wait.Until(t, "the change to be accepted", func() bool {
		accept := exec.Command("mcpwire", "gateway", "pins", "accept", "gateway.yaml", "one")
		accept.Dir, accept.Env = g.dir, g.cmd.Env
		out, err := accept.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Contains(string(out), "echo") // the gateway has saved the change
	})
	wait.Until(t, "the tool to be shown", lists)
}

func livesText(pid string) bool {
	var n int
	_, err := fmt.Sscan(pid, &n)
	return err == nil && process.Running(n)
}

// TestGatewayKill kills the gateway: no process of a server outlives it. It also kills a server:
// only its own tools fail, and come back.
func TestGatewayKill(t *testing.T) {
	g := startGateway(t, countingServer("a", "")+countingServer("b", ""))
	c := g.dial("modern", nil)
	g.echo(c, "a")
	g.echo(c, "b")
	a := g.pids("a")
	for _, pid := range a {
		var n int
		if _, err := fmt.Sscan(pid, &n); err == nil && process.Running(n) {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	g.echo(c, "b")
	wait.Until(t, "a to come back", func() bool { return echoes(t.Context(), c, "a") == nil })
	if len(g.pids("a")) <= len(a) {
		t.Errorf("a was not restarted: %q, before %q", g.pids("a"), a)
	}
	all := slices.Concat(g.pids("a"), g.pids("b"))
	g.kill()
	for _, pid := range all {
		wait.Until(t, "the servers to end", func() bool { return !livesText(pid) })
	}
}

// TestGatewayAdmin checks the pages for operators.
func TestGatewayAdmin(t *testing.T) {
	g := startGateway(t, countingServer("a", "")+"  gone: {command: no-such-program}\n")
	c := g.dial("modern", nil)
	g.echo(c, "a")
	for _, tt := range []struct{ path, want string }{
		{"/livez", "ok"},
		{"/readyz", "ok"},
		{"/startupz", "ok"},
		{"/metrics", `mcpwire_gateway_upstream_up{upstream="gone"} 0`},
		{"/metrics", `mcpwire_gateway_upstream_up{upstream="a"} 1`},
		{"/metrics", "\nmcpwire_gateway_config_reload_failures_total 0\n"},
		{"/upstreamz", `"name": "a"`},
		{"/upstreamz", "no-such-program"},
		{"/configz", `"restart": "5s"`},
	} {
		if got := string(g.get(tt.path)); !strings.Contains(got, tt.want) {
			t.Errorf("%s has no %q:\n%s", tt.path, tt.want, got)
		}
	}
	for _, header := range []struct{ name, value string }{{"Host", "evil.example.com"}, {"Origin", "https://evil.example.com"}} {
		r, err := http.NewRequest(http.MethodGet, g.admin+"/configz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header.name, header.value)
		if header.name == "Host" {
			r.Host = header.value
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("with %s %s: status %d, want 403", header.name, header.value, resp.StatusCode)
		}
	}
}

// TestGatewayWatch checks that a viewer finds a gateway without a capture, and sees both sides of a
// call.
func TestGatewayWatch(t *testing.T) {
	g := startGateway(t, countingServer("a", ""))
	watch := exec.Command("mcpwire", "watch", "--plain")
	watch.Env = append(os.Environ(), "MCPWIRE_HOME="+g.dir)
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = watch.Process.Kill()
		_ = watch.Wait()
	}()
	seen := make(chan [2]bool, 1)
	go func() {
		var sides [2]bool
		lines := bufio.NewScanner(out)
		for lines.Scan() && sides != [2]bool{true, true} {
			sides[0] = sides[0] || strings.Contains(lines.Text(), "called a__echo")
			sides[1] = sides[1] || strings.Contains(lines.Text(), "called echo")
		}
		seen <- sides
	}()
	c := g.dial("modern", nil)
	g.echo(c, "a")
	// The viewer may have connected after the call.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 600 {
		select {
		case sides := <-seen:
			if sides != [2]bool{true, true} {
				t.Errorf("the viewer saw the sides %v, want both", sides)
			}
			return
		case <-tick.C:
			g.echo(c, "a")
		}
	}
	t.Error("the viewer saw no call")
}

// TestGatewayStops checks that SIGTERM lets a pending call end and leaves no process.
func TestGatewayStops(t *testing.T) {
	g := startGateway(t, countingServer("a", ""))
	c := g.dial("legacy", nil)
	began := make(chan struct{})
	var once sync.Once
	result := make(chan error, 1)
	go func() {
		_, err := c.CallTool(context.Background(), "a__slow", json.RawMessage(`{"steps":5,"delay_ms":200}`),
			client.WithProgress(func(*mcp.ProgressNotificationParams) { once.Do(func() { close(began) }) }))
		result <- err
	}()
	<-began
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("the pending call: %v", err)
	}
	<-g.ended
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("the gateway ended with %v\n%s", err, g.log.Bytes())
	}
	for _, pid := range g.pids("a") {
		if livesText(pid) {
			t.Errorf("process %s is left", pid)
		}
	}
}

// TestGatewayTraces checks that a gateway exports the spans of a call to the address that a
// variable names, also the last ones, and that its metrics have the durations of calls.
func TestGatewayTraces(t *testing.T) {
	bodies := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			t.Error(err)
		}
		bodies <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	g := startGateway(t, countingServer("a", ""))
	g.echo(g.dial("modern", nil), "a")
	metrics := string(g.get("/metrics"))
	for _, want := range []string{`mcpwire_gateway_call_duration_seconds_count{upstream="a",method="tools/call",name="echo",outcome="ok"} 1`, "mcpwire_gateway_spans_lost_total 0\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %q in\n%s", want, metrics)
		}
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-g.ended
	close(bodies)
	all := strings.Join(slices.Collect(func(yield func(string) bool) {
		for b := range bodies {
			yield(b)
		}
	}), "\n")
	for _, want := range []string{"/v1/traces ", `"stringValue":"mcpwire-gateway"`, `"name":"tools/call a__echo","kind":2`, `"name":"tools/call echo","kind":3`} {
		if !strings.Contains(all, want) {
			t.Errorf("the spans have no %q in\n%s", want, all)
		}
	}
}
