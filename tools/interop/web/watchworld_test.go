package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/internal/test/buffer"
)

// binary builds mcpwire once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mcpwire-watch-")
	if err != nil {
		return "", err
	}
	built.Store(dir)
	path := filepath.Join(dir, "mcpwire")
	build := exec.Command("go", "build", "-o", path, "./cmd/mcpwire")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mcpwire: %w\n%s", err, out)
	}
	return path, nil
})

// built is the directory of the binary. Its path is empty before the build.
var built folder

type folder struct {
	mu   sync.Mutex
	path string
}

func (f *folder) Store(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.path = path
}

func (f *folder) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path != "" {
		os.RemoveAll(f.path)
	}
}

// A machine simulates a user's computer with mcpwire. It has its own home directory, taps, and the
// page of mcpwire watch.
type machine struct {
	t    *testing.T
	exe  string
	home string
	env  []string // in addition to the test's own

	mu      sync.Mutex
	watcher *process
	url     string // of the page, with the token
	taps    map[string]*tappedServer
}

// newMachine returns a machine without processes.
func newMachine(t *testing.T) *machine {
	t.Helper()
	exe, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "mw") // short, because paths of sockets are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	return &machine{t: t, exe: exe, home: home, taps: map[string]*tappedServer{}}
}

// captures returns the directory of the captures.
func (m *machine) captures() string {
	dir := filepath.Join(m.home, "captures")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// A process is a process of mcpwire.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	log    buffer.Buffer
}

// run starts mcpwire.
func (m *machine) run(args ...string) (*process, error) {
	p := &process{cmd: exec.Command(m.exe, args...)}
	p.cmd.Env = append(os.Environ(), "MCPWIRE_HOME="+m.home, "HOME="+m.home, "NO_COLOR=1")
	p.cmd.Env = append(p.cmd.Env, m.env...)
	p.cmd.Stderr = &p.log
	p.cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	m.t.Cleanup(func() { p.stop(syscall.SIGKILL) })
	return p, nil
}

// stop sends a signal and waits until the process has exited. It kills the process after 10
// seconds.
func (p *process) stop(s syscall.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	p.cmd.Process.Signal(s)
	timer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	p.cmd.Wait()
}

// watch starts mcpwire watch at an address, and returns the URL of the page.
func (m *machine) watch(addr string, more ...string) (string, error) {
	p, err := m.run(append([]string{"watch", "--web=" + addr}, more...)...)
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("start watch: %w\n%s", err, p.log.String())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watcher, m.url = p, strings.TrimSpace(line)
	return m.url, nil
}

// mustWatch is watch at any port. It fails the test on an error.
func (m *machine) mustWatch(more ...string) string {
	m.t.Helper()
	address, err := m.watch("127.0.0.1:0", more...)
	if err != nil {
		m.t.Fatal(err)
	}
	return address
}

// stopWatch ends mcpwire watch.
func (m *machine) stopWatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watcher.stop(syscall.SIGTERM)
}

// A tappedServer is a server behind a tap. The test is the host.
type tappedServer struct {
	*process

	mu   sync.Mutex
	got  []string      // lines from the server
	came chan struct{} // gets a value when a line has arrived
	done chan struct{} // closed at the end of the output
}

// tap starts the demo server behind a tap.
func (m *machine) tap(name string, flags ...string) *tappedServer {
	m.t.Helper()
	args := append([]string{"tap", "--name", name}, flags...)
	p, err := m.run(append(args, "--", m.exe, "serve", "--log-level", "error")...)
	if err != nil {
		m.t.Fatal(err)
	}
	tp := &tappedServer{process: p, came: make(chan struct{}, 1), done: make(chan struct{})}
	go tp.read()
	m.t.Cleanup(func() {
		p.stop(syscall.SIGKILL)
		<-tp.done
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taps[name] = tp
	return tp
}

func (tp *tappedServer) read() {
	defer close(tp.done)
	r := bufio.NewReaderSize(tp.stdout, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		tp.mu.Lock()
		tp.got = append(tp.got, line[:min(len(line), 1<<16)])
		tp.mu.Unlock()
		select {
		case tp.came <- struct{}{}:
		default:
		}
	}
}

// send writes a line, and returns the time before the write in ms since 1970.
func (tp *tappedServer) send(line string) (float64, error) {
	at := float64(time.Now().UnixMicro()) / 1000
	_, err := io.WriteString(tp.stdin, line+"\n")
	return at, err
}

// answered waits for the response to a request.
func (tp *tappedServer) answered(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	has := func(line string) bool {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		return json.Unmarshal([]byte(line), &m) == nil && m.Method == "" && string(m.ID) == id
	}
	for {
		tp.mu.Lock()
		found := slices.ContainsFunc(tp.got, has)
		tp.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-tp.came:
		case <-tp.done:
			return fmt.Errorf("wait for the response to %s: the tap has exited: %s", id, tp.log.String())
		case <-ctx.Done():
			return fmt.Errorf("wait for the response to %s: timeout: %s", id, tp.log.String())
		}
	}
}

// lines returns the number of lines from the server.
func (tp *tappedServer) lines() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return len(tp.got)
}

// sendLines is a function for scenes. It writes lines to a tap, waits for the responses if wait is
// set, and returns the times of the writes.
func (m *machine) sendLines(args json.RawMessage) (any, error) {
	var in struct {
		Tap   string            `json:"tap"`
		Lines []json.RawMessage `json:"lines"`
		Wait  bool              `json:"wait"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	m.mu.Lock()
	tp := m.taps[in.Tap]
	m.mu.Unlock()
	if tp == nil {
		return nil, fmt.Errorf("unknown tap %q", in.Tap)
	}
	var at []float64
	for _, line := range in.Lines {
		when, err := tp.send(string(line))
		if err != nil {
			return nil, err
		}
		at = append(at, when)
		if id := requestID(line); in.Wait && id != "" {
			if err := tp.answered(id); err != nil {
				return nil, err
			}
		}
	}
	return at, nil
}

// requestID returns the id of a request, or "" if the message is not a request.
func requestID(line []byte) string {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(line, &m) != nil {
		return ""
	}
	return string(bytes.TrimSpace(m.ID))
}

// countLines is a function for scenes. It returns the number of lines that the host of a tap has
// got.
func (m *machine) countLines(args json.RawMessage) (any, error) {
	var in struct {
		Tap string `json:"tap"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taps[in.Tap] == nil {
		return nil, fmt.Errorf("unknown tap %q", in.Tap)
	}
	return m.taps[in.Tap].lines(), nil
}

// restartWatch is a function for scenes. It ends mcpwire watch, or starts it again at the same
// port.
func (m *machine) restartWatch(args json.RawMessage) (any, error) {
	var in struct {
		Start bool `json:"start"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	if !in.Start {
		m.stopWatch()
		return nil, nil
	}
	u, err := url.Parse(m.url)
	if err != nil {
		return nil, err
	}
	return m.watch(u.Host)
}

// functions returns the functions that scenes may call.
func (m *machine) functions() map[string]function {
	return map[string]function{"sendLines": m.sendLines, "countLines": m.countLines, "restartWatch": m.restartWatch}
}
