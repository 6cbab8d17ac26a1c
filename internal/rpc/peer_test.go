package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"

	"github.com/google/go-cmp/cmp"
)

// A runMode is one of the modes in which a connection may run, all of which must behave the same.
type runMode struct {
	name    string
	cost    func() *CostEstimate // of handlers that are not for now
	threads bool                 // Options.Goroutines
}

// knownFast is the cost estimate of handlers that the leader runs itself.
func knownFast() *CostEstimate {
	p := new(CostEstimate)
	p.mean.Store(1)
	return p
}

func knowsNothing() *CostEstimate { return new(CostEstimate) }

var runModes = []runMode{
	{"inline", knownFast, false},
	{"learning", knowsNothing, false},
	{"goroutines", knownFast, true},
}

// wires are the ways in which messages get to the connection and back.
var wires = []string{"line", "header", "foreign"}

// A method is how a test peer answers one. The result is JSON text.
type method func(ctx context.Context, r *Request) (string, error)

type methods map[string]method

// A mux is the Handler of the tests. Methods whose name ends in "!" are Immediate.
type mux struct {
	way     runMode
	methods methods
}

func (h *mux) Prepare(r *Request) *CostEstimate {
	name := string(r.Method)
	if name == "panic in Prepare" {
		panic("prepared for nothing")
	}
	m := h.methods[name]
	r.Route = m
	if strings.HasSuffix(name, "!") || m == nil {
		return Immediate
	}
	return h.way.cost()
}

func (h *mux) Handle(r *Request, dst []byte) ([]byte, error) {
	m := r.Route.(method)
	if m == nil {
		return nil, jsonrpc.MethodNotFound(string(r.Method))
	}
	ctx := new(Context)
	r.InitContext(ctx, TraceOf(r.Params))
	result, err := m(ctx, r)
	if err != nil {
		return nil, err // as is natural in Go
	}
	return append(dst, result...), nil
}

// A peer is the other end of a connection under test, played by the test itself. All of it is for
// use in a synctest bubble.
type peer struct {
	t    *testing.T
	wire string
	conn *Conn
	link pipes.End // the peer's end
	log  *logBuffer
	run  chan error
	left []byte // received, but not a whole message yet
	gate chan struct{}

	methods methods // may be added to before they are used
}

// everyMode runs a test in all ways over all wires.
func everyMode(t *testing.T, test func(t *testing.T, p *peer), o Options, m methods) {
	for _, way := range runModes {
		for _, wire := range wires {
			t.Run(way.name+", "+wire, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newPeer(t, way, wire, o, m).play(test) })
			})
		}
	}
}

// newPeer makes a connection and its peer. Methods that every test has are added: "echo" returns
// its params, "ping!" {}, "wait" waits until the gate is opened or the context ends, "deaf" for the
// gate alone, and "slow" for a second.
func newPeer(t *testing.T, way runMode, wire string, o Options, m methods) *peer {
	local, remote := pipes.Memory(0)
	p := &peer{t: t, wire: wire, link: remote, log: new(logBuffer), run: make(chan error, 1), gate: make(chan struct{})}
	h := &mux{way, methods{
		"echo":  func(ctx context.Context, r *Request) (string, error) { return string(r.Params), nil },
		"ping!": func(context.Context, *Request) (string, error) { return "{}", nil },
		"slow": func(ctx context.Context, r *Request) (string, error) {
			elapse(time.Second)
			return `"slow"`, nil
		},
		"deaf": func(context.Context, *Request) (string, error) {
			<-p.gate
			return `"deaf"`, nil
		},
		"wait": func(ctx context.Context, r *Request) (string, error) {
			select {
			case <-p.gate:
				return `"waited"`, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		},
	}}
	for name, f := range m {
		h.methods[name] = f
	}
	p.methods = h.methods
	o.Handler, o.Goroutines = h, way.threads
	o.Logger = slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f := jsonrpc.NewFramer(local, nil)
	if wire == "foreign" {
		f = struct{ jsonrpc.Framer }{f}
	}
	p.conn = NewConn(f, &o)
	return p
}

// play runs the connection and the test, and sees that all comes to an end.
func (p *peer) play(test func(t *testing.T, p *peer)) {
	p.start(context.Background())
	defer func() {
		p.open()
		p.conn.Close()
		p.link.Out.Close() // a test that failed may still be sending
		synctest.Wait()
		p.checkCounts()
		if p.t.Failed() {
			p.t.Logf("log:\n%s", p.log)
		}
	}()
	test(p.t, p)
}

func (p *peer) start(ctx context.Context) { go func() { p.run <- p.conn.Run(ctx) }() }

// open lets the methods that wait at the gate go on.
func (p *peer) open() {
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// checkCounts checks that nothing is left in the connection's tables once all its goroutines have
// come to an end.
func (p *peer) checkCounts() {
	p.t.Helper()
	t := &p.conn.inFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.running.Load(); n != 0 {
		p.t.Errorf("%d handlers are counted as running after the end", n)
	}
	if n := t.count.Load(); int(n) != t.requests.len() || n != 0 {
		p.t.Errorf("%d requests are listed after the end, %d counted", t.requests.len(), n)
	}
	if len(t.queue) != 0 || t.queuedBytes != 0 || len(t.notifications) != 0 || t.notifying || t.activeNotification != nil || t.longRunning != 0 || t.runningBytes != 0 {
		p.t.Errorf("left: %d requests, %d notifications, %d bytes; %d standing, %d bytes running", len(t.queue), len(t.notifications), t.queuedBytes, t.longRunning, t.runningBytes)
	}
	p.conn.calls.mu.Lock()
	defer p.conn.calls.mu.Unlock()
	if n := p.conn.calls.count.Load(); n != 0 || len(p.conn.calls.pending) != 0 {
		p.t.Errorf("%d calls are open after the end, %d counted", len(p.conn.calls.pending), n)
	}
}

// framed returns a message as it goes to the connection.
func (p *peer) framed(msg string) string {
	if p.wire == "header" {
		return block(msg)
	}
	return msg + "\n"
}

// send sends messages, in one piece.
func (p *peer) send(msgs ...string) {
	var b strings.Builder
	for _, m := range msgs {
		b.WriteString(p.framed(m))
	}
	p.link.Write([]byte(b.String()))
}

func request(id any, method string, params ...string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q%s}`, id, method, withParams(params))
}

func notification(method string, params ...string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q%s}`, method, withParams(params))
}

func withParams(params []string) string {
	if len(params) == 0 {
		return ""
	}
	return `,"params":` + params[0]
}

func result(id any, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"result":%s}`, id, value)
}

func cancelOf(id any) string { return notification("$/cancelRequest", fmt.Sprintf(`{"id":%v}`, id)) }

// failure is an error response. data may be empty.
func failure(id any, code jsonrpc.Code, message, data string) string {
	if data != "" {
		data = `,"data":` + data
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"error":{"code":%d,"message":%q%s}}`, id, code, message, data)
}

// parseFailure is the answer to what is not JSON.
func parseFailure(frame string) string {
	var m jsonrpc.Message
	return string(jsonrpc.AppendError(nil, nil, jsonrpc.Parse([]byte(frame), &m, 0).(*jsonrpc.Error), true))
}

func block(msg string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(msg), msg) }

// skipped is what a frame above the limit is answered with.
func skipped(limit int) string {
	return fmt.Sprintf("frame of more than %d bytes was skipped: send less, or raise the receiver's frame limit", limit)
}

// hangUp ends the connection's input.
func (p *peer) hangUp() { p.link.Out.End(io.EOF) }

// pause lets a quarter of a second go by and everything happen that does within it, take-overs
// included.
func (p *peer) pause() {
	elapse(250 * time.Millisecond)
	synctest.Wait()
}

// received returns the messages that have come until now.
func (p *peer) received() []string {
	synctest.Wait()
	p.left = append(p.left, p.link.In.Take()...)
	var msgs []string
	for {
		msg, rest, ok := p.cut(p.left)
		if !ok {
			return msgs
		}
		msgs = append(msgs, msg)
		p.left = rest
	}
}

func (p *peer) cut(b []byte) (msg string, rest []byte, ok bool) {
	if p.wire != "header" {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		return string(line), rest, ok
	}
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return "", nil, false
	}
	n, err := strconv.Atoi(strings.TrimPrefix(string(head), "Content-Length: "))
	if err != nil {
		p.t.Fatalf("header %q", head)
	}
	if len(body) < n {
		return "", nil, false
	}
	return string(body[:n]), body[n:], true
}

// want checks that exactly these messages have come since the last look.
func (p *peer) want(msgs ...string) {
	p.t.Helper()
	if diff := cmp.Diff(msgs, p.received()); diff != "" {
		p.t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// wantAnyOrder is want for messages that may overtake each other.
func (p *peer) wantAnyOrder(msgs ...string) {
	p.t.Helper()
	got := p.received()
	slices.Sort(got)
	slices.Sort(msgs)
	if diff := cmp.Diff(msgs, got); diff != "" {
		p.t.Errorf("messages in any order (-want +got):\n%s", diff)
	}
}

// ended waits for Run to return and returns what it did.
func (p *peer) ended() error {
	err := <-p.run
	p.run <- err
	return err
}

// wantEnd waits for Run to return and checks what it did.
func (p *peer) wantEnd(want error) {
	p.t.Helper()
	if err := p.ended(); !errors.Is(err, want) {
		p.t.Errorf("Run returned %v, want %v", err, want)
	}
}

// logged checks that the log has a text in it.
func (p *peer) logged(text string) {
	p.t.Helper()
	if !strings.Contains(p.log.String(), text) {
		p.t.Errorf("the log has no %q in it", text)
	}
}

// A logBuffer is a log that many goroutines write.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// elapse lets the clock of the test's synctest bubble go on by d: nothing really waits.
func elapse(d time.Duration) { <-time.After(d) }
