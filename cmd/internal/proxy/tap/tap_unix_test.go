//go:build unix

package tap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/splitter"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"
)

func init() {
	// Sends back what it reads, and on standard error too if asked; then ends with a status.
	helpers["echo"] = func(args []string) int {
		out := io.Writer(os.Stdout)
		if args[0] == "both" {
			out = io.MultiWriter(os.Stdout, os.Stderr)
		}
		_, _ = io.Copy(out, os.Stdin)
		status, _ := strconv.Atoi(args[1])
		return status
	}
	// Ends by a signal, in the middle of a line.
	helpers["die"] = func(args []string) int {
		fmt.Print("{\"half\":")
		n, _ := strconv.Atoi(args[0])
		if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
			return 98
		}
		select {}
	}
	// Writes without end.
	helpers["gush"] = func([]string) int {
		line := append(bytes.Repeat([]byte("g"), 1000), '\n')
		for {
			if _, err := os.Stdout.Write(line); err != nil {
				return 97
			}
		}
	}
	// Closes its output, says when its input has ended, and ends.
	helpers["mute"] = func([]string) int {
		os.Stdout.Close()
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Fprintln(os.Stderr, "input ended")
		return 5
	}
	// Names the signals that it gets, one a line, and ends with status 9 by SIGTERM.
	helpers["signals"] = func([]string) int {
		ch := make(chan os.Signal, 10)
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
		fmt.Println("ready")
		for s := range ch {
			fmt.Println(s)
			if s == syscall.SIGTERM {
				return 9
			}
		}
		return 0
	}
	// Starts something that keeps the standard output, outside of its group if asked, says its
	// number, and ends.
	helpers["leave"] = func(args []string) int {
		cmd := selfCommand("hang", "plain")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: args[0] == "outside"}
		if err := cmd.Start(); err != nil {
			return 96
		}
		fmt.Println(cmd.Process.Pid)
		return 6
	}
	// Does not end by itself, and with "stubborn" not by anything that can be refused either.
	helpers["hang"] = func(args []string) int {
		if args[0] == "stubborn" {
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		}
		<-time.After(10 * time.Minute)
		return 95
	}
}

// A host is the other side of a tap in this process.
type host struct {
	t      *testing.T
	stdin  *os.File // what it writes to
	stdout *os.File
	stderr *os.File
	exit   chan int
	files  []*os.File
}

// helperOptions are the options for a tap of a helper.
func helperOptions(t *testing.T, name string, args ...string) Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Command: append([]string{self}, args...), Env: append(os.Environ(), helperVar+"="+name)}
}

// startHost runs a tap in this process.
func startHost(t *testing.T, o Options) *host {
	t.Helper()
	h := &host{t: t, exit: make(chan int, 1)}
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		h.files = append(h.files, r, w)
		return r, w
	}
	o.Stdin, h.stdin = pipe()
	h.stdout, o.Stdout = pipe()
	h.stderr, o.Stderr = pipe()
	go func() {
		exit, err := Run(context.Background(), o)
		if err != nil {
			t.Error(err)
		}
		o.Stderr.Close()
		h.exit <- exit
	}()
	t.Cleanup(func() { closeAll(h.files) })
	return h
}

// ends returns the exit status.
func (h *host) ends() (status int) {
	h.t.Helper()
	wait.Within(h.t, "the end of the tap", func() { status = <-h.exit })
	return status
}

// A record is a capture in memory.
type record struct {
	bytes.Buffer
	w     *capture.Writer
	hooks hooks.Writer[capture.Event]
}

func newRecord() *record {
	r := &record{}
	r.w = capture.NewWriter(&r.Buffer, &capture.Options{Transport: "stdio", Redact: &capture.Redaction{Off: true}, CloseTimeout: time.Minute, Hooks: &r.hooks})
	return r
}

// events closes the capture and returns what is in it.
func (r *record) events(t *testing.T) []*capture.Event {
	t.Helper()
	if err := r.w.Close(); err != nil {
		t.Fatal(err)
	}
	var all []*capture.Event
	for e, err := range capture.NewReader(&r.Buffer, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Clone())
	}
	return all
}

// stream concatenates the frames of a direction.
func stream(events []*capture.Event, dir capture.Dir) []byte {
	var all []byte
	for _, e := range events {
		if e.Dir == dir && (e.Kind == capture.KindMessage || e.Kind == capture.KindInvalid) {
			all = splitter.AppendRaw(all, e)
		}
	}
	return all
}

// kinds lists the events of a capture other than frames and text.
func kinds(events []*capture.Event) []string {
	var list []string
	for _, e := range events {
		switch e.Kind {
		case capture.KindEOF:
			list = append(list, "eof "+string(e.Dir))
		case capture.KindExit:
			list = append(list, strings.TrimSpace(fmt.Sprintf("exit %d %s", e.Exit.Code, e.Exit.Signal)))
		case capture.KindStart:
			list = append(list, "start")
		}
	}
	return list
}

// TestBytes shows that hostile bytes in pieces of any size are forwarded exactly, in both
// directions and on standard error, and are all in the capture.
func TestBytes(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(strconv.Itoa(int(seed)), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			var want []byte
			for range 4 {
				want = append(want, hostile(r)...)
			}
			rec := newRecord()
			o := helperOptions(t, "echo", "both", "7")
			o.Record, o.Hooks = rec.w, &rec.hooks
			h := startHost(t, o)
			var got, gotErr []byte
			wait.Within(t, "passing the bytes", func() {
				go func() {
					for p := want; len(p) > 0; {
						n := 1 + r.IntN(min(len(p), 1+r.IntN(100_000)))
						if _, err := h.stdin.Write(p[:n]); err != nil {
							t.Error(err)
							return
						}
						p = p[n:]
					}
					h.stdin.Close()
				}()
				errRead := make(chan struct{})
				go func() {
					defer close(errRead)
					gotErr, _ = io.ReadAll(h.stderr)
				}()
				got, _ = io.ReadAll(h.stdout)
				<-errRead
			})
			if status := h.ends(); status != 7 {
				t.Errorf("exit status %d, want 7", status)
			}
			for what, b := range map[string][]byte{"standard output": got, "standard error": gotErr} {
				if !bytes.Equal(b, want) {
					t.Errorf("%s: %d bytes, want %d; or they differ", what, len(b), len(want))
				}
			}
			events := rec.events(t)
			for _, dir := range []capture.Dir{capture.ToServer, capture.ToClient} {
				if !bytes.Equal(stream(events, dir), want) {
					t.Errorf("the capture does not have the bytes of %s", dir)
				}
			}
			if diff := cmp.Diff([]string{"start", "eof c2s", "eof s2c", "exit 7"}, kinds(events)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLargeLine forwards 32 MiB in one line.
func TestLargeLine(t *testing.T) {
	rec := newRecord()
	o := helperOptions(t, "echo", "out", "0")
	o.Record, o.Hooks = rec.w, &rec.hooks
	h := startHost(t, o)
	want := append(bytes.Repeat([]byte("0123456789abcdef"), 2<<20), '\n')
	var got []byte
	wait.Within(t, "passing a large line", func() {
		go func() {
			_, _ = h.stdin.Write(want)
			h.stdin.Close()
		}()
		got, _ = io.ReadAll(h.stdout)
	})
	h.ends()
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes passed, want %d; or they differ", len(got), len(want))
	}
	if !bytes.Equal(stream(rec.events(t), capture.ToServer), want) {
		t.Error("the capture does not have the line")
	}
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		helper, arg string
		status      int
		exit        string
		out         string
	}{
		{"echo", "0", 0, "exit 0", ""},
		{"echo", "1", 1, "exit 1", ""},
		{"echo", "255", 255, "exit 255", ""},
		{"die", "15", 143, "exit -1 SIGTERM", `{"half":`},
		{"die", "9", 137, "exit -1 SIGKILL", `{"half":`},
	} {
		t.Run(tt.helper+tt.arg, func(t *testing.T) {
			args := []string{tt.arg}
			if tt.helper == "echo" {
				args = []string{"out", tt.arg}
			}
			rec := newRecord()
			o := helperOptions(t, tt.helper, args...)
			o.Record, o.Hooks = rec.w, &rec.hooks
			h := startHost(t, o)
			h.stdin.Close()
			out, _ := io.ReadAll(h.stdout)
			if got := h.ends(); got != tt.status {
				t.Errorf("exit status %d, want %d", got, tt.status)
			}
			if string(out) != tt.out { // nothing of the tap's own, whatever happens
				t.Errorf("standard output %q, want %q", out, tt.out)
			}
			if list := kinds(rec.events(t)); !slices.Contains(list, tt.exit) {
				t.Errorf("events %q, want %q among them", list, tt.exit)
			}
		})
	}
}

func TestNoSuchCommand(t *testing.T) {
	_, err := Run(context.Background(), Options{Command: []string{filepath.Join(t.TempDir(), "none")}})
	if start, ok := err.(*StartError); !ok || !os.IsNotExist(start.Err) {
		t.Errorf("error %v, want a StartError of a file that does not exist", err)
	}
}

// TestServerClosesOutput shows that the end of the output is forwarded though the server continues.
func TestServerClosesOutput(t *testing.T) {
	h := startHost(t, helperOptions(t, "mute"))
	wait.Within(t, "the end of the output", func() {
		if out, err := io.ReadAll(h.stdout); err != nil || len(out) > 0 {
			t.Errorf("standard output %q, %v; want its end", out, err)
		}
	})
	h.stdin.Close()
	if status := h.ends(); status != 5 {
		t.Errorf("exit status %d, want 5", status)
	}
	if text, _ := io.ReadAll(h.stderr); string(text) != "input ended\n" {
		t.Errorf("standard error %q", text)
	}
}

// TestHostStopsReading checks that a server whose host stops reading ends as it would without a
// tap.
func TestHostStopsReading(t *testing.T) {
	rec := newRecord()
	o := helperOptions(t, "gush")
	o.Record, o.Hooks = rec.w, &rec.hooks
	h := startHost(t, o)
	if _, err := h.stdout.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	h.stdout.Close()
	if status := h.ends(); status != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit status %d, want that of SIGPIPE", status)
	}
	rec.events(t)
}

// TestOrphanedProcesses shows that processes that a server leaves running do not block the tap's
// end, and are ended if they are in the server's group.
func TestOrphanedProcesses(t *testing.T) {
	for _, where := range []string{"inside", "outside"} {
		t.Run(where, func(t *testing.T) {
			h := startHost(t, helperOptions(t, "leave", where))
			begun := time.Now()
			buf := make([]byte, 100)
			n, err := h.stdout.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(pid, syscall.SIGKILL)
			if status := h.ends(); status != 6 {
				t.Errorf("exit status %d, want 6", status)
			}
			// Far below wait.Limit, but not a matter of the machine's load.
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
			if where == "inside" {
				wait.Until(t, "the end of what was left behind", func() bool { return !process.Running(pid) })
			} else if !process.Running(pid) {
				t.Error("what had left the group was ended, too; so this test shows nothing")
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && where == "outside" {
				t.Error(err)
			}
			h.stdin.Close()
		})
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
