package resend_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace/wireclient"
)

// open opens a session that records to the returned buffer.
func open(t *testing.T, o *resend.Origin, opts *resend.Options) (*wireclient.Session, func() []*capture.Event) {
	t.Helper()
	var file bytes.Buffer
	rec := capture.NewWriter(&file, nil)
	s, err := resend.Open(t.Context(), o, rec, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); rec.Close() })
	return s, func() []*capture.Event {
		s.Close()
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		var list []*capture.Event
		for e, err := range capture.NewReader(&file, nil).Events() {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e.Clone())
		}
		return list
	}
}

// TestSessionPlays shows that a user can send all messages of a client by hand, including
// responses.
func TestSessionPlays(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			var o *resend.Origin
			if o = oursHTTP(t); transport == "stdio" {
				o = helper(t, "ours")
			}
			s, finish := open(t, o, nil)
			send := func(message string) wireclient.Sent {
				t.Helper()
				sent, err := s.Send(t.Context(), []byte(message))
				if err != nil {
					t.Fatal(err)
				}
				return sent
			}
			next := func(want string) *wireclient.Incoming {
				t.Helper()
				for {
					in, err := s.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if bytes.Contains(in.Data, []byte(want)) && (len(in.Data) > 0 || in.Ended) {
						return in
					}
				}
			}
			send(string(o.Initialize))
			next(`"serverInfo"`)
			ready := send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			for in := (*wireclient.Incoming)(nil); ready.Exchange > 0 && (in == nil || !in.Ended || in.Exchange != ready.Exchange); {
				in = next("")
			}
			send(callAsk)
			inputRequest := next("elicitation/create")
			_, id, _ := strings.Cut(string(inputRequest.Data), `"id":`)
			id, _, _ = strings.Cut(id, ",")
			send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"name":"Ann"}}}`)
			if answer := next(`"id":7`); !bytes.Contains(answer.Data, []byte("accepted: true")) {
				t.Errorf("the answer is %s", answer.Data)
			}
			events := finish()
			if transport == "http" {
				causal(t, events)
			}
			if _, err := s.Send(t.Context(), []byte("{}")); !errors.Is(err, wireclient.ErrClosed) && !strings.Contains(errorText(err), "ended") {
				t.Errorf("Send after Close: %v", err)
			}
			if _, err := s.Next(t.Context()); err == nil {
				t.Error("Next after Close does not fail")
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSessionContext(t *testing.T) {
	s, _ := open(t, helper(t, "hang"), nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := s.Next(ctx); !errors.Is(err, cause) {
		t.Errorf("Next: %v", err)
	}
	done := make(chan error, 1)
	go func() { // Close releases all waiters
		_, err := s.Next(context.Background())
		done <- err
	}()
	s.Close()
	if err := <-done; err == nil {
		t.Error("Next does not fail when the session is closed")
	}
}

// TestOptions shows that the command and the folder are the recorded ones unless the options set
// others.
func TestOptions(t *testing.T) {
	o := helper(t, "echo")
	command := o.Command
	o.Command = []string{"/nowhere/~redacted:token:0123456789ab:16~"}
	_, events, err := run(t, o, `{"jsonrpc":"2.0","id":3,"method":"m"}`, &resend.Options{Command: []string{os.Args[0], "--other"}})
	if err != nil || events[2].Start.Command[1] != "--other" || command == nil {
		t.Errorf("started %+v, %v", events[2].Start, err)
	}
}
