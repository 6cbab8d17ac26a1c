//go:build unix

package stdio

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpwire/internal/rpc"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
)

func init() {
	helpers["serve"] = helperServe
	helpers["cat"] = func() { io.Copy(os.Stdout, os.Stdin) }
}

// helperServe runs a scriptServer on the process's descriptors. Its arguments are switches.
func helperServe() {
	srv := &scriptServer{do: map[string]func(*scriptServer, string) string{
		"println": func(_ *scriptServer, text string) string {
			fmt.Println(text)
			return "printed"
		},
		"write 1": func(_ *scriptServer, text string) string {
			n, err := syscall.Write(1, []byte(text))
			return fmt.Sprint(n, " ", err)
		},
		"run": func(_ *scriptServer, text string) string {
			cmd := exec.Command("/bin/sh", "-c", text)
			cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
			return fmt.Sprint(cmd.Run())
		},
		"read stdin": func(*scriptServer, string) string {
			b, err := io.ReadAll(os.Stdin)
			return fmt.Sprintf("%q %v", b, err)
		},
		"nested": func(*scriptServer, string) string { return Serve(context.Background(), nil).Error() },
		"signals": func(*scriptServer, string) string {
			syscall.Kill(os.Getpid(), syscall.SIGPIPE)
			return "alive"
		},
		"stderr": func(_ *scriptServer, text string) string {
			fmt.Fprintln(os.Stderr, text)
			return "written"
		},
	}}
	config := Config{Framing: jsonrpc.FramingLine}
	var server jsonrpc.Server = srv
	after := func() {}
	for _, arg := range os.Args[1:] {
		switch arg {
		case "stubborn":
			srv.stubborn = true
		case "impatient":
			config.StopTimeout = time.Millisecond
		case "json":
			config.Logger = slog.New(NewLogHandler(os.Stderr, &LogOptions{JSON: true}))
		case "loop":
			config.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
		case "conn":
			server = serverFunc(func(ctx context.Context, f jsonrpc.Framer) error { return rpc.NewConn(f, nil).Run(ctx) })
		case "drain":
			server = serverFunc(func(ctx context.Context, f jsonrpc.Framer) error {
				wait := rpc.HandlerFunc(func(ctx context.Context, _ *rpc.Request) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				o := &rpc.Options{Handler: wait, MaxInFlight: 1, DrainTimeout: time.Millisecond}
				return rpc.NewConn(f, o).Run(ctx)
			})
		case "afterwards":
			after = func() {
				b, _ := io.ReadAll(os.Stdin)
				fmt.Printf("afterwards: %s", b)
			}
		}
	}
	err := config.Serve(context.Background(), server)
	after()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Serve:", err)
		os.Exit(1)
	}
}

// A servedChild is a helperServe with its stderr.
type servedChild struct {
	*peer
	p *Process
}

func serveChild(t *testing.T, args ...string) *servedChild {
	t.Helper()
	p, err := helperCommand(t, "serve", args...).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &servedChild{newPeer(t, writeEnd{p}, p), p}
}

type writeEnd struct{ *Process }

func (w writeEnd) Close() error { return w.CloseWrite() }

// end closes the input and checks for exit status 0. It returns the text on stderr.
func (s *servedChild) end() string {
	s.t.Helper()
	s.w.Close()
	s.want("")
	wait.Within(s.t, "exit", func() {
		if err := s.p.Wait(); err != nil {
			s.t.Errorf("%v", err)
		}
	})
	return s.p.Stderr()
}

// Spec: S64
func TestServeGuardsStdout(t *testing.T) {
	t.Parallel()
	s := serveChild(t)
	warned := func(parts ...string) {
		t.Helper()
		wait.Until(t, "warning", func() bool { return strings.Contains(s.p.Stderr(), parts[0]) })
		wantContains(t, "stderr", s.p.Stderr(), parts...)
	}
	s.send("println", "a stray line")
	s.want("printed")
	warned(`bytes="a stray line\n" count=13`, "Warning: "+strayMessage, "print to stderr")
	s.send("write 1", "bytes \x1b[1m from C")
	s.want("17 <nil>")
	warned(`bytes="bytes \x1b[1m from C" count=17`)
	s.send("run", "echo from a child")
	s.want("<nil>")
	warned("from a child")
	s.send("println", "the last one")
	s.want("printed")
	wantContains(t, "stderr", s.end(), "the last one")
}

func TestServeGuardsStdin(t *testing.T) {
	t.Parallel()
	s := serveChild(t)
	s.send("run", "cat") // cat would never return, or read the next line
	s.want("<nil>")
	s.send("read stdin", "")
	s.want(`"" <nil>`)
	s.send("nested", "")
	s.want("stdio: " + errInUse.Error())
	if stderr := s.end(); stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
}

func TestServeBoundsStrayOutput(t *testing.T) {
	t.Parallel()
	s := serveChild(t)
	s.send("run", "head -c 8000000 /dev/zero | tr '\\0' 'x'")
	s.want("<nil>")
	stderr := s.end()
	wantContains(t, "stderr", stderr, "more bytes of stray output on stdout are not shown")
	if len(stderr) > 40_000 {
		t.Errorf("%d bytes on stderr", len(stderr))
	}
}

// Spec: S64
func TestServeLoggerOnStdout(t *testing.T) {
	t.Parallel()
	s := serveChild(t, "loop")
	s.send("println", "stray")
	s.want("printed")
	s.send("", "x")
	s.want("x")
	wantContains(t, "stderr", s.end(), "the logger writes to stdout")
}

func TestServeRestores(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"first", "second"} {
		s := serveChild(t, "afterwards")
		s.send("", f)
		s.want(f)
		s.send("fail", "x")
		s.w.Write([]byte("rest"))
		s.w.Close()
		wait.Within(t, "output", func() {
			if got, _ := s.r.ReadString(0); !strings.HasPrefix(got, "afterwards: ") {
				t.Errorf("got %q", got)
			}
		})
		s.p.Wait()
	}
}

func TestServeSignal(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := serveChild(t)
		s.send("hold", "")
		s.want("holding")
		syscall.Kill(s.p.Pid(), sig) // with an open stdin
		s.want("drained")
		s.want("")
		wait.Within(t, "exit", func() { s.p.Wait() })
		if got := s.p.exit.Code; got != 0 {
			t.Errorf("%v: status %d: %v", sig, got, s.p.exit)
		}
	}
}

// TestServeSignalWhileIdle sends the signal to a server that waits in a read that nothing else
// would interrupt.
func TestServeSignalWhileIdle(t *testing.T) {
	t.Parallel()
	for transport, open := range childTransports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.send("", "x")
			s.want("x")
			syscall.Kill(s.p.Pid(), syscall.SIGTERM)
			s.want("")
			wait.Within(t, "exit", func() { s.p.Wait() })
			if got := s.p.exit.Code; got != 0 {
				t.Errorf("status %d: %v", got, s.p.exit)
			}
		})
		// A Conn without requests in flight reads with ReadIdle.
		t.Run(transport+"/conn", func(t *testing.T) {
			t.Parallel()
			s := open(t, "conn")
			for range 3 {
				io.WriteString(s.w, `{"jsonrpc":"2.0","id":1,"method":"nothing"}`+"\n")
				wait.Within(t, "reply", func() {
					if line, err := s.r.ReadString('\n'); err != nil || !strings.Contains(line, "-32601") {
						t.Errorf("got %q, %v", line, err)
					}
				})
			}
			begin := time.Now()
			syscall.Kill(s.p.Pid(), syscall.SIGTERM)
			s.want("")
			wait.Within(t, "exit", func() { s.p.Wait() })
			if got := s.p.exit.Code; got != 0 {
				t.Errorf("status %d: %v", got, s.p.exit)
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

// childTransports are the kinds of files that a server is started with.
var childTransports = map[string]func(t *testing.T, args ...string) *servedChild{
	"pipe": serveChild,
}

func TestServeSecondSignal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		signal syscall.Signal
		status int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		s := serveChild(t, "stubborn")
		s.send("", "x")
		s.want("x")
		syscall.Kill(s.p.Pid(), syscall.SIGTERM)
		s.want("stubborn")
		syscall.Kill(s.p.Pid(), tt.signal)
		wait.Within(t, "exit", func() { s.p.Wait() })
		if got := s.p.exit; got.Code != tt.status {
			t.Errorf("%v: status %d, want %d: %v", tt.signal, got.Code, tt.status, got)
		}
	}
}

func TestServeSignalTimeout(t *testing.T) {
	t.Parallel()
	s := serveChild(t, "stubborn", "impatient")
	s.send("", "x")
	s.want("x")
	syscall.Kill(s.p.Pid(), syscall.SIGTERM)
	wait.Within(t, "exit", func() { s.p.Wait() })
	if got := s.p.exit.Code; got != 1 {
		t.Errorf("status %d: %v", got, s.p.exit)
	}
	wantContains(t, "stderr", s.p.Stderr(), "Error: the server did not stop in time")
}

// TestServeDrainTimeout shows that each accepted request that has not finished in time gets an
// error, and that the exit status reports it, after a signal and after the end of input.
func TestServeDrainTimeout(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"signal", "end of input"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := serveChild(t, "drain")
			ids := []string{"1", "2", "3"}
			for _, id := range ids {
				io.WriteString(s.w, `{"jsonrpc":"2.0","id":`+id+`,"method":"m"}`+"\n")
			}
			// Its response shows that the requests above have been read.
			io.WriteString(s.w, "{}\n")
			read := func() string {
				line, err := s.r.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return line
			}
			wantContains(t, "answer", read(), "-32600")
			if how == "signal" {
				syscall.Kill(s.p.Pid(), syscall.SIGTERM)
			} else {
				s.w.Close()
			}
			var got []string
			for range ids {
				got = append(got, read())
			}
			slices.Sort(got)
			for i, id := range ids {
				want := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"shutting down: the request did not finish within 1ms"}}` + "\n"
				if got[i] != want {
					t.Errorf("got %s, want %s", got[i], want)
				}
			}
			wait.Within(t, "exit", func() { s.p.Wait() })
			if got := s.p.exit.Code; got != 1 {
				t.Errorf("status %d: %v", got, s.p.exit)
			}
			wantContains(t, "stderr", s.p.Stderr(), "Serve: 3 requests were aborted 1ms after the end of input")
		})
	}
}

func TestServeSurvivesSIGPIPE(t *testing.T) {
	t.Parallel()
	c := helperCommand(t, "serve")
	cmd := exec.Command(c.Path)
	// else a program built with -cover writes to stderr at its exit
	cmd.Env = append(c.Env, "GOCOVERDIR="+t.TempDir())
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := newPeer(t, in, out)
	s.send("signals", "")
	s.want("alive")
	stderr.Close()
	s.send("stderr", "nobody reads this, and Go would raise SIGPIPE")
	s.want("written")
	s.send("println", "a warning that nobody reads")
	s.want("printed")
	// The same for the protocol's stdout: the server ends without a message.
	out.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	wait.Until(t, "exit", func() bool {
		// A process that another test is starting may hold out open for a moment, so one reply is
		// not enough.
		io.WriteString(in, "{}\n")
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%v, want status 0", err)
			}
			return true
		default:
			return false
		}
	})
}

func TestServeStderrUnread(t *testing.T) {
	t.Parallel()
	c := helperCommand(t, "serve", "json")
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = c.Env
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if _, err := cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := newPeer(t, in, out)
	for range 30 {
		s.send("run", "head -c 65536 /dev/zero | tr '\\0' '\\001'") // each byte is escaped to six
		s.want("<nil>")
	}
	in.Close()
	s.want("")
	wait.Within(t, "exit", func() {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}
