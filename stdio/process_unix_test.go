//go:build unix

package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/internal/proc/procgroup"
	"mcpwire/internal/test/buffer"
	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"

	"golang.org/x/sys/unix"
)

func init() {
	helpers["exit"] = helperExit
	helpers["noise"] = helperNoise
	helpers["stubborn"] = helperStubborn
	helpers["launcher"] = helperLauncher
	helpers["late"] = helperLate
	helpers["detach"] = helperDetach
	helpers["parent"] = helperParent
	helpers["ignoreEOF"] = func() {
		fmt.Println("ready")
		forever()
	}
	helpers["mute"] = func() {
		os.Stdout.Close()
		fmt.Fprintln(os.Stderr, "mute")
		eachLine(func(string) {})
	}
}

// forever blocks until a signal ends the process. The runtime would report an empty select as a
// deadlock.
func forever() { <-time.After(time.Hour) }

// helperExit responds to one line and exits with the status in its argument.
func helperExit() {
	status, _ := strconv.Atoi(os.Args[1])
	if len(os.Args) > 2 {
		fmt.Fprintln(os.Stderr, os.Args[2])
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	os.Exit(status)
}

// helperNoise writes 8 MiB to stderr before it responds.
func helperNoise() {
	line := []byte(strings.Repeat("noise ", 100) + "\n")
	for n := 0; n < 8<<20; n += len(line) {
		os.Stderr.Write(line)
	}
	fmt.Fprintln(os.Stderr, "the last line")
	eachLine(func(line string) { fmt.Println(line) })
}

// helperStubborn ignores the end of input and SIGTERM.
func helperStubborn() {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	eachLine(func(string) {})
	forever()
}

// helperLauncher starts a process that inherits its files and ignores SIGTERM, prints its pid, and
// abandons it.
func helperLauncher() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVar+"=stubborn")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "child", cmd.Process.Pid)
	eachLine(func(string) {})
}

// helperLate writes more than a pipe holds after the end of its input, and then more to stderr.
func helperLate() {
	eachLine(func(string) {})
	for range 100 {
		fmt.Println(strings.Repeat("late ", 1000))
	}
	fmt.Fprintln(os.Stderr, "all written")
}

// helperDetach starts a process in another session that holds the pipes, and exits.
func helperDetach() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVar+"=stubborn")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Start()
	fmt.Fprintln(os.Stderr, "child", cmd.Process.Pid)
	eachLine(func(line string) {
		fmt.Println(line)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}

// helperParent starts a server that ignores the end of its input, and prints its pid.
func helperParent() {
	c := Command(os.Args[0])
	c.Env = []string{helperVar + "=ignoreEOF"}
	p, err := c.Start(context.Background())
	if err != nil {
		os.Exit(1)
	}
	bufio.NewReader(p).ReadString('\n')
	fmt.Println(p.Pid())
	forever()
}

func startHelper(t *testing.T, name string, args ...string) *Process {
	t.Helper()
	p, err := helperCommand(t, name, args...).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func wantLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	wait.Within(t, "line "+want, func() {
		if got, err := r.ReadString('\n'); got != want+"\n" || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
}

func TestProcessExit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		status     int
		closeInput bool
		clean      bool
	}{
		{"clean", 0, true, true},
		{"failure", 3, true, false},
		{"by itself", 0, false, false},
		{"failure by itself", 4, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := startHelper(t, "exit", strconv.Itoa(tt.status), "a last word")
			r := bufio.NewReader(p)
			wantLine(t, r, "ready")
			if tt.closeInput {
				p.CloseWrite()
			} else {
				io.WriteString(p, "go\n")
			}
			wait.Within(t, "end", func() {
				_, readErr := r.ReadByte()
				waitErr, closeErr := p.Wait(), p.Close()
				if tt.clean {
					if readErr != io.EOF || waitErr != nil || closeErr != nil {
						t.Errorf("read: %v, Wait: %v, Close: %v; want io.EOF and nils", readErr, waitErr, closeErr)
					}
					return
				}
				for what, err := range map[string]error{"read": readErr, "Wait": waitErr, "Close": closeErr} {
					var exit *ExitError
					if !errors.As(err, &exit) || exit.Code != tt.status || exit.Signal != nil || exit.Stderr != "a last word\n" || exit.After <= 0 {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
			if _, err := p.Write([]byte("x")); err == nil {
				t.Error("writing to an ended server succeeded")
			}
		})
	}
}

func TestProcessKilledDuringCall(t *testing.T) {
	t.Parallel()
	p := startHelper(t, "exit", "0", "about to die")
	r := bufio.NewReader(p)
	wantLine(t, r, "ready")
	ended := make(chan error, 1)
	go func() {
		_, err := r.ReadByte()
		ended <- err
	}()
	unix.Kill(p.Pid(), unix.SIGKILL)
	begin := time.Now()
	wait.Within(t, "read", func() {
		err := <-ended
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL || exit.Code != -1 {
			t.Errorf("got %v", err)
		}
		wantContains(t, "the error", err.Error(), "was terminated by a signal (killed) after", "last stderr lines:\n\tabout to die")
	})
	if d := time.Since(begin); d > time.Second {
		t.Errorf("the read failed after %v", d)
	}
	// a process that another test is starting may hold the pipe for a moment
	wait.Until(t, "failing write", func() bool {
		_, err := p.Write([]byte("x"))
		return errors.As(err, new(*ExitError))
	})
}

func TestProcessNoise(t *testing.T) {
	t.Parallel()
	var forwarded buffer.Buffer
	c := helperCommand(t, "noise")
	c.Stderr = &forwarded
	p, err := c.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	io.WriteString(p, "hello\n")
	wantLine(t, bufio.NewReader(p), "hello")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	tail := p.Stderr()
	if len(tail) > tailSize || !strings.HasSuffix(tail, "noise \nthe last line\n") {
		t.Errorf("%d bytes of tail", len(tail))
	}
	if got := forwarded.String(); !strings.HasPrefix(got, "noise noise") {
		t.Errorf("forwarded %d bytes", len(got))
	}
}

// TestProcessStuckForward checks that a blocked Stderr writer does not block the server.
func TestProcessStuckForward(t *testing.T) {
	t.Parallel()
	w := &stuckWriter{free: make(chan struct{})}
	defer close(w.free)
	c := helperCommand(t, "noise")
	c.Stderr = w
	p, err := c.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(p, "hello\n")
	wantLine(t, bufio.NewReader(p), "hello")
	wait.Within(t, "Close", func() { p.Close() })
}

func TestProcessTermination(t *testing.T) {
	t.Parallel()
	tests := []struct {
		helper string
		term   time.Duration
		want   syscall.Signal
	}{
		{"stubborn", time.Millisecond, syscall.SIGKILL},
		{"ignoreEOF", time.Minute, syscall.SIGTERM},
	}
	for _, tt := range tests {
		t.Run(tt.helper, func(t *testing.T) {
			t.Parallel()
			c := helperCommand(t, tt.helper)
			c.StopWait, c.TermWait = time.Millisecond, tt.term
			p, err := c.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantLine(t, bufio.NewReader(p), "ready")
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					var exit *ExitError
					if err := p.Close(); !errors.As(err, &exit) || exit.Signal != tt.want {
						t.Errorf("Close: %v, want signal %v", err, tt.want)
					}
				})
			}
			wait.Within(t, "Close", wg.Wait)
			if process.Running(p.Pid()) {
				t.Error("still alive")
			}
		})
	}
}

func TestProcessCloseDrains(t *testing.T) {
	t.Parallel()
	p := startHelper(t, "late")
	wait.Within(t, "Close", func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := p.Stderr(); got != "all written\n" {
		t.Errorf("stderr: %q", got)
	}
}

// TestProcessCloseWriteThenRead checks that closing the input loses no output.
func TestProcessCloseWriteThenRead(t *testing.T) {
	t.Parallel()
	p := startHelper(t, "late")
	p.CloseWrite()
	wait.Within(t, "reading", func() {
		b, err := io.ReadAll(p)
		if len(b) != 100*5001 || err != nil {
			t.Errorf("read %d bytes, %v", len(b), err)
		}
	})
	if _, err := p.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after CloseWrite: %v", err)
	}
}

func TestProcessGrandchildIsKilled(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Process){
		"close": func(p *Process) { p.Close() },
		"kill":  func(p *Process) { unix.Kill(p.Pid(), unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startHelper(t, "launcher")
			r := bufio.NewReader(p)
			wantLine(t, r, "ready") // the grandchild, which holds the pipes and ignores SIGTERM
			pid := childPid(t, p)
			begin := time.Now()
			end(p)
			wait.Within(t, "read", func() {
				_, err := r.ReadByte()
				if err == nil {
					t.Error("still readable")
				}
				p.Wait()
			})
			if d := time.Since(begin); d > time.Second {
				t.Errorf("took %v", d)
			}
			wait.Until(t, "end of the grandchild", func() bool { return !process.Running(pid) })
		})
	}
}

// childPid returns the pid that a helper prints for its child.
func childPid(t *testing.T, p *Process) (pid int) {
	wait.Until(t, "pid", func() bool {
		n, _ := fmt.Sscanf(p.Stderr(), "child %d\n", &pid)
		return n == 1
	})
	return pid
}

// TestProcessPipeHeldByDescendant checks that a process that has left the group, and is not killed,
// cannot block reads.
func TestProcessPipeHeldByDescendant(t *testing.T) {
	t.Parallel()
	p := startHelper(t, "detach")
	r := bufio.NewReader(p)
	wantLine(t, r, "ready")
	pid := childPid(t, p)
	defer unix.Kill(pid, unix.SIGKILL)
	io.WriteString(p, "answer this\n")
	wantLine(t, r, "answer this")
	wait.Within(t, "read", func() {
		var exit *ExitError
		if _, err := r.ReadByte(); !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL {
			t.Errorf("got %v", err)
		}
		p.Close()
	})
	if !process.Running(pid) {
		t.Error("a process of another session was killed")
	}
}

func TestProcessClosesOutputOnly(t *testing.T) {
	t.Parallel()
	p := startHelper(t, "mute")
	wait.Within(t, "read", func() {
		_, err := p.Read(make([]byte, 1))
		if !errors.Is(err, errStillRunning) {
			t.Errorf("got %v", err)
		}
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestProcessCannotBeKilled(t *testing.T) {
	t.Parallel()
	c := helperCommand(t, "stubborn")
	c.StopWait, c.TermWait, c.KillWait = -1, -1, -1
	p, err := c.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	ours := p.group
	p.group = procgroup.Group{} // so that signals have no effect
	p.mu.Unlock()
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "cannot be killed") {
		t.Errorf("Close: %v", err)
	}
	ours.Kill()
	p.wg.Wait()
	p.stderr.Close()
}

func TestProcessGroup(t *testing.T) {
	t.Parallel()
	p := startHelper(t, "exit", "0")
	pgid, err := unix.Getpgid(p.Pid())
	if err != nil || pgid != p.Pid() {
		t.Errorf("group of %d is %d, %v", p.Pid(), pgid, err)
	}
	io.WriteString(p, "x\n")
	p.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != (procgroup.Group{}) {
		t.Error("a reaped process still has a group to signal")
	}
}
