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
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/buffer"
	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"

	"github.com/google/go-cmp/cmp"
)

// A runMode is a way to run handlers. The connection must behave the same in every mode.
type runMode struct {
	name    string
	cost    func() *CostEstimate // cost estimate of handlers that are not Immediate
	threads bool                 // Options.Goroutines
}

// knownFast returns a cost estimate that lets the leader run the handler.
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

// wires are the ways to move messages between connection and peer: by either framing, or by a
// Framer of another package.
var wires = []string{"line", "header", "foreign"}

// A method is a handler of the test peer. It returns JSON text.
type method func(ctx context.Context, r *Request) (string, error)

type methods map[string]method

// A mux is the Handler of the tests. Methods whose names end in "!" are Immediate.
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
		return nil, err // a typed nil in the interface, as in much Go code
	}
	return append(dst, result...), nil
}

// A peer is the other end of the connection under test, operated by the test. It must be used in a
// synctest bubble.
type peer struct {
	t    *testing.T
	wire string
	conn *Conn
	link pipes.End // the peer's end of the pipe
	log  *buffer.Buffer
	run  chan error
	left []byte // received bytes without the end of their message
	gate chan struct{}

	methods methods // the test may add methods before it uses the peer
}

// everyMode runs a test for every run mode and wire.
func everyMode(t *testing.T, test func(t *testing.T, p *peer), o Options, m methods) {
	for _, way := range runModes {
		for _, wire := range wires {
			t.Run(way.name+", "+wire, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newPeer(t, way, wire, o, m).play(test) })
			})
		}
	}
}

// newPeer returns a peer of a new connection. It adds methods that every test has: "echo" returns
// its params and "ping!" {}, "wait" waits until the gate is open or the context ends, "deaf" waits
// for the gate alone, and "slow" takes a second.
func newPeer(t *testing.T, way runMode, wire string, o Options, m methods) *peer {
	local, remote := pipes.Memory(0)
	p := &peer{t: t, wire: wire, link: remote, log: new(buffer.Buffer), run: make(chan error, 1), gate: make(chan struct{})}
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

// play runs the connection and the test, and checks that everything ends.
func (p *peer) play(test func(t *testing.T, p *peer)) {
	p.start(context.Background())
	defer func() {
		p.open()
		p.conn.Close()
		p.link.Out.Close() // a failed test may still be sending
		synctest.Wait()
		p.checkCounts()
		if p.t.Failed() {
			p.t.Logf("log:\n%s", p.log)
		}
	}()
	test(p.t, p)
}

func (p *peer) start(ctx context.Context) { go func() { p.run <- p.conn.Run(ctx) }() }

// open opens the gate.
func (p *peer) open() {
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// checkCounts checks that the connection's tables are empty after all its goroutines have ended.
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
		p.t.Errorf("%d calls are pending after the end, %d counted", len(p.conn.calls.pending), n)
	}
}

// framed returns a message with the framing of the wire.
func (p *peer) framed(msg string) string {
	if p.wire == "header" {
		return block(msg)
	}
	return msg + "\n"
}

// send sends messages in one write.
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

// failure returns an error response. data may be empty.
func failure(id any, code jsonrpc.Code, message, data string) string {
	if data != "" {
		data = `,"data":` + data
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"error":{"code":%d,"message":%q%s}}`, id, code, message, data)
}

// parseFailure returns the response to a frame that is not JSON.
func parseFailure(frame string) string {
	var m jsonrpc.Message
	return string(jsonrpc.AppendError(nil, nil, jsonrpc.Parse([]byte(frame), &m, 0).(*jsonrpc.Error), true))
}

func block(msg string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(msg), msg) }

// skipped returns the response to a frame above the limit.
func skipped(limit int) string {
	return fmt.Sprintf("frame of more than %d bytes was skipped: send less, or raise the receiver's frame limit", limit)
}

// hangUp ends the connection's input.
func (p *peer) hangUp() { p.link.Out.End(io.EOF) }

// pause advances the clock by 250 ms and waits for everything that happens within it, including
// take-overs.
func (p *peer) pause() {
	elapse(250 * time.Millisecond)
	synctest.Wait()
}

// received returns the messages since the last call.
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

// want checks the messages since the last call, in order.
func (p *peer) want(msgs ...string) {
	p.t.Helper()
	if diff := cmp.Diff(msgs, p.received()); diff != "" {
		p.t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// wantAnyOrder checks the messages since the last call, in any order.
func (p *peer) wantAnyOrder(msgs ...string) {
	p.t.Helper()
	got := p.received()
	slices.Sort(got)
	slices.Sort(msgs)
	if diff := cmp.Diff(msgs, got); diff != "" {
		p.t.Errorf("messages in any order (-want +got):\n%s", diff)
	}
}

// ended waits for Run to return and returns its error.
func (p *peer) ended() error {
	err := <-p.run
	p.run <- err
	return err
}

// wantEnd waits for Run to return and checks its error.
func (p *peer) wantEnd(want error) {
	p.t.Helper()
	if err := p.ended(); !errors.Is(err, want) {
		p.t.Errorf("Run returned %v, want %v", err, want)
	}
}

// logged checks that the log contains text.
func (p *peer) logged(text string) {
	p.t.Helper()
	if !strings.Contains(p.log.String(), text) {
		p.t.Errorf("the log has no %q in it", text)
	}
}

// elapse advances the clock of the synctest bubble by d.
func elapse(d time.Duration) { <-time.After(d) }
