package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/soak"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// A mode is a way to run handlers. Warm means that the server knows that its tools are fast, so it
// runs them on the reading goroutine. With middleware, all messages pass a chain that changes
// nothing.
type mode struct {
	name                         string
	goroutines, warm, middleware bool
}

var modes = []mode{{name: "adaptive"}, {name: "warm", warm: true}, {name: "goroutines", goroutines: true}, {name: "middleware", middleware: true}}

const testTimeout = 20 * time.Second

// TestTranscripts runs each script over every transport, in both framings and all modes. Without
// MCPWIRE_SOAK, only net.Pipe has all modes.
//
// Spec: testdata/*.txtar S63 S100
func TestTranscripts(t *testing.T) {
	all := scripts(t)
	if *update {
		for _, s := range all {
			updateScript(t, s)
		}
		return
	}
	for _, transport := range transports {
		for _, framing := range []string{"line", "header"} {
			for i, m := range modes {
				if i > 0 && !transport.bubble && !soak.Enabled() {
					continue
				}
				t.Run(transport.name+"/"+framing+"/"+m.name, func(t *testing.T) {
					for _, s := range all {
						if s.framing == "" || s.framing == framing {
							runScripts(t, s, func(t *testing.T, revision string) *scriptRun {
								return &scriptRun{script: s, revision: revision, framing: framing, mode: m, open: transport.open, bubble: transport.bubble}
							})
						}
					}
				})
			}
		}
	}
}

// runScripts runs a script in each of its revisions.
func runScripts(t *testing.T, s *script, newScript func(t *testing.T, revision string) *scriptRun) {
	file := strings.TrimSuffix(filepath.Base(s.file), ".txtar")
	for _, revision := range s.revisions {
		t.Run(strings.TrimSuffix(file+"/"+s.name+"/"+revision, "/"), func(t *testing.T) {
			p := newScript(t, revision)
			if !p.bubble {
				p.run(t)
				return
			}
			synctest.Test(t, p.run)
		})
	}
}

func updateScript(t *testing.T, s *script) {
	framing := s.framing
	if framing == "" {
		framing = "line"
	}
	p := &scriptRun{script: s, revision: s.revisions[0], framing: framing, mode: modes[0], open: openNetPipe, bubble: true}
	synctest.Test(t, p.run)
	if err := s.update(p.got); err != nil {
		t.Fatal(err)
	}
}

// A scriptRun is one run of a script.
type scriptRun struct {
	*script
	revision, framing string
	mode              mode
	open              func(t *testing.T) *wire
	bubble            bool
	observe           func(sent bool, message string) // may be nil

	wire   *wire
	vars   vars
	frames chan string
	ended  chan error
	closed bool
	got    [][]string
}

func (p *scriptRun) run(t *testing.T) {
	p.vars = maps.Clone(standing)
	if p.revision != "" {
		p.vars["$REVISION"] = p.revision
	}
	p.start(t)
	if p.handshake != "" {
		p.doHandshake(t)
	}
	for i := range p.steps {
		p.step(t, &p.steps[i])
	}
	p.finish(t)
}

// start starts the server, and a goroutine that reads its output.
func (p *scriptRun) start(t *testing.T) {
	opts := p.options
	opts.Goroutines = p.mode.goroutines
	if r, ok := mcp.ParseRevision(p.revision); ok && p.speaksOne {
		opts.Revisions = []mcp.Revision{r}
	}
	srv := newWireServer(t, &opts, p.tools)
	if p.primitives {
		addPrimitives(t, srv)
	}
	if p.asking {
		addAsking(t, srv)
	}
	if p.mode.middleware {
		srv.Use(passOn, passOn)
	}
	if p.mode.warm {
		warm(t, srv)
		if p.primitives {
			warmPrimitives(t, srv)
		}
	}
	p.wire = p.open(t)
	p.frames, p.ended = make(chan string, 1000), make(chan error, 1)
	go func() { p.ended <- srv.Serve(context.Background(), jsonrpc.NewFramer(p.wire.server, nil)) }()
	r := bufio.NewReader(p.wire.r)
	go func() {
		defer close(p.frames)
		for {
			text, err := readFrame(r, p.framing)
			if err != nil {
				if err != io.EOF {
					t.Errorf("read: %v", err)
				}
				return
			}
			p.frames <- text
		}
	}()
}

// passOn is a middleware that changes nothing.
func passOn(next middleware.Handler) middleware.Handler {
	return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) { return next(ctx, m) }
}

func (p *scriptRun) doHandshake(t *testing.T) {
	p.send(t, frame{text: `{"jsonrpc":"2.0","id":"shake","method":"initialize","params":{"protocolVersion":"` + p.handshake + `","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}`})
	if got := p.receive(t, 1); len(got) != 1 || !strings.Contains(got[0], p.vars.expand(`"protocolVersion":"`+p.handshake+`"`)) {
		t.Fatalf("handshake: got %q", got)
	}
	p.send(t, frame{text: `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
}

// send writes the frames in one piece.
func (p *scriptRun) send(t *testing.T, frames ...frame) {
	t.Helper()
	var piece strings.Builder
	for _, f := range frames {
		if f.eof {
			p.closed = true
			break
		}
		text := p.vars.expand(f.text)
		if !f.raw {
			if p.observe != nil {
				p.observe(true, text)
			}
			text = frameText(p.framing, text)
		}
		piece.WriteString(text)
	}
	if piece.Len() > 0 {
		if _, err := io.WriteString(p.wire.w, piece.String()); err != nil {
			t.Errorf("send: %v", err)
		}
	}
	if p.closed {
		p.wire.w.Close()
	}
}

func (p *scriptRun) step(t *testing.T, s *step) {
	p.send(t, s.send...)
	got := p.receive(t, len(s.want))
	for i, text := range got {
		got[i] = p.vars.fold(text)
	}
	p.got = append(p.got, got)
	if *update {
		return
	}
	want := s.want
	if p.unordered {
		got, want = sorted(got), sorted(want)
	}
	if p.mode.middleware { // middleware delays responses that are otherwise immediate
		got, want = sorted(members(t, got)), sorted(members(t, want))
	}
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Fatalf("answers to line %d (-want +got):\n%s", s.at+1, diff)
	}
}

// members returns the messages, with each message of a batch on its own.
func members(t *testing.T, messages []string) []string {
	t.Helper()
	var all []string
	for _, m := range messages {
		var batch []json.RawMessage
		if !strings.HasPrefix(m, "[") {
			all = append(all, m)
			continue
		}
		if err := json.Unmarshal([]byte(m), &batch); err != nil {
			t.Fatalf("%v: %s", err, m)
		}
		for _, one := range batch {
			all = append(all, string(one))
		}
	}
	return all
}

// receive returns the messages so far. In a bubble it waits until the server is idle, else for n
// messages.
func (p *scriptRun) receive(t *testing.T, n int) []string {
	var got []string
	take := func(text string) {
		if p.observe != nil {
			p.observe(false, text)
		}
		got = append(got, text)
	}
	if !p.bubble {
		for len(got) < n {
			select {
			case text, ok := <-p.frames:
				if !ok {
					t.Fatalf("the server disconnected after %d of %d responses: %q", len(got), n, got)
				}
				take(text)
			case <-time.After(testTimeout):
				t.Fatalf("%d of %d answers came: %q", len(got), n, got)
			}
		}
		return got
	}
	for waited := false; ; {
		synctest.Wait()
		select {
		case text, ok := <-p.frames:
			if !ok {
				return got
			}
			take(text)
		default:
			if len(got) >= n || waited {
				return got
			}
			waited = true
			<-time.After(time.Second) // another goroutine may first need to take the lead
		}
	}
}

// finish ends the input, and fails the test if unexpected messages arrive.
func (p *scriptRun) finish(t *testing.T) {
	if !p.closed {
		p.send(t, frame{eof: true})
	}
	timeout := time.After(testTimeout)
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-timeout:
		t.Error("Serve does not return")
	}
	for text := range p.frames {
		if !*update {
			t.Errorf("unexpected: %s", text)
		}
	}
	p.wire.close()
}

// warm runs tools until the server knows that they are fast.
func warm(t *testing.T, srv *server.Server) {
	t.Helper()
	f := &feed{}
	for _, call := range warmCalls {
		for range 10 {
			f.frames = append(f.frames, `{"jsonrpc":"2.0","id":`+jsonrpc.IntID(int64(len(f.frames))).String()+`,"method":"tools/call","params":{"_meta":{`+modernMeta+`},`+call+`}}`)
		}
	}
	if err := srv.Serve(context.Background(), f); err != nil {
		t.Fatal(err)
	}
}

// A feed is a Framer that returns frames, then io.EOF.
type feed struct{ frames []string }

func (f *feed) ReadFrame() ([]byte, error) {
	if len(f.frames) == 0 {
		return nil, io.EOF
	}
	frame := f.frames[0]
	f.frames = f.frames[1:]
	return []byte(frame), nil
}

func (f *feed) WriteFrame([]byte) error { return nil }
func (f *feed) Close() error            { return nil }
