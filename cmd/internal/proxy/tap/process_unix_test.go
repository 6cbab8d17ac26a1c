//go:build unix

package tap

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"
)

func selfCommand(helper string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), helperVar+"="+helper)
	return cmd
}

func init() {
	// A tap in its own process, of the helper that the arguments name.
	helpers["tap"] = func(args []string) int {
		forward, catch := Signals()
		signals := make(chan os.Signal, 10)
		signal.Notify(signals, forward...)
		signal.Notify(make(chan os.Signal, 1), catch...)
		self, err := os.Executable()
		if err != nil {
			return 94
		}
		status, err := Run(context.Background(), Options{
			Command: append([]string{self}, args[1:]...), Env: append(os.Environ(), helperVar+"="+args[0]), Signals: signals,
		})
		if err != nil {
			return 93
		}
		return status
	}
	// A host: it runs a tap of a server that starts another process, and does not end by itself.
	helpers["host"] = func(args []string) int {
		cmd := selfCommand("tap", append([]string{"family"}, args...)...)
		theirIn, in, err := os.Pipe()
		if err != nil {
			return 92
		}
		out, theirOut, err := os.Pipe()
		if err != nil {
			return 91
		}
		cmd.Stdin, cmd.Stdout = theirIn, theirOut
		if err := cmd.Start(); err != nil {
			return 90
		}
		theirIn.Close()
		theirOut.Close()
		other := selfCommand("hang", "plain")
		if args[0] == "shared" { // with another child, which outlives the host
			other.ExtraFiles = []*os.File{in, out}
			if err := other.Start(); err != nil {
				return 83
			}
			fmt.Println("other", other.Process.Pid)
		}
		fmt.Println("tap", cmd.Process.Pid)
		_, _ = io.Copy(os.Stdout, out)
		in.Close()
		return 0
	}
	// Reports whether it ignores SIGHUP.
	helpers["ignored"] = func([]string) int {
		fmt.Println(signal.Ignored(syscall.SIGHUP))
		return 0
	}
	// A server that starts a process; both ignore the end of their input.
	helpers["family"] = func(args []string) int {
		if args[0] == "stubborn" {
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		}
		cmd := selfCommand("hang", args[0])
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		if err := cmd.Start(); err != nil {
			return 89
		}
		fmt.Println("server", os.Getpid())
		fmt.Println("child", cmd.Process.Pid)
		_ = cmd.Wait()
		return 88
	}
}

// TestSharedPipes shows that a tap whose host is killed ends, though another child of the host
// keeps both pipes open.
func TestSharedPipes(t *testing.T) {
	host := selfCommand("host", "shared")
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	t.Cleanup(func() {
		for _, pid := range pids {
			if process.Running(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	lines := bufio.NewScanner(out)
	for len(pids) < 4 && lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), " ")
		if pids[name], err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	for _, name := range []string{"tap", "server", "child"} {
		wait.Until(t, "the end of "+name, func() bool { return !process.Running(pids[name]) })
	}
	if !process.Running(pids["other"]) {
		t.Error("nobody has kept the pipes; so this test shows nothing")
	}
}

// TestIgnored checks that the server inherits the signals that the tap ignores.
func TestIgnored(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("these tests ignore the signal themselves, for example because of nohup")
	}
	for _, trap := range []string{"", "trap '' HUP; "} {
		tap := selfCommand("tap", "ignored")
		tap.Args = append([]string{"sh", "-c", trap + `exec "$0" "$@"`, tap.Path}, tap.Args[1:]...)
		var err error
		if tap.Path, err = exec.LookPath("sh"); err != nil {
			t.Skip("there is no sh")
		}
		out, err := tap.Output()
		if want := fmt.Sprintln(trap != ""); string(out) != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", trap, out, err, want)
		}
	}
}

// TestKilled shows that no process of the server is left when the host or the tap is killed, even
// if the server ignores all signals that it can.
func TestKilled(t *testing.T) {
	for _, victim := range []string{"host", "tap"} {
		for _, server := range []string{"plain", "stubborn"} {
			t.Run(victim+" "+server, func(t *testing.T) {
				t.Parallel()
				host := selfCommand("host", server)
				out, err := host.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := host.Start(); err != nil {
					t.Fatal(err)
				}
				pids := map[string]int{"host": host.Process.Pid}
				t.Cleanup(func() {
					for _, pid := range pids { // only if the test fails
						if process.Running(pid) {
							_ = syscall.Kill(pid, syscall.SIGKILL)
						}
					}
				})
				lines := bufio.NewScanner(out)
				for len(pids) < 4 && lines.Scan() {
					name, number, _ := strings.Cut(lines.Text(), " ")
					if pids[name], err = strconv.Atoi(number); err != nil {
						t.Fatal(err)
					}
				}
				if len(pids) < 4 {
					t.Fatalf("the host has started only %v", pids)
				}
				for name, pid := range pids {
					if !process.Running(pid) {
						t.Fatalf("%s does not run", name)
					}
				}
				if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"tap", "server", "child"} {
					wait.Until(t, "the end of "+name, func() bool { return !process.Running(pids[name]) })
				}
				_, _ = io.Copy(io.Discard, out)
				_ = host.Wait()
			})
		}
	}
}

// TestSignals shows that signals to a tap reach the server, and that the tap returns the server's
// exit status.
func TestSignals(t *testing.T) {
	tap := selfCommand("tap", "signals")
	in, err := tap.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := tap.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tap.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var got []string
	read := func() {
		if lines.Scan() {
			got = append(got, lines.Text())
		}
	}
	read()
	want := []string{"ready"}
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGTERM} {
		if signal.Ignored(s) {
			continue // these tests ignore it, under nohup for example, and so does the tap
		}
		want = append(want, s.String())
		if err := tap.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		read()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
	_ = tap.Wait()
	if code := tap.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit status %d, want the server's 9", code)
	}
}
