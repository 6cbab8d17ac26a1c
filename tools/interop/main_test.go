package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// serverCommand is the command line of the server under test, set by TestMain.
var serverCommand []string

// programs are the other programs that the test binary can run as, by its first argument.
var programs = map[string]func(args []string) int{
	recordVerb:        recordMain,
	termVerb:          termMain,
	everythingVerb:    everythingMain,
	everythingWebVerb: everythingWebMain,
	goSDKVerb:         goSDKMain,
	goSDKWebVerb:      goSDKWebMain,
	mcpGoVerb:         mcpGoMain,
	mcpGoWebVerb:      mcpGoWebMain,
	referenceVerb:     referenceMain,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		os.Exit(programs[os.Args[1]](os.Args[2:]))
	}
	os.Exit(run(m))
}

// run builds the server once for all tests. INTEROP_SERVER replaces it with another command, to
// run these tests against a server that is known to be correct.
func run(m *testing.M) int {
	// A race build waits a second before it exits, longer than some clients wait for their server.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	if other := os.Getenv("INTEROP_SERVER"); other != "" {
		serverCommand = strings.Fields(other)
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "mcpwire-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "mcpwire")
	build := exec.Command("go", "build", "-o", binary, "./cmd/mcpwire")
	build.Dir = filepath.Join("..", "..")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "interop: build mcpwire:", err)
		return 1
	}
	serverCommand = []string{binary, "serve"}
	return m.Run()
}

// A recordedServer is a server under test behind a recording proxy, for one host: the command that
// the host starts, or the URL that it connects to, and the recorded traffic.
type recordedServer struct {
	t    *testing.T
	dir  string // of the transcripts
	args []string
	log  serverLog
	// crashes is set if a process may exit with crashStatus.
	crashes bool
	// web is the server over HTTP. Nil means stdio.
	web *webServer
}

// serverLog keeps the standard error of servers for failed tests.
type serverLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

// newServer returns a server that is not started yet. If there are revisions, it supports only
// these.
func newServer(t *testing.T, revisions ...string) *recordedServer {
	t.Helper()
	command := serverCommand
	for _, r := range revisions {
		command = append(slices.Clip(command), "--revision", r)
	}
	return newCommand(t, command...)
}

// newProgram is newServer for one of the programs in this binary.
func newProgram(t *testing.T, verb string, args ...string) *recordedServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newCommand(t, append([]string{self, verb}, args...)...)
}

// newCommand is newServer for any command.
func newCommand(t *testing.T, command ...string) *recordedServer {
	t.Helper()
	s := &recordedServer{t: t, dir: t.TempDir()}
	s.showLog()
	s.args = append([]string{recordVerb, s.dir, "--"}, command...)
	return s
}

// showLog logs the servers' standard error if the test fails.
func (s *recordedServer) showLog() {
	s.t.Cleanup(func() {
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		if s.t.Failed() && len(s.log.text) > 0 {
			s.t.Logf("standard error:\n%s", s.log.text)
		}
	})
}

// command returns the program to start and its arguments.
func (s *recordedServer) command() (string, []string) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	return self, s.args
}

// cmd returns the command as an exec.Cmd.
func (s *recordedServer) cmd() *exec.Cmd {
	name, args := s.command()
	cmd := exec.Command(name, args...)
	cmd.Stderr = &s.log
	return cmd
}
