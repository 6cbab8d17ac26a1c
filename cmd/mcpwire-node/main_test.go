package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mcpwire/client"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/test/upstream"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// programVariable is the environment variable that makes the test program mcpwire-node.
const programVariable = "MCPWIRE_NODE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	upstream.ServeIfSet()
	// The tests mostly wait for nodes, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m) // parses the flags, so -parallel is possible
}

// testTimeout limits what a test waits for.
const testTimeout = time.Minute

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "text": "hello", "keys": base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	const core = "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3"
	for _, tt := range []struct{ args, want string }{
		{"", "give --dir for a NATS server in this process, or --nats"},
		{"--nats nats://x --dir d", "--dir, --core, --core-listen and --client-listen are for a NATS server in this process, not for --nats"},
		{"--dir d --core " + core, `--core has no node "": --name must be one of them`},
		{"--dir d --name n4 --core " + core, `--core has no node "n4": --name must be one of them`},
		{"--dir d --client-listen 127.0.0.1:1", "--client-listen needs --token FILE: the secret of the nodes that connect, 16 characters or more"},
		{"--dir d --drain 0s", "--drain must be positive"},
		{"--dir d --keys nothing", "--keys: open nothing: no such file or directory"},
		{"--dir d --keys empty", "--keys: empty has no secret"},
		{"--dir d --keys text", "--keys: text: secret 1 is not base64"},
		{"--dir d --token nothing", "--token: open nothing: no such file or directory"},
		{"--dir d --cluster-cert x", "--cluster-cert, --cluster-key and --cluster-ca go together"},
		{"--dir d more", `unexpected argument "more"`},
		{"--dir d --gateway g.yaml --drain 1s", errDemoFlags.Error()},
		{"--local 3 --gateway g.yaml --test-tools", errDemoFlags.Error()},
		{"--local 2", "--local 2: use 3 or 5"},
		{"--local 3 --nats nats://x --name n1", "--name does not go together with --local\n--nats does not go together with --local"},
	} {
		var stderr strings.Builder
		if status := run(t.Context(), strings.Fields(tt.args), strings.NewReader(""), &stderr); status != 2 {
			t.Errorf("%s: status %d", tt.args, status)
		}
		if diff := cmp.Diff("mcpwire-node: "+tt.want+"\n", stderr.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
	}
	for _, args := range []string{"--dir d --core n1", "--dir d --core =x", "--dir d --log-format xml", "--unknown"} {
		var stderr strings.Builder
		if status := run(t.Context(), strings.Fields(args), strings.NewReader(""), &stderr); status != 2 || !strings.Contains(stderr.String(), "see mcpwire-node --help") {
			t.Errorf("%s: status %d, %s", args, status, stderr.String())
		}
	}
	var stderr strings.Builder
	f, err := parseFlags(strings.Fields("--dir d --name n2 --keys keys --core "+core), &stderr)
	if err != nil {
		t.Fatal(err)
	}
	o := f.backendOptions(f.newLogger(&stderr)).Embed
	got := []any{o.Name, o.Dir, o.Listen, o.Routes, len(f.secrets)}
	want := []any{"n2", "d", "127.0.0.1:2", []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("embedded server (-want +got):\n%s", diff)
	}
}

// A program is a process of mcpwire-node.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	// url is the URL of the endpoint, and admin that of the admin port.
	url, admin string
	// home is the folder for the state of mcpwire.
	home string
	// lines yields the lines of the log until the process ends, and seen has those that were read.
	lines chan string
	seen  []string
	ended chan error
}

// start starts the program and waits until it serves.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith is start with more environment variables.
func startWith(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], append(args, "--stop-at-eof")...), home: t.TempDir(), lines: make(chan string, 10_000), ended: make(chan error, 1)}
	p.cmd.Env = slices.Concat(os.Environ(), env, []string{programVariable + "=1", captures.HomeVariable + "=" + p.home})
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			select {
			case p.lines <- lines.Text():
			default:
			}
		}
		close(p.lines)
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if p.cmd.Process.Kill() == nil {
			p.wait()
		}
	})
	line := p.until("listening on ")
	p.url = strings.TrimPrefix(line, "listening on ")
	for _, line := range p.seen {
		if _, url, ok := strings.Cut(line, `msg="serving probes and metrics" url=`); ok {
			p.admin = url
		}
	}
	return p
}

// until reads the log up to a line with a prefix, and returns the line.
func (p *program) until(prefix string) (line string) {
	p.t.Helper()
	timeout := time.After(testTimeout)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%v has ended", p.cmd.Args)
			}
			p.t.Log(line)
			p.seen = append(p.seen, line)
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-timeout:
			p.t.Fatalf("%v does not log %q", p.cmd.Args, prefix)
		}
	}
}

// wait waits until the program has ended. It may be called once more.
func (p *program) wait() (status int) {
	p.t.Helper()
	select {
	case err := <-p.ended:
		for line := range p.lines {
			p.t.Log(line)
		}
		p.ended <- err
	case <-time.After(testTimeout):
		p.t.Error("the program has not ended")
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the program's standard input and returns its exit status.
func (p *program) stop() (status int) {
	p.t.Helper()
	p.stdin.Close()
	return p.wait()
}

// get returns the status and the body of a page of the admin port.
func (p *program) get(path string) (status int, body string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.admin+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.send(r)
}

func (p *program) send(r *http.Request) (status int, body string) {
	p.t.Helper()
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	resp, err := h.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// connect returns a client.
func connect(t *testing.T, url string, o *client.Options, h *http.Client) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), streamable.NewTransport(url, &streamable.TransportOptions{HTTPClient: h}), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// call calls a tool and returns its text.
func call(ctx context.Context, c *client.Client, tool string, args any) (string, error) {
	res, err := c.CallTool(ctx, tool, args)
	if err != nil {
		return "", err
	}
	if res.IsError {
		return "", fmt.Errorf("%s failed: %+v", tool, res.Content)
	}
	return res.Content[0].(mcp.TextContent).Text, nil
}

// watched returns the number of processes that mcpwire watch finds.
func (p *program) watched() int {
	p.t.Helper()
	sockets, err := live.List(filepath.Join(p.home, "live"))
	if err != nil {
		p.t.Error(err)
	}
	return len(sockets)
}

// TestNode checks the endpoint, the admin port, the socket for mcpwire watch, and the exit status
// of one node.
func TestNode(t *testing.T) {
	t.Parallel()
	p := start(t, "--name", "n1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--dir", t.TempDir(), "--watch", "--test-tools")
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		c := connect(t, p.url, &client.Options{Revisions: []mcp.Revision{r}, Input: client.InputOptions{
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
			},
		}}, nil)
		got, err := call(t.Context(), c, "greet", map[string]string{"text": "hello"})
		if want := "hello, Ada, says n1"; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", r, got, err, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/startupz"} {
		if status, body := p.get(path); status != 200 || body != "ok\n" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	for header, value := range map[string]string{"Host": "evil.example.com", "Origin": "https://evil.example.com"} {
		for _, path := range []string{"/readyz", "/metrics"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(header, value)
			if header == "Host" {
				r.Host = value
			}
			if status, _ := p.send(r); status != http.StatusForbidden {
				t.Errorf("%s with %s: %s: status %d, want 403", path, header, value, status)
			}
		}
	}
	_, metrics := p.get("/metrics")
	for _, want := range []string{
		"\nmcpwire_cluster_members 1\n", "\nmcpwire_cluster_degraded_streams 0\n", "\nmcpwire_cluster_storage_down 0\n", "\nmcpwire_cluster_unresumable_streams_total 0\n", "\nmcpwire_cluster_bus_lost_total 0\n",
		"\nmcpwire_cluster_forwarded_total{result=\"delivered\"} 0\n", "\nmcpwire_cluster_append_seconds_count{error_type=\"\"} ", "\nmcpwire_calls_in_flight 0\n",
		"\nmcpwire_refused_total{reason=\"overloaded\"} 0\n", "\nmcp_server_operation_duration_seconds_count{", "\nprocess_open_fds ",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics: no %q", want)
		}
	}
	if t.Failed() {
		t.Log(metrics)
	}
	if n := p.watched(); n != 1 {
		t.Errorf("mcpwire watch finds %d processes, want 1", n)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestLocal runs three nodes and a proxy, kills a node, and checks that it is restarted.
func TestLocal(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts three nodes")
	}
	t.Parallel()
	tmp := t.TempDir()
	p := startWith(t, []string{"TMPDIR=" + tmp}, "--local", "3", "--listen", "127.0.0.1:0")
	c := connect(t, p.url, &client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}}, nil)
	ask := func() string {
		t.Helper()
		name, err := call(t.Context(), c, "node", nil)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	var got []string
	for range 3 {
		got = append(got, ask())
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"n1", "n2", "n3"}, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if n := p.watched(); n != 3 {
		t.Errorf("mcpwire watch finds %d processes, want 3", n)
	}
	pid := 0
	for _, line := range p.seen {
		fmt.Sscanf(line, "n2: process %d", &pid)
	}
	killed, err := os.FindProcess(pid)
	if err != nil || pid == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	p.until("n2: has ended and is started again")
	for range 3 {
		if name := ask(); name == "n2" {
			t.Error("a killed node responds")
		}
	}
	p.until("n2: listening on ")
	for range 3 {
		got = append(got, ask())
	}
	if !slices.Contains(got[3:], "n2") {
		t.Errorf("restarted node: got %q", got[3:])
	}
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
		t.Errorf("got files %v, %v at the end, want none", files, err)
	}
}

// TestDrainTimeout checks that a call that takes longer than --drain fails, and that the exit
// status reports it.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	p := start(t, "--name", "n1", "--listen", "127.0.0.1:0", "--dir", t.TempDir(), "--drain", "100ms", "--test-tools")
	c := connect(t, p.url, &client.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}, Retry: client.RetryPolicy{}}, nil)
	begun, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		close(begun)
		_, err := call(t.Context(), c, "work", map[string]any{"id": "a", "ms": 50_000})
		failed <- err
	}()
	<-begun
	for { // until the call has begun
		got, err := call(t.Context(), c, "runs", map[string]any{"id": "a"})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, `"runs":1`) {
			break
		}
	}
	if status := p.stop(); status != 1 {
		t.Errorf("exit status %d", status)
	}
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "it may have been executed") {
			t.Errorf("call: got %v", err)
		}
	case <-time.After(testTimeout):
		t.Error("the call has not ended")
	}
}
