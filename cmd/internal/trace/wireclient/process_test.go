package wireclient

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/stdio"
)

// A fakeChild is an in-memory server.
type fakeChild struct {
	stdin, stdout         *io.PipeReader
	stdinWriter, toStdout *io.PipeWriter
	done                  chan struct{}
	exit                  error
	stderr                io.Writer
}

// fake returns a server that runs f, and a function that starts it. It ends when f has returned.
func fake(f func(*fakeChild)) Starter {
	return func(_ context.Context, stderr io.Writer) (Child, error) {
		c := &fakeChild{done: make(chan struct{}), stderr: stderr}
		c.stdin, c.stdinWriter = io.Pipe()
		c.stdout, c.toStdout = io.Pipe()
		go func() {
			f(c)
			c.stdin.Close()
			close(c.done)
			c.toStdout.Close()
		}()
		return c, nil
	}
}

func (c *fakeChild) Read(p []byte) (int, error)  { return c.stdout.Read(p) }
func (c *fakeChild) Write(p []byte) (int, error) { return c.stdinWriter.Write(p) }
func (c *fakeChild) CloseWrite() error           { return c.stdinWriter.Close() }
func (c *fakeChild) Done() <-chan struct{}       { return c.done }
func (c *fakeChild) Pid() int                    { return 7 }

func (c *fakeChild) Wait() error {
	<-c.done
	return c.exit
}

// Close kills the server: its reads and writes fail.
func (c *fakeChild) Close() error {
	c.stdin.CloseWithError(io.ErrClosedPipe)
	c.stdout.CloseWithError(io.ErrClosedPipe)
	return c.Wait()
}

// echo writes back each line that it reads.
func echo(c *fakeChild) {
	in := bufio.NewReader(c.stdin)
	for {
		line, err := in.ReadString('\n')
		if _, werr := io.WriteString(c.toStdout, line); err != nil || werr != nil {
			return
		}
	}
}

func start(t *testing.T, f func(*fakeChild), opts ProcessOptions) (*Process, *log) {
	t.Helper()
	l := newLog()
	opts.Record, opts.MaxMessage = l.record, 100
	p, err := StartProcess(t.Context(), fake(f), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, l
}

func TestProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := start(t, func(c *fakeChild) {
			io.WriteString(c.stderr, "hello\nwor")
			echo(c)
			io.WriteString(c.stderr, "ld")
			c.exit = &stdio.ExitError{Code: 3}
		}, ProcessOptions{GracePeriod: time.Second})
		synctest.Wait()
		for _, tt := range []struct {
			framing capture.Framing
			message string
			want    []string
		}{
			{capture.FramingLF, "a", []string{"a"}},
			{capture.FramingCRLF, "b", []string{"b"}},
			{capture.FramingNone, "c\nd", []string{"c"}},
			{capture.FramingNone, "\n", []string{"d"}},
			{capture.FramingHeader, "{\n}", nil}, // arrives complete after the next line
			{capture.FramingLF, "", []string{"{\n}", ""}},
		} {
			written := make(chan error, 1)
			n, err := p.Send(t.Context(), []byte(tt.message), tt.framing, func(err error) { written <- err })
			if err != nil || n == 0 {
				t.Fatalf("Send: %d, %v", n, err)
			}
			for _, want := range tt.want {
				f := <-p.Frames()
				if string(f.Text) != want || f.N <= n || f.Err != nil {
					t.Errorf("%s %q: got %q, event %d, %v, want %q", tt.framing, tt.message, f.Text, f.N, f.Err, want)
				}
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
		}
		if exit := p.Close(); exit.Forced || exit.N == 0 || exit.Err == nil {
			t.Errorf("exit %+v", exit)
		}
		if _, err := p.Send(t.Context(), nil, capture.FramingLF, nil); err != ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
		want := []string{
			"start", "err hello", "msg c2s lf a", "msg s2c lf a", "msg c2s crlf b", "msg s2c crlf b", "msg c2s eof c\nd", "msg s2c lf c",
			"msg c2s eof \n", "msg s2c lf d", "msg c2s header {\n}", "msg c2s lf", "msg s2c header {\n}", "msg s2c lf", "eof c2s", "eof s2c", "err world", "exit",
		}
		if diff := cmp.Diff(want, l.lines()); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
	})
}

// TestProcessEnds shows that the last frame has the reason why the output has ended.
func TestProcessEnds(t *testing.T) {
	exit := &stdio.ExitError{Code: 3}
	for _, tt := range []struct {
		name  string
		serve func(*fakeChild)
		opts  ProcessOptions
		want  error
	}{
		{"by itself", func(*fakeChild) {}, ProcessOptions{}, io.EOF},
		{"output above the limit", func(c *fakeChild) { io.WriteString(c.toStdout, strings.Repeat("x", 10)) }, ProcessOptions{MaxOutput: 5}, ErrTooLarge},
		{"with a status", func(c *fakeChild) { c.exit = exit }, ProcessOptions{}, exit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := start(t, tt.serve, tt.opts)
				f := <-p.Frames()
				for f.Err == nil {
					f = <-p.Frames()
				}
				if !errors.Is(f.Err, tt.want) {
					t.Errorf("the error is %v, want %v", f.Err, tt.want)
				}
			})
		})
	}
}

// TestProcessGrace shows that a server that continues is killed after the grace period, and that
// its output until then is recorded.
func TestProcessGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := start(t, func(c *fakeChild) {
			_, _ = io.ReadAll(c.stdin)
			for {
				time.Sleep(600 * time.Millisecond)
				if _, err := io.WriteString(c.toStdout, "late\n"); err != nil {
					return
				}
			}
		}, ProcessOptions{GracePeriod: time.Second})
		if _, err := p.Send(t.Context(), []byte("queued"), capture.FramingLF, nil); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if exit := p.Close(); !exit.Forced {
			t.Errorf("exit %+v, want a forced one", exit)
		}
		if took := time.Since(begin); took < time.Second || took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		want := []string{"start", "msg c2s lf queued", "eof c2s", "msg s2c lf late", "eof s2c", "exit"}
		if diff := cmp.Diff(want, l.lines()); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
	})
}

// TestProcessQueue shows that Send waits for a server that does not read until its context ends.
func TestProcessQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, _ := start(t, func(*fakeChild) { <-release }, ProcessOptions{})
		results := make(chan error, 2*maxQueued)
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		sent := 0
		var err error
		for ; err == nil; sent++ {
			_, err = p.Send(ctx, []byte("x"), capture.FramingLF, func(err error) { results <- err })
		}
		if !errors.Is(err, enough) || sent != maxQueued+2 { // one is being written
			t.Errorf("Send %d: %v", sent, err)
		}
		close(release)
		for range maxQueued + 1 {
			if err := <-results; err == nil {
				t.Error("a message that the server did not read was written")
			}
		}
	})
}

func TestStartFails(t *testing.T) {
	want := errors.New("no such program")
	_, err := StartProcess(t.Context(), func(context.Context, io.Writer) (Child, error) { return nil, want }, &ProcessOptions{})
	if err != want {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

// TestStartOf checks that the record of a process has the variables that the process gets, and no
// other ones of its parent.
func TestStartOf(t *testing.T) {
	t.Setenv("WIRECLIENT_TEST_A", "1")
	t.Setenv("WIRECLIENT_TEST_B", "2")
	for _, tt := range []struct {
		name  string
		allow []string
		want  string
	}{
		{"all", nil, "WIRECLIENT_TEST_A=1 WIRECLIENT_TEST_B=2 WIRECLIENT_TEST_C=3"},
		{"none", []string{}, "WIRECLIENT_TEST_C=3"},
		{"one", []string{"WIRECLIENT_TEST_B"}, "WIRECLIENT_TEST_B=2 WIRECLIENT_TEST_C=3"},
	} {
		var got []string
		for _, entry := range StartOf(&stdio.Cmd{Path: "x", EnvAllow: tt.allow, Env: []string{"WIRECLIENT_TEST_C=3"}}).Env {
			if strings.HasPrefix(entry, "WIRECLIENT_TEST_") {
				got = append(got, entry)
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
