package mcptest_test

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcptest"
)

// reads returns the frames that an end reads until an error, and the error.
func reads(e jsonrpc.Framer) (frames []string, err error) {
	for {
		frame, err := e.ReadFrame()
		if err != nil {
			return frames, err
		}
		frames = append(frames, string(frame))
	}
}

func write(t testing.TB, e jsonrpc.Framer, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if err := e.WriteFrame([]byte(f)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPipe(t *testing.T) {
	frames := []string{"{}", "", "line\nbreak", "\x00\xff"}
	for i := range 2 {
		a, b := mcptest.Pipe() // a Peer reads what its end gets
		dir := [][2]jsonrpc.Framer{{a, b}, {b, a}}[i]
		write(t, dir[0], frames...)
		mcptest.NewPeer(t, dir[0]).CloseWrite()
		got, err := reads(dir[1])
		if diff := cmp.Diff(frames, got); diff != "" || err != io.EOF {
			t.Errorf("%v, frames (-want +got):\n%s", err, diff)
		}
		if err := dir[0].WriteFrame(nil); err != io.ErrClosedPipe {
			t.Errorf("write after CloseWrite: %v", err)
		}
		dir[1].Close() // the Peer waits for it
	}
}

// TestPipeCopies checks that a frame is a copy that belongs to its reader.
func TestPipeCopies(t *testing.T) {
	a, b := mcptest.Pipe()
	msg := []byte("one")
	write(t, a, "zero")
	a.WriteFrame(msg)
	copy(msg, "xxx")
	first, _ := b.ReadFrame()
	second, _ := b.ReadFrame()
	if string(first) != "zero" || string(second) != "one" {
		t.Errorf("got %q, %q", first, second)
	}
}

func TestPipeClose(t *testing.T) {
	a, b := mcptest.Pipe()
	write(t, a, "to b")
	write(t, b, "to a")
	for range 2 {
		a.Close()
	}
	if got, err := reads(a); len(got) > 0 || err != io.ErrClosedPipe {
		t.Errorf("the closed end reads %q, %v", got, err)
	}
	if got, err := reads(b); cmp.Diff([]string{"to b"}, got) != "" || err != io.EOF {
		t.Errorf("the other end reads %q, %v", got, err)
	}
	for _, e := range []jsonrpc.Framer{a, b} {
		if err := e.WriteFrame(nil); err != io.ErrClosedPipe {
			t.Errorf("write: %v", err)
		}
	}
}

// TestPipeCloseWakes checks that reads and writes in a bubble are durably blocked while they wait,
// and that Close at either end wakes them.
func TestPipeCloseWakes(t *testing.T) {
	for _, remote := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := mcptest.Pipe()
			write(t, a, strings.Repeat("x", 64<<10))
			wrote, read := make(chan error, 1), make(chan error, 1)
			go func() { wrote <- a.WriteFrame([]byte("y")) }()
			go func() {
				_, err := a.ReadFrame()
				read <- err
			}()
			synctest.Wait()
			select {
			case err := <-wrote:
				t.Fatalf("the write did not wait: %v", err)
			case err := <-read:
				t.Fatalf("the read did not wait: %v", err)
			default:
			}
			want := io.ErrClosedPipe
			if remote {
				want = io.EOF
				b.Close()
			} else {
				a.Close()
			}
			if err := <-wrote; err != io.ErrClosedPipe {
				t.Errorf("remote %v: write: %v", remote, err)
			}
			if err := <-read; !errors.Is(err, want) {
				t.Errorf("remote %v: read: %v, want %v", remote, err, want)
			}
		})
	}
}

// TestPipeIsBounded checks that one direction buffers up to 64 KiB of frames of any size, and that
// one larger frame is buffered alone.
func TestPipeIsBounded(t *testing.T) {
	for _, size := range []int{1 << 10, 64 << 10, 100 << 10} {
		synctest.Test(t, func(t *testing.T) {
			a, b := mcptest.Pipe()
			var written atomic.Int64
			go func() {
				for a.WriteFrame(make([]byte, size)) == nil {
					written.Add(1)
				}
			}()
			synctest.Wait()
			want := int64(max(1, 64<<10/size))
			if got := written.Load(); got != want {
				t.Errorf("%d bytes each: %d frames were written without being read, want %d", size, got, want)
			}
			if _, err := b.ReadFrame(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := written.Load(); got != want+1 {
				t.Errorf("%d bytes each: %d frames were written after one was read, want %d", size, got, want+1)
			}
			b.Close()
		})
	}
}
