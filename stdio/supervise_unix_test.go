//go:build unix

package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
)

func init() {
	// rpc answers requests with its pid, and dies of one.
	helpers["rpc"] = func() {
		fmt.Fprintln(os.Stderr, "rpc server is up")
		eachLine(func(line string) {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			json.Unmarshal([]byte(line), &m)
			switch m.Method {
			case "die":
				fmt.Fprintln(os.Stderr, "dying words")
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case "wait":
			default:
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%d}`+"\n", m.ID, os.Getpid())
			}
		})
	}
}

func TestSuperviseProcesses(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	defer running.Wait()
	connect := func(ctx context.Context, p *Process) (*rpc.Conn, error) {
		c := rpc.NewConn(jsonrpc.NewFramer(p, nil), nil)
		running.Go(func() { c.Run(context.Background()) })
		if _, err := c.Call(ctx, "initialize", nil); err != nil {
			return nil, err
		}
		return c, nil
	}
	s := Supervise(helperCommand(t, "rpc").Start, connect, &SuperviseOptions{MinBackoff: time.Millisecond})
	defer s.Close()
	pids := map[string]bool{}
	for range 3 {
		c, err := s.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pid, err := c.Call(t.Context(), "pid", nil)
		if err != nil {
			t.Fatal(err)
		}
		pids[string(pid)] = true

		waiting := make(chan error, 1)
		running.Go(func() {
			_, err := c.Call(t.Context(), "wait", nil)
			waiting <- err
		})
		_, err = c.Call(t.Context(), "die", nil)
		within(t, "call under way", func() {
			for _, err := range []error{err, <-waiting} {
				var exit *ExitError
				if !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL {
					t.Fatalf("a call that was under way returned %v", err)
				}
				wantContains(t, "the error", err.Error(), "dying words")
			}
		})
		<-c.Done()
		eventually(t, "new connection", func() bool {
			next, err := s.Conn(t.Context())
			return err != nil || next != c
		})
	}
	if len(pids) != 3 {
		t.Errorf("pids are %v, want three", pids)
	}
}

func TestSuperviseCrashAtStart(t *testing.T) {
	t.Parallel()
	connect := func(_ context.Context, p *Process) (struct{}, error) {
		_, err := p.Read(make([]byte, 1))
		for err == nil {
			p.CloseWrite()
			_, err = p.Read(make([]byte, 10))
		}
		return struct{}{}, err
	}
	s := Supervise(helperCommand(t, "exit", "7", "cannot find the configuration").Start, connect, &SuperviseOptions{MinBackoff: time.Millisecond, MaxFailures: 4})
	defer s.Close()
	_, err := s.Conn(t.Context())
	var gaveUp *GaveUpError
	if !errors.As(err, &gaveUp) || gaveUp.Failures != 4 {
		t.Fatalf("got %v", err)
	}
	wantContains(t, "the error", err.Error(), "gave up after 4 failures in a row", "exited with status 7", "cannot find the configuration")

	missing := Supervise(Command("no-such-program-anywhere").Start, connect, &SuperviseOptions{MinBackoff: time.Millisecond, MaxFailures: 2})
	defer missing.Close()
	_, err = missing.Conn(t.Context())
	wantContains(t, "the error", fmt.Sprint(err), "gave up after 2 failures in a row", "no-such-program-anywhere")
}
