package probe

import (
	"bufio"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/check"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// newServer returns a server that follows all rules.
func newServer(t testing.TB) *server.Server {
	t.Helper()
	s := server.MustNew("fixture", "1", nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(server.AddTool(s, "echo", "Say it again.", func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		t.Error("a tool that exists was called")
		return in.Text, nil
	}))
	must(server.AddPrompt(s, mcp.Prompt{Name: "greet"}, func(_ context.Context, in struct {
		Style string `json:"style,omitempty" schema:"enum=plain|grand"`
	}) (string, error) {
		t.Error("a prompt that exists was asked for")
		return in.Style, nil
	}))
	must(server.AddResource(s, mcp.Resource{URI: "test://data", Name: "data"}, func(context.Context) (string, error) {
		t.Error("a resource that exists was read")
		return "data", nil
	}))
	return s
}

// A fault changes how a server handles a line. It returns lines for the client, and whether the
// server must not handle the line; die ends the server.
type fault func(m *jsonrpc.Message, line string) (reply []string, taken bool)

const die = "\x00die"

// A fakeProcess is an in-memory server with a fault.
type fakeProcess struct {
	fromServer *io.PipeReader // Read reads from it
	out        *io.PipeWriter
	toServer   *io.PipeWriter
	mu         sync.Mutex
	done       chan struct{}
	once       sync.Once
	status     int
	deaf       bool // ignores the end of its input
	cancel     context.CancelFunc
	wg         sync.WaitGroup
}

// startFake starts one.
func startFake(s *server.Server, f flaw) *fakeProcess {
	ctx, cancel := context.WithCancel(context.Background())
	p := &fakeProcess{done: make(chan struct{}), deaf: f.deaf, cancel: cancel}
	p.fromServer, p.out = io.Pipe()
	clientLines, toServer := io.Pipe()
	p.toServer = toServer
	serverIn, forward := io.Pipe()
	serverLines, serverOut := io.Pipe()
	p.wg.Go(func() {
		_ = s.Serve(ctx, jsonrpc.NewFramer(struct {
			io.Reader
			io.WriteCloser
		}{serverIn, serverOut}, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}))
		serverIn.Close()
		serverOut.Close()
	})
	p.wg.Go(func() { p.copyIn(clientLines, forward, f) })
	p.wg.Go(func() {
		for in := bufio.NewReader(serverLines); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			if f.out != nil {
				line = f.out(line)
			}
			p.write(line)
		}
		p.end(0)
	})
	return p
}

// copyIn passes lines of the client to the server, except those that the fault handles.
func (p *fakeProcess) copyIn(lines io.Reader, forward *io.PipeWriter, f flaw) {
	slow := f.start
	defer func() {
		if !p.deaf {
			forward.Close()
		}
	}()
	for in := bufio.NewReader(lines); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		// Starts it only now: of two writers to an io.Pipe one waits for a mutex, and a bubble's
		// time does not advance during such a wait.
		time.Sleep(slow)
		slow = 0
		var m jsonrpc.Message
		_ = jsonrpc.Parse([]byte(strings.TrimSpace(line)), &m, 0)
		if f.in != nil {
			reply, taken := f.in(&m, strings.TrimRight(line, "\r\n"))
			for _, r := range reply {
				if r == die {
					p.end(1)
					return
				}
				p.write(r + "\n")
			}
			if taken {
				continue
			}
		}
		if _, err := io.WriteString(forward, line); err != nil {
			return
		}
	}
}

func (p *fakeProcess) write(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.out, line)
}

func (p *fakeProcess) end(status int) {
	p.once.Do(func() {
		p.status = status
		p.cancel()
		p.out.CloseWithError(io.EOF)
		p.toServer.CloseWithError(io.ErrClosedPipe)
		close(p.done)
	})
}

func (p *fakeProcess) Read(b []byte) (int, error)  { return p.fromServer.Read(b) }
func (p *fakeProcess) Write(b []byte) (int, error) { return p.toServer.Write(b) }
func (p *fakeProcess) CloseWrite() error           { return p.toServer.Close() }
func (p *fakeProcess) Done() <-chan struct{}       { return p.done }
func (p *fakeProcess) Pid() int                    { return 0 }

func (p *fakeProcess) Wait() error {
	<-p.done
	if p.status != 0 {
		return &stdio.ExitError{Name: "fake", Code: p.status}
	}
	return nil
}

func (p *fakeProcess) Close() error {
	p.toServer.Close()
	if p.deaf {
		p.end(0)
	}
	p.fromServer.Close()
	p.cancel()
	p.wg.Wait()
	p.end(p.status)
	return p.Wait()
}

// A flaw is a fault of a fixture.
type flaw struct {
	in   fault
	out  func(string) string
	deaf bool
	// start is how long a process does nothing after its first line. It needs a synctest bubble.
	start time.Duration
}

// probeFake probes an in-memory server.
func probeFake(t *testing.T, f flaw, opts *Options) (*Report, error) {
	t.Helper()
	r := fakeRun(t, f, opts)
	err := r.probeAll(t.Context())
	return r.report(), err
}

// brief lists the violated rules, each once.
func brief(list []check.Finding) []string {
	ids := []string{}
	for _, f := range list {
		ids = append(ids, f.Rule.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func verbose(list []check.Finding) string {
	var b strings.Builder
	for _, f := range list {
		b.WriteString("\n\t" + f.Rule.ID + " " + f.Revision.String() + ": " + f.Message)
	}
	return b.String()
}

// result returns a reply with a result, for requests with an id.
func result(m *jsonrpc.Message, members string) []string {
	if len(m.ID) == 0 {
		return nil
	}
	if metaText(m, mcp.MetaProtocolVersion) != "" {
		members = strings.TrimSuffix(`"resultType":"complete",`+members, ",")
	}
	return []string{`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{` + members + `}}`}
}

func failure(m *jsonrpc.Message, code string) []string {
	return []string{`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":` + code + `,"message":"m"}}`}
}

func valid(line string) bool { return jsonwire.Valid([]byte(line), 0) == nil }

// metaText returns a string in the metadata of a message.
func metaText(m *jsonrpc.Message, key string) string {
	return jsonwire.Text(jsonwire.Lookup(m.Params, "_meta", key))
}
