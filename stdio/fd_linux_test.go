package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mcpwire/internal/test/wait"
)

// transports create a pair of connected files, r and w.
var transports = map[string]func(t testing.TB) (r, w *os.File){
	"pipe": func(t testing.TB) (r, w *os.File) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return closeLater(t, p)
	},
	"nonblocking pipe": func(t testing.TB) (r, w *os.File) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		return closeLater(t, p)
	},
	"socket": func(t testing.TB) (r, w *os.File) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return closeLater(t, p)
	},
	"nonblocking socket": func(t testing.TB) (r, w *os.File) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		return closeLater(t, p)
	},
}

func closeLater(t testing.TB, p [2]int) (r, w *os.File) {
	r, w = os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// inputs are the ways to open an input.
var inputs = map[string]func(t *testing.T, f *os.File) input{
	"best": func(t *testing.T, f *os.File) input {
		in, err := openInput(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := in.(*fdInput); !ok {
			t.Fatalf("got a %T", in)
		}
		return in
	},
	"polled": func(t *testing.T, f *os.File) input {
		fd, err := dup(f, -1)
		if err != nil {
			t.Fatal(err)
		}
		in, err := newPolledInput(fd)
		if err != nil {
			t.Fatal(err)
		}
		return in
	},
	"pumped": func(t *testing.T, f *os.File) input { return newPumpedInput(f) },
}

// eachInput runs f over every kind of transport and input, and both ways to read.
func eachInput(t *testing.T, f func(t *testing.T, in input, read func([]byte) (int, error), w *os.File)) {
	for transport, open := range transports {
		for kind, openIn := range inputs {
			for _, idle := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/idle=%t", transport, kind, idle), func(t *testing.T) {
					r, w := open(t)
					in := openIn(t, r)
					defer in.Close()
					read := in.Read
					if idle {
						read = in.ReadIdle
					}
					f(t, in, read, w)
					in.Close()
					w.Close() // unblocks a pump
				})
			}
		}
	}
}

func TestInputReads(t *testing.T) {
	eachInput(t, func(t *testing.T, in input, read func([]byte) (int, error), w *os.File) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
		go func() {
			w.Write(want)
			w.Close()
		}()
		var got []byte
		buf := make([]byte, 50_000)
		for {
			n, err := read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, want %d equal ones", len(got), len(want))
		}
	})
}

// TestInputMixesReads checks that Read and ReadIdle read from one stream.
func TestInputMixesReads(t *testing.T) {
	for transport, open := range transports {
		t.Run(transport, func(t *testing.T) {
			r, w := open(t)
			in := inputs["best"](t, r)
			defer in.Close()
			buf := make([]byte, 10)
			for i := range 20 {
				read := in.Read
				if i%2 == 1 {
					read = in.ReadIdle
				}
				want := fmt.Sprint("message", i)
				w.Write([]byte(want))
				n, err := read(buf)
				if err != nil || string(buf[:n]) != want {
					t.Fatalf("read %d: %q, %v; want %q", i, buf[:n], err, want)
				}
			}
		})
	}
}

func TestInputStop(t *testing.T) {
	eachInput(t, func(t *testing.T, in input, read func([]byte) (int, error), w *os.File) {
		var tid atomic.Int64
		ended := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid.Store(int64(unix.Gettid()))
			_, err := read(make([]byte, 10))
			ended <- err
		}()
		if f, ok := in.(*fdInput); ok {
			wait.Until(t, "blocked read", func() bool { return blocked(tid.Load(), f.idling.Load()) })
		}
		in.stop()
		wait.Within(t, "read", func() {
			if err := <-ended; err != io.EOF {
				t.Errorf("the pending read returned %v, want io.EOF", err)
			}
		})
		if n, err := read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Errorf("the next read returned %d, %v, want io.EOF", n, err)
		}
		in.stop()
	})
}

// blocked reports whether the thread waits in a system call, which must be read or poll for an idle
// read.
func blocked(tid int64, idle bool) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
	if err != nil || !idle {
		return err == nil && tid != 0 // the runtime's poller waits, so there is no thread to check
	}
	call, _, _ := strings.Cut(string(b), " ")
	return call == fmt.Sprint(unix.SYS_READ) || call == fmt.Sprint(unix.SYS_PPOLL)
}

func TestInputStopRace(t *testing.T) {
	for transport, open := range transports {
		t.Run(transport, func(t *testing.T) {
			for i := range 100 {
				r, w := open(t)
				in := inputs["best"](t, r)
				read := in.Read
				if i%2 == 0 {
					read = in.ReadIdle
				}
				ended := make(chan error, 1)
				go func() {
					for {
						if _, err := read(make([]byte, 10)); err != nil {
							ended <- err
							return
						}
					}
				}()
				if i%3 == 0 {
					w.Write([]byte("x"))
				}
				if i%4 < 2 {
					in.Close()
				} else {
					in.stop()
				}
				wait.Within(t, "read", func() {
					if err := <-ended; err != io.EOF {
						t.Errorf("got %v, want io.EOF", err)
					}
				})
				in.Close()
				r.Close()
				w.Close()
			}
		})
	}
}

// TestFlagsUntouched checks that the flags of an open file, which other processes may share, do not
// change while it is used or after.
func TestFlagsUntouched(t *testing.T) {
	for transport, open := range transports {
		t.Run(transport, func(t *testing.T) {
			r, w := open(t)
			want := [2]int{flags(t, r), flags(t, w)}
			in := inputs["best"](t, r)
			out, err := openOutput(w)
			if err != nil {
				t.Fatal(err)
			}
			if got := [2]int{flags(t, r), flags(t, w)}; got != want {
				t.Errorf("while open: flags are %x, were %x", got, want)
			}
			in.Close()
			out.Close()
			if got := [2]int{flags(t, r), flags(t, w)}; got != want {
				t.Errorf("after closing: flags are %x, were %x", got, want)
			}
		})
	}
}

func flags(t *testing.T, f *os.File) (flags int) {
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	conn.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

// TestDescriptorsReturned checks that inputs and outputs release every descriptor, even if they are
// closed during use.
func TestDescriptorsReturned(t *testing.T) {
	before := openFDs(t)
	t.Run("use", func(t *testing.T) {
		for transport, open := range transports {
			t.Run(transport, func(t *testing.T) {
				r, w := open(t)
				in, out := inputs["best"](t, r), outputs["best"](t, w)
				polledIn, polledOut := inputs["polled"](t, r), outputs["polled"](t, w)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					in.ReadIdle(make([]byte, 1))
				}()
				for _, c := range []io.Closer{in, out, polledIn, polledOut} {
					c.Close()
				}
				<-ended
			})
		}
	})
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

func openFDs(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestReadWriteAllocations checks that reads and writes do not allocate.
func TestReadWriteAllocations(t *testing.T) {
	for transport, open := range transports {
		t.Run(transport, func(t *testing.T) {
			r, w := open(t)
			in, out := inputs["best"](t, r), outputs["best"](t, w)
			defer in.Close()
			defer out.Close()
			s := &stream{in: in, out: out}
			msg, buf := []byte("a message\n"), make([]byte, 100)
			for name, read := range map[string]func([]byte) (int, error){"Read": s.Read, "ReadIdle": s.ReadIdle} {
				if n := testing.AllocsPerRun(100, func() {
					s.Write(msg)
					read(buf)
				}); n != 0 {
					t.Errorf("Write and %s allocate %v times", name, n)
				}
			}
		})
	}
}

// TestIdleIsNotPolled checks that no poller watches the descriptors of an input during ReadIdle, or
// those of an output with free space: each message would wake a thread in the poller for nothing.
func TestIdleIsNotPolled(t *testing.T) {
	for transport, open := range transports {
		t.Run(transport, func(t *testing.T) {
			r, w := open(t)
			in, out := inputs["best"](t, r).(*fdInput), outputs["best"](t, w).(*fdOutput)
			defer in.Close()
			defer out.Close()
			buf := make([]byte, 10)
			step := func(read func([]byte) (int, error)) {
				out.Write([]byte("x"))
				if n, err := read(buf); n != 1 || err != nil {
					t.Fatalf("read: %d, %v", n, err)
				}
			}
			check := func(when string, want bool) {
				t.Helper()
				watched := polledFDs(t)
				if watched[out.fd] || watched[in.fd] || watched[in.nonblockFD] {
					if !want {
						t.Errorf("%s: a descriptor is watched", when)
					}
				} else if want {
					t.Errorf("%s: no descriptor is watched", when)
				}
			}
			step(in.ReadIdle)
			step(in.Read) // data is available, so the read does not wait
			check("at first", false)
			var wg sync.WaitGroup
			wg.Go(func() { in.Read(buf) })
			wait.Until(t, "waiting read", func() bool {
				watched := polledFDs(t)
				return watched[in.fd] || watched[in.nonblockFD]
			})
			out.Write([]byte("x"))
			wg.Wait()
			check("after a read that waited", true)
			step(in.ReadIdle)
			check("after an idle read", false)
		})
	}
}

// polledFDs returns the descriptors that are in some epoll set of this process.
func polledFDs(t *testing.T) map[int]bool {
	t.Helper()
	watched := map[int]bool{}
	entries, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		for line := range strings.Lines(string(info)) {
			var fd int
			if n, _ := fmt.Sscanf(line, "tfd: %d", &fd); n == 1 {
				watched[fd] = true
			}
		}
	}
	delete(watched, -1)
	return watched
}

func BenchmarkStream(b *testing.B) {
	for transport, open := range transports {
		for _, size := range []int{64, 4 << 10, 32 << 10} {
			b.Run(fmt.Sprintf("%s/%d", transport, size), func(b *testing.B) {
				r, w := open(b)
				in, err := openInput(r)
				if err != nil {
					b.Fatal(err)
				}
				defer in.Close()
				out, err := openOutput(w)
				if err != nil {
					b.Fatal(err)
				}
				defer out.Close()
				msg, buf := make([]byte, size), make([]byte, 64<<10)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					out.Write(msg)
					in.ReadIdle(buf)
				}
			})
		}
	}
}

// outputs are the ways to open an output.
var outputs = map[string]func(t *testing.T, f *os.File) output{
	"best": func(t *testing.T, f *os.File) output {
		out, err := openOutput(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := out.(*fdOutput); !ok {
			t.Fatalf("got a %T", out)
		}
		return out
	},
	"polled": func(t *testing.T, f *os.File) output {
		fd, err := dup(f, -1)
		if err != nil {
			t.Fatal(err)
		}
		return newPolledOutput(fd)
	},
}

func eachOutput(t *testing.T, f func(t *testing.T, out output, r, w *os.File)) {
	for transport, open := range transports {
		for kind, openOut := range outputs {
			t.Run(transport+"/"+kind, func(t *testing.T) {
				r, w := open(t)
				out := openOut(t, w)
				defer out.Close()
				f(t, out, r, w)
			})
		}
	}
}

func TestOutputWrites(t *testing.T) {
	eachOutput(t, func(t *testing.T, out output, r, w *os.File) {
		want := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
		ended := make(chan error, 1)
		go func() {
			_, err := out.Write(want)
			if err == nil {
				_, err = out.Write([]byte("!"))
			}
			ended <- err
			out.Close()
			w.Close()
		}()
		got, err := io.ReadAll(r)
		if err := errors.Join(err, <-ended); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(len(want)+1, len(got)); diff != "" || !bytes.Equal(got[:len(want)], want) {
			t.Errorf("did not get what was written: %s", diff)
		}
	})
}

func TestOutputTryWriteDoesNotWait(t *testing.T) {
	eachOutput(t, func(t *testing.T, out output, _, _ *os.File) {
		line := bytes.Repeat([]byte("x"), pipeBuf)
		wait.Within(t, "tryWrite", func() {
			for range 20_000 {
				n, err := out.tryWrite(line)
				if err != nil {
					t.Error(err)
				}
				if n < len(line) {
					return
				}
			}
			t.Error("never full")
		})
	})
}

// countCalls runs f in a goroutine, whose error goes to done. calls returns how many system calls of
// a kind, "syscr" for reads or "syscw" for writes, its thread has made.
func countCalls(t *testing.T, kind string, f func() error) (calls func() int, done <-chan error) {
	var tid atomic.Int64
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid.Store(int64(unix.Gettid()))
		ended <- f()
	}()
	wait.Until(t, "thread", func() bool { return tid.Load() != 0 })
	return func() int {
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/io", tid.Load()))
		if err != nil {
			t.Skip("the system does not count the calls of a thread: ", err)
		}
		_, after, _ := strings.Cut(string(b), kind+": ")
		var n int
		if _, err := fmt.Sscan(after, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}, ended
}

// TestUnpollable checks that a descriptor that neither blocks nor can be polled, as a nonblocking
// terminal of macOS, is read and written at intervals, and not in a loop without a wait.
func TestUnpollable(t *testing.T) {
	atIntervals := func(t *testing.T, calls func() int) {
		started := time.Now()
		before := calls()
		n := 0
		wait.Until(t, "three calls", func() bool { n = calls() - before; return n >= 3 })
		if limit := int(time.Since(started)/(retryInterval*time.Millisecond)) + 1; n > limit {
			t.Errorf("%d calls in %v, want at most %d", n, time.Since(started), limit)
		}
	}
	t.Run("read", func(t *testing.T) {
		r, w := transports["nonblocking pipe"](t)
		in := inputs["polled"](t, r).(*polledInput)
		defer in.Close()
		in.canPoll = false
		buf := make([]byte, 10)
		calls, done := countCalls(t, "syscr", func() error { _, err := in.Read(buf); return err })
		atIntervals(t, calls)
		w.Write([]byte("message"))
		if err := <-done; err != nil || !bytes.HasPrefix(buf, []byte("message")) {
			t.Errorf("Read: %q, %v", buf, err)
		}
		_, done = countCalls(t, "syscr", func() error { _, err := in.Read(buf); return err })
		in.stop()
		if err := <-done; err != io.EOF {
			t.Errorf("Read after stop: %v, want io.EOF", err)
		}
	})
	t.Run("write", func(t *testing.T) {
		r, w := transports["nonblocking pipe"](t)
		out := outputs["polled"](t, w).(*polledOutput)
		defer out.Close()
		full := 0
		for n := 1; n > 0; full += n {
			n, _ = out.tryWrite(make([]byte, pipeBuf))
		}
		out.canPoll = false
		calls, done := countCalls(t, "syscw", func() error { _, err := out.Write(make([]byte, 1<<20)); return err })
		atIntervals(t, calls)
		if n, err := io.ReadFull(r, make([]byte, full+1<<20)); err != nil {
			t.Errorf("read %d bytes: %v", n, err)
		}
		if err := <-done; err != nil {
			t.Errorf("Write: %v", err)
		}
	})
}

// TestPolledOutputLimit checks that tryWrite writes no more than what fits on every system if poll
// reports the pipe as writable.
func TestPolledOutputLimit(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	out := outputs["polled"](t, w)
	defer out.Close()
	for size, want := range map[int]int{512: 512, 513: 0} {
		if n, err := out.tryWrite(make([]byte, size)); n != want || err != nil {
			t.Errorf("%d bytes: got %d, %v, want %d", size, n, err, want)
		}
	}
}

func TestOutputBroken(t *testing.T) {
	eachOutput(t, func(t *testing.T, out output, r, _ *os.File) {
		r.Close()
		if _, err := out.Write([]byte("x")); !isBrokenPipe(err) {
			t.Errorf("Write returned %v", err)
		}
		if _, err := out.tryWrite([]byte("x")); !isBrokenPipe(err) {
			t.Errorf("tryWrite returned %v", err)
		}
	})
}

func TestOutputCloseInterrupts(t *testing.T) {
	for transport, open := range transports {
		t.Run(transport, func(t *testing.T) {
			_, w := open(t)
			out := outputs["best"](t, w)
			full := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				for n := 1; n > 0; {
					n, _ = out.tryWrite(make([]byte, 1000))
				}
				close(full)
				_, err := out.Write(make([]byte, 10<<20))
				ended <- err
			}()
			<-full
			out.Close()
			wait.Within(t, "Write", func() {
				if err := <-ended; err == nil {
					t.Error("a write that nobody reads succeeded")
				}
			})
			if _, err := out.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Write after Close: %v", err)
			}
		})
	}
}
