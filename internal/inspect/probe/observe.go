package probe

import (
	"bytes"
	"context"
	"errors"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// An Outcome is what came of a handshake.
type Outcome string

// The outcomes.
const (
	Negotiated   Outcome = "agreed"    // the server speaks the revision
	OtherVersion Outcome = "other"     // the server answers with another one
	Refused      Outcome = "refused"   // by an error
	Silent       Outcome = "silent"    // nothing came in time
	Buffered     Outcome = "buffered"  // the answer came when the input of the server had ended, and not before
	Ended        Outcome = "ended"     // the process has ended
	NotStarted   Outcome = "unstarted" // it could not be started
)

// An Observation is one handshake with a process of its own.
type Observation struct {
	Revision  mcp.Revision
	Outcome   Outcome
	Version   string         // that the server answered, if it did
	Error     *jsonrpc.Error // that it answered
	Took      time.Duration  // until the answer, or until the process had ended
	Alive     bool           // server/discover has no answer, but initialize beside it has one
	FirstByte time.Duration  // from the start until something came; 0 if nothing did
	Stray     [][]byte       // the first lines on standard output that are no messages; they belong to the caller
	Header    bool           // messages stand behind a Content-Length
	Multiline bool           // messages are written over several lines
	Exit      *stdio.ExitError
	Err       error  // why it could not be started
	Stderr    string // the beginning and the end of what it wrote to standard error
	Result    []byte // of the handshake, JSON text
}

// maxStray is how many lines that are no messages an Observation has.
const maxStray = 20

// Observe starts the server and shakes hands in a revision: by server/discover if it is a modern one, by initialize otherwise. The process is ended again.
// opts may be nil; only Connect and Capture count.
func Observe(ctx context.Context, target *Target, rev mcp.Revision, opts *Options) Observation {
	return observe(ctx, rev, newRun(target, opts))
}

func observe(ctx context.Context, rev mcp.Revision, r *run) Observation {
	o := Observation{Revision: rev}
	v, err := r.open(ctx, nil, rev, false)
	if err != nil {
		o.Outcome, o.Err = NotStarted, err
		return o
	}
	start := time.Now()
	var a reply
	if rev.Modern() {
		a = v.discover(ctx)
	} else {
		a = v.send(ctx, outgoing{body: request(v.nextID(), mcp.MethodInitialize, r.initialize(rev.String())), id: v.lastID(), wait: r.opts.Connect})
	}
	o.Alive = v.alive
	if a.state == timedOut && !v.alive {
		v.stdio.closeInput()
		response := func(m *jsonrpc.Message) bool { return m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError }
		if b := v.send(ctx, outgoing{receiveOnly: true, stopAt: response, wait: maxExitTime}); b.state == stoppedEarly {
			a = b
		}
	}
	o.Took = time.Since(start)
	v.conn.close()
	o.Stray, o.Header, o.FirstByte = v.stdio.stray, v.stdio.headerFraming, v.stdio.firstByte
	o.Multiline = formOneMessage(o.Stray)
	o.Stderr = v.stdio.stderr.text()
	o.classify(&a, v)
	return o
}

// classify says what an answer means.
func (o *Observation) classify(a *reply, d *driver) {
	o.Result, o.Error = a.result, a.rpcError
	o.Version = textOf(member(a.result, "protocolVersion"))
	for _, s := range texts(elements(member(a.result, "supportedVersions"), maxPages)) {
		if s == o.Revision.String() || o.Version == "" {
			o.Version = s
		}
	}
	switch {
	case a.state == stoppedEarly:
		o.Outcome = Buffered
	case a.state == timedOut:
		o.Outcome = Silent
	case a.state == disconnected:
		o.Outcome = Ended
		o.Exit, _ = errors.AsType[*stdio.ExitError](a.err)
		if o.Exit == nil {
			o.Exit, _ = errors.AsType[*stdio.ExitError](d.stdio.proc.Wait())
		}
	case a.rpcError != nil:
		o.Outcome = Refused
	case o.Version == o.Revision.String():
		o.Outcome = Negotiated
	default:
		o.Outcome = OtherVersion
	}
}

// formOneMessage reports whether lines that are no messages are one when they are put together.
func formOneMessage(lines [][]byte) bool {
	var whole []byte
	for i, line := range lines {
		if i == 0 && !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) {
			return false
		}
		whole = append(append(whole, line...), ' ')
		if i > 0 && jsonwire.Valid(bytes.TrimSpace(whole), 0) == nil {
			return true
		}
	}
	// A long one may have been cut off.
	return len(lines) > 1 && bytes.Contains(whole, []byte(`"jsonrpc"`)) && bytes.Equal(bytes.TrimSpace(lines[0]), []byte("{"))
}

// observeFrame remembers what is special about a frame.
func (sc *stdioConn) observeFrame(f *frame) {
	if sc.firstByte == 0 {
		sc.firstByte = f.after
	}
	sc.headerFraming = sc.headerFraming || f.framing == capture.FramingHeader
	if len(sc.stray) < maxStray && len(parse(f.text)) == 0 && f.err == nil {
		sc.stray = append(sc.stray, f.text)
	}
}
