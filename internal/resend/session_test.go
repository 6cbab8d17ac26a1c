package resend_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/resend"
)

// open opens a session that records to the returned buffer.
func open(t *testing.T, o *resend.Origin, opts *resend.Options) (*resend.Session, func() []*capture.Event) {
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

// TestSessionPlays: a whole client can be played by hand, answers to the server included.
func TestSessionPlays(t *testing.T) {
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			var o *resend.Origin
			if o = oursHTTP(t); transport == "stdio" {
				o = helper(t, "ours")
			}
			s, finish := open(t, o, nil)
			send := func(message string) resend.Sent {
				t.Helper()
				sent, err := s.Send(t.Context(), []byte(message))
				if err != nil {
					t.Fatal(err)
				}
				return sent
			}
			next := func(want string) *resend.Incoming {
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
			for in := (*resend.Incoming)(nil); ready.Exchange > 0 && (in == nil || !in.Ended || in.Exchange != ready.Exchange); {
				in = next("")
			}
			send(callAsk)
			question := next("elicitation/create")
			_, id, _ := strings.Cut(string(question.Data), `"id":`)
			id, _, _ = strings.Cut(id, ",")
			send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"name":"Ann"}}}`)
			if answer := next(`"id":7`); !bytes.Contains(answer.Data, []byte("accepted: true")) {
				t.Errorf("the answer is %s", answer.Data)
			}
			events := finish()
			if transport == "http" {
				causal(t, events)
			}
			if _, err := s.Send(t.Context(), []byte("{}")); !errors.Is(err, resend.ErrClosed) && !strings.Contains(errorText(err), "ended") {
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
	go func() { // Close frees whoever waits
		_, err := s.Next(context.Background())
		done <- err
	}()
	s.Close()
	if err := <-done; err == nil {
		t.Error("Next does not fail when the session is closed")
	}
}

func TestFrameReader(t *testing.T) {
	type got struct{ Text, Framing, Prefix string }
	for _, tt := range []struct {
		name, in string
		want     []got
	}{
		{"lines", "a\nb\r\n\nc", []got{{"a", "lf", ""}, {"b", "crlf", ""}, {"", "lf", ""}, {"c", "eof", ""}}},
		{"blocks", "Content-Length: 3\r\nX: y\r\n\r\na\nbc\n", []got{{"a\nb", "header", "Content-Length: 3\r\nX: y\r\n\r\n"}, {"c", "lf", ""}}},
		{"a block that ends early", "content-length:9\n\nab", []got{{"ab", "header", "content-length:9\n\n"}}},
		{"no length", "Content-Length: x\nContent-Length: -1\n", []got{{"Content-Length: x", "lf", ""}, {"Content-Length: -1", "lf", ""}}},
		{"a header that ends early", "Content-Length: 5\nX", []got{{"Content-Length: 5\nX", "eof", ""}}},
		{"long line", strings.Repeat("x", 100) + "\ny\n", []got{{strings.Repeat("x", 64), "lf", ""}, {"y", "lf", ""}}},
		{"long block", "Content-Length: 100\n\n" + strings.Repeat("x", 100) + "y\n", []got{{strings.Repeat("x", 64), "header", "Content-Length: 100\n\n"}, {"y", "lf", ""}}},
		{"huge length", "Content-Length: 9223372036854775807\n\nab", []got{{"ab", "header", "Content-Length: 9223372036854775807\n\n"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all []got
			for _, f := range resend.Frames(bufio.NewReaderSize(strings.NewReader(tt.in), 16), 64) {
				all = append(all, got{f.Text, f.Framing, f.Prefix})
			}
			if diff := cmp.Diff(tt.want, all); diff != "" {
				t.Errorf("frames (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOptions: the command and the folder are the recorded ones, unless the options say otherwise.
func TestOptions(t *testing.T) {
	o := helper(t, "echo")
	command := o.Command
	o.Command = []string{"/nowhere/~redacted:token:0123456789ab:16~"}
	_, events, err := run(t, o, `{"jsonrpc":"2.0","id":3,"method":"m"}`, &resend.Options{Command: []string{os.Args[0], "--other"}})
	if err != nil || events[2].Start.Command[1] != "--other" || command == nil {
		t.Errorf("started %+v, %v", events[2].Start, err)
	}
}
