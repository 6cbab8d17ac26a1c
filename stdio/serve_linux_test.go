package stdio

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	// Node starts its children with sockets.
	childTransports["socket"] = func(t *testing.T, args ...string) *servedChild {
		return serveOn(t, transports["socket"], args...)
	}
	childTransports["nonblocking socket"] = func(t *testing.T, args ...string) *servedChild {
		return serveOn(t, transports["nonblocking socket"], args...)
	}
	childTransports["nonblocking pipe"] = func(t *testing.T, args ...string) *servedChild {
		return serveOn(t, transports["nonblocking pipe"], args...)
	}
	// inetd and sshd use one socket for both.
	childTransports["one socket"] = func(t *testing.T, args ...string) *servedChild {
		ours, theirs := transports["socket"](t)
		return startOn(t, theirs, theirs, ours, ours, args...)
	}
	childTransports["terminal"] = serveOnTerminal
}

func serveOn(t *testing.T, open func(testing.TB) (r, w *os.File), args ...string) *servedChild {
	inR, inW := open(t)
	outR, outW := open(t)
	return startOn(t, inR, outW, inW, outR, args...)
}

// startOn starts helperServe on the given files. Its Process has no pipes; Pid, Wait and Stderr
// work.
func startOn(t *testing.T, stdin, stdout, w, r *os.File, args ...string) *servedChild {
	t.Helper()
	c := helperCommand(t, "serve", args...)
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = c.Env
	cmd.Stdin, cmd.Stdout = stdin, stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	stdout.Close()
	p := &Process{cmd: c, name: "helper", done: make(chan struct{}), pid: cmd.Process.Pid}
	go func() {
		cmd.Wait()
		p.exit = newExitError(cmd, p.name, 0, "")
		close(p.done)
	}()
	return &servedChild{newPeer(t, w, r), p}
}

func serveOnTerminal(t *testing.T, args ...string) *servedChild {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { ptmx.Close() })
	var name string
	conn, _ := ptmx.SyscallConn()
	conn.Control(func(fd uintptr) {
		unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		n, _ := unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		name = fmt.Sprint("/dev/pts/", n)
	})
	pts, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	outR, outW := transports["pipe"](t)
	return startOn(t, pts, outW, ptmx, outR, args...)
}
