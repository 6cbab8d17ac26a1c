package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The paths of the endpoints of Streamable HTTP, and of HTTP+SSE, the transport of revision
// 2024-11-05.
const (
	webPath = "/mcp"
	ssePath = "/sse"
)

const (
	startTimeout = time.Minute      // until a server listens
	stopTimeout  = 10 * time.Second // until it exits, and until a host has closed its connections
)

// A webServer is a server under test over HTTP, with the recording proxy in front of it. A process
// that ends while it is needed is started again.
type webServer struct {
	t       *testing.T
	s       *recordedServer
	path    string
	command []string
	front   *httptest.Server
	back    *http.Transport

	mu         sync.Mutex
	started    int
	process    *webProcess
	httpEvents []httpEvent
	open       int  // exchanges that have not ended
	stopped    bool // recording has stopped
	faults     []violation
}

// A webProcess is one process of a server.
type webProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	base  string        // URL without a path
	ended chan struct{} // closed after Wait
}

// newWeb starts a server over HTTP. Its command must write a line with url=http://… to standard
// error when it listens, and exit when its standard input ends.
func newWeb(t *testing.T, path string, command ...string) *recordedServer {
	t.Helper()
	s := &recordedServer{t: t}
	s.showLog()
	w := &webServer{t: t, s: s, path: path, command: command, back: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	s.web = w
	w.front = httptest.NewServer(w)
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			logHTTPEvents(t, w.httpEvents)
		}
		w.front.CloseClientConnections()
		w.front.Close()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.startLocked(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newWebProgram is newWeb for one of the programs in this binary.
func newWebProgram(t *testing.T, path, verb string, args ...string) *recordedServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newWeb(t, path, append([]string{self, verb}, args...)...)
}

// newWebServer is newServer over HTTP.
func newWebServer(t *testing.T, path string, revisions ...string) *recordedServer {
	t.Helper()
	args := append(append([]string{}, serverCommand...), "--http", "127.0.0.1:0", "--sse")
	for _, r := range revisions {
		args = append(args, "--revision", r)
	}
	return newWebProgram(t, path, termVerb, args...)
}

// url returns the URL for hosts.
func (w *webServer) url() string { return w.front.URL + w.path }

// listening matches the URL that a server writes when it listens.
var listening = regexp.MustCompile(`url=(http://127\.0\.0\.1:[0-9]+)`)

func (w *webServer) startLocked() error {
	cmd := exec.Command(w.command[0], w.command[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return err
	}
	w.started++
	p := &webProcess{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	base := make(chan string, 1)
	go func() {
		defer close(p.ended)
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(&w.s.log, lines.Text())
			if m := listening.FindStringSubmatch(lines.Text()); m != nil && len(base) == 0 {
				base <- m[1]
			}
		}
		cmd.Wait()
	}()
	w.process = p
	select {
	case p.base = <-base:
	case <-p.ended:
		return fmt.Errorf("%s ended before it listened", w.command)
	case <-time.After(startTimeout):
		return fmt.Errorf("%s does not listen", w.command)
	}
	conn, err := net.DialTimeout("tcp", p.base[len("http://"):], startTimeout)
	if err != nil {
		return err
	}
	return conn.Close()
}

// send forwards a request to the process, and starts a new one if that has ended.
func (w *webServer) send(ctx context.Context, r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if w.hasEnded() && !w.stopped {
		w.exitedLocked()
		if err := w.startLocked(); err != nil {
			w.mu.Unlock()
			return nil, err
		}
	}
	p := w.process
	w.mu.Unlock()
	out, err := http.NewRequestWithContext(ctx, r.Method, p.base+r.URL.RequestURI(), r.Body)
	if err != nil {
		return nil, err
	}
	out.Header, out.ContentLength, out.Host = r.Header.Clone(), r.ContentLength, r.Host
	resp, err := w.back.RoundTrip(out)
	if err == nil || ctx.Err() != nil {
		return resp, err
	}
	// If the process is ending, wait, so that the next request goes to a new one.
	select {
	case <-p.ended:
	case <-time.After(time.Second):
	}
	return nil, err
}

func (w *webServer) hasEnded() bool {
	select {
	case <-w.process.ended:
		return true
	default:
		return false
	}
}

// exitedLocked checks the exit status of a process that was not stopped.
func (w *webServer) exitedLocked() {
	if status := w.process.cmd.ProcessState.ExitCode(); status != crashStatus || !w.s.crashes {
		w.faults = append(w.faults, violation{serverExit, fmt.Sprintf("a process that was not stopped exited with status %d", status)})
	}
}

// stop ends the server after its host has ended. Its exit status must be 0.
func (w *webServer) stop() {
	w.t.Helper()
	deadline := time.Now().Add(stopTimeout)
	for w.openExchanges() > 0 {
		if time.Now().After(deadline) {
			w.mu.Lock()
			w.faults = append(w.faults, violation{clientOpen, fmt.Sprintf("open requests = %d, want 0", w.open)})
			w.mu.Unlock()
			break
		}
		<-time.After(time.Millisecond)
	}
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return
	}
	w.stopped = true
	p := w.process
	ended := w.hasEnded()
	w.mu.Unlock()
	p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		w.kill()
		w.faults = append(w.faults, violation{serverExit, "the server did not exit after the end of its standard input"})
		return
	}
	status := p.cmd.ProcessState.ExitCode()
	if status != 0 && !(ended && status == crashStatus && w.s.crashes) {
		w.faults = append(w.faults, violation{serverExit, fmt.Sprintf("the server exited with status %d, want 0", status)})
	}
}

// openExchanges returns the number of exchanges that have not ended.
func (w *webServer) openExchanges() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// kill kills the server.
func (w *webServer) kill() {
	w.mu.Lock()
	w.stopped = true
	p := w.process
	w.mu.Unlock()
	if p == nil {
		return
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the process group has the children too
	p.stdin.Close()
	<-p.ended
}

// serveWeb serves until standard input ends. If end is not nil, serveWeb calls it to end streams
// that do not end by themselves.
func serveWeb(h http.Handler, end func(context.Context) error) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout/2)
		defer cancel()
		var err error
		if end != nil {
			err = end(ctx)
		}
		if err == nil {
			err = srv.Shutdown(ctx)
		}
		done <- err
	}()
	fmt.Fprintf(os.Stderr, "listening url=http://%s\n", l.Addr())
	if err := srv.Serve(l); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, "shutdown:", err)
		return 1
	}
	return 0
}

// termVerb as the first argument makes the test binary run a command that ends only on a signal.
// The test binary sends SIGTERM when its standard input ends.
const termVerb = "term-at-end-of-input"

func termMain(command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	signal.Ignore(syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		return 125
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cmd.Process.Signal(syscall.SIGTERM)
	}()
	cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
