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
	witnessVerb:       witness,
	keeperVerb:        keeper,
	everythingVerb:    everythingMain,
	everythingWebVerb: everythingWebMain,
	goSDKVerb:         goSDKMain,
	goSDKWebVerb:      goSDKWebMain,
	mcpGoVerb:         mcpGoMain,
	mcpGoWebVerb:      mcpGoWebMain,
	referenceVerb:     reference,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		os.Exit(programs[os.Args[1]](os.Args[2:]))
	}
	os.Exit(run(m))
}

// run builds the server once for all tests. INTEROP_SERVER replaces it by
// another command, to try these tests on a server that is known to be right.
func run(m *testing.M) int {
	// A race build waits a second before it exits, which is more than some
	// clients wait for their server.
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
	build.Dir = ".."
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "interop: building mcpwire:", err)
		return 1
	}
	serverCommand = []string{binary, "serve"}
	return m.Run()
}

// witnessed is one host's copy of the server under test: the command that the host must start, and
// the transcripts that it leaves.
type witnessed struct {
	t       *testing.T
	dir     string
	args    []string
	log     serverLog
	crashes bool // a process may end with crashStatus
	web     *web // of a server that is reached over HTTP; nil of others
}

// serverLog keeps what servers write to standard error for failed tests.
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

// newServer returns a server that has yet to be started. The revisions, if
// any, are the only ones it will speak.
func newServer(t *testing.T, revisions ...string) *witnessed {
	t.Helper()
	command := serverCommand
	for _, r := range revisions {
		command = append(slices.Clip(command), "--revision", r)
	}
	return newCommand(t, command...)
}

// newProgram is newServer for one of the programs in this binary.
func newProgram(t *testing.T, verb string, args ...string) *witnessed {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newCommand(t, append([]string{self, verb}, args...)...)
}

// newCommand is newServer for any command.
func newCommand(t *testing.T, command ...string) *witnessed {
	t.Helper()
	s := &witnessed{t: t, dir: t.TempDir()}
	s.showLog()
	s.args = append([]string{witnessVerb, s.dir, "--"}, command...)
	return s
}

// showLog shows what the servers wrote to standard error if the test fails.
func (s *witnessed) showLog() {
	s.t.Cleanup(func() {
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		if s.t.Failed() && len(s.log.text) > 0 {
			s.t.Logf("on standard error:\n%s", s.log.text)
		}
	})
}

// command is the program to start and its arguments.
func (s *witnessed) command() (string, []string) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	return self, s.args
}

// cmd is command for hosts that take an exec.Cmd.
func (s *witnessed) cmd() *exec.Cmd {
	name, args := s.command()
	cmd := exec.Command(name, args...)
	cmd.Stderr = &s.log
	return cmd
}
