//go:build unix

package stdio

import (
	"errors"
	"testing"

	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
)

// TestConnect shows that each connection has its own process, and that a read returns how it ended.
func TestConnect(t *testing.T) {
	cmd := helperCommand(t, "exit", "3", "last output")
	cmd.Framing = jsonrpc.FramingAuto
	for range 2 {
		wait.Within(t, "the exchange", func() {
			f, err := cmd.Connect(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := f.ReadFrame(); string(got) != "ready" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			if err := f.WriteFrame([]byte("{}")); err != nil {
				t.Error(err)
			}
			_, err = f.ReadFrame()
			if e, ok := errors.AsType[*ExitError](err); !ok || e.Code != 3 {
				t.Errorf("at the end: %v", err)
			}
			if err := f.Close(); err == nil {
				t.Error("Close does not return how the process ended")
			}
			if _, err := f.ReadFrame(); err == nil {
				t.Error("reading goes on")
			}
		})
	}
	if _, err := Command("/no such program").Connect(t.Context()); err == nil {
		t.Error("connected to nothing")
	}
}

// TestConnectFraming shows that the Framing and MaxFrame of the Cmd apply.
func TestConnectFraming(t *testing.T) {
	cmd := helperCommand(t, "cat")
	cmd.Framing, cmd.MaxFrame = jsonrpc.FramingHeader, 10
	wait.Within(t, "the exchange", func() {
		f, err := cmd.Connect(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		for _, msg := range []string{"[1]", "[2,3,4,5,6]"} {
			if err := f.WriteFrame([]byte(msg)); err != nil {
				t.Error(err)
			}
		}
		if got, err := f.ReadFrame(); string(got) != "[1]" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		_, err = f.ReadFrame()
		if _, ok := errors.AsType[*jsonrpc.FrameError](err); !ok {
			t.Errorf("a large frame: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.ReadFrame(); err == nil {
			t.Error("reading goes on")
		}
	})
}
