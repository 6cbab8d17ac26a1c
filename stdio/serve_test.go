package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
)

// A scriptServer executes the lines of its input, {"do": …}, and responds with {"done": …}.
type scriptServer struct {
	ended    chan struct{} // closed at the end of input
	ctx      context.Context
	replies  sync.Mutex
	do       map[string]func(s *scriptServer, text string) string
	stubborn bool // does not return
}

type scriptLine struct {
	Do   string `json:"do,omitempty"`
	Text string `json:"text,omitempty"`
	Done string `json:"done,omitempty"`
}

func (s *scriptServer) Serve(ctx context.Context, f jsonrpc.Framer) error {
	defer f.Close()
	s.ctx = ctx
	s.ended = make(chan struct{})
	var wg sync.WaitGroup
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			close(s.ended)
			if s.stubborn {
				s.reply(f, "stubborn")
				<-time.After(time.Hour)
			}
			wg.Wait()
			if err == io.EOF {
				err = nil
			}
			return err
		}
		var line scriptLine
		if err := json.Unmarshal(frame, &line); err != nil {
			return err
		}
		switch do := s.do[line.Do]; {
		case line.Do == "fail":
			return errors.New(line.Text)
		case line.Do == "hold":
			// The response is sent after the end of input, so a drain must wait for it.
			s.reply(f, "holding")
			wg.Go(func() {
				<-s.ended
				s.reply(f, "drained")
			})
		case do != nil:
			s.reply(f, do(s, line.Text))
		default:
			s.reply(f, line.Text)
		}
	}
}

func (s *scriptServer) reply(f jsonrpc.Framer, text string) {
	s.replies.Lock()
	defer s.replies.Unlock()
	b, _ := json.Marshal(scriptLine{Done: text})
	f.WriteFrame(b)
}

// A peer is the client's end of a scriptServer.
type peer struct {
	t *testing.T
	w io.WriteCloser
	r *bufio.Reader
}

func newPeer(t *testing.T, w io.WriteCloser, r io.Reader) *peer {
	return &peer{t, w, bufio.NewReader(r)}
}

func (p *peer) send(do, text string) {
	p.t.Helper()
	b, _ := json.Marshal(scriptLine{Do: do, Text: text})
	if _, err := p.w.Write(append(b, '\n')); err != nil {
		p.t.Fatalf("send %q: %v", do, err)
	}
}

// want checks the next reply. An empty reply stands for the end of output.
func (p *peer) want(done string) {
	p.t.Helper()
	wait.Within(p.t, "reply "+done, func() {
		line, err := p.r.ReadString('\n')
		if done == "" {
			if err == nil || line != "" {
				p.t.Errorf("got %q, %v; want the end of output", line, err)
			}
			return
		}
		want, _ := json.Marshal(scriptLine{Done: done})
		if got := strings.TrimSuffix(line, "\n"); got != string(want) || err != nil {
			p.t.Errorf("got %q, %v; want %s", got, err, want)
		}
	})
}

// serveHere runs Serve in this process over pipes.
func serveHere(t *testing.T, ctx context.Context, c *Config, srv jsonrpc.Server) (*peer, <-chan error) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFiles([]*os.File{inR, inW, outR, outW}) })
	c.Stdin, c.Stdout = inR, outW
	ended := make(chan error, 1)
	go func() {
		err := c.Serve(ctx, srv)
		outW.Close()
		ended <- err
	}()
	return newPeer(t, inW, outR), ended
}

func TestServeEndOfInput(t *testing.T) {
	p, ended := serveHere(t, t.Context(), &Config{KeepSignals: true}, &scriptServer{})
	p.send("", "hello")
	p.want("hello")
	p.send("hold", "")
	p.want("holding")
	p.w.Close()
	p.want("drained")
	p.want("")
	if err := <-ended; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestServeContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	p, ended := serveHere(t, ctx, new(Config), &scriptServer{})
	p.send("hold", "")
	p.want("holding")
	why := errors.New("enough")
	cancel(why)
	p.want("drained")
	p.want("")
	if err := <-ended; err != why {
		t.Errorf("Serve returned %v, want the context's cause", err)
	}
}

func TestServeError(t *testing.T) {
	p, ended := serveHere(t, t.Context(), new(Config), &scriptServer{})
	p.send("fail", "it broke")
	p.want("")
	if err := <-ended; err == nil || err.Error() != "it broke" {
		t.Errorf("Serve returned %v, want the server's error", err)
	}
}

func TestServeClientStopsReading(t *testing.T) {
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	defer closeFiles([]*os.File{inR, inW, outW})
	srv := &scriptServer{do: map[string]func(*scriptServer, string) string{
		"wait": func(s *scriptServer, _ string) string {
			outR.Close()
			return "nobody reads this"
		},
		"cancelled": func(s *scriptServer, _ string) string {
			<-s.ctx.Done()
			return ""
		},
	}}
	p := newPeer(t, inW, outR)
	p.send("wait", "")
	p.send("cancelled", "")
	wait.Within(t, "Serve", func() {
		if err := (&Config{Stdin: inR, Stdout: outW}).Serve(t.Context(), srv); err != nil {
			t.Errorf("Serve returned %v, want nil: the client is gone", err)
		}
	})
}

func TestServeAbandonsStuckServer(t *testing.T) {
	release := make(chan struct{})
	srv := serverFunc(func(context.Context, jsonrpc.Framer) error {
		<-release
		return nil
	})
	var log strings.Builder
	h := NewLogHandler(&log, nil)
	ctx, cancel := context.WithCancel(context.Background())
	_, ended := serveHere(t, ctx, &Config{StopTimeout: time.Millisecond, Logger: slog.New(h)}, srv)
	cancel()
	wait.Within(t, "Serve", func() {
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not stop within 1ms") {
			t.Errorf("Serve returned %v", err)
		}
	})
	close(release)
	h.Close()
	wantContains(t, "the log", log.String(), "the server did not stop in time: its goroutines leak")
}

type serverFunc func(context.Context, jsonrpc.Framer) error

func (f serverFunc) Serve(ctx context.Context, fr jsonrpc.Framer) error { return f(ctx, fr) }
