package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		line := bytes.Repeat([]byte("x"), 1000)
		within(t, "tryWrite", func() {
			for range 10_000 {
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
			within(t, "Write", func() {
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
