package probe

import (
	"bytes"
	"context"
	"errors"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// An Outcome is what came of a handshake.
type Outcome string

// The outcomes.
const (
	Agreed       Outcome = "agreed"    // the server speaks the revision
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
	var a answer
	if rev.Modern() {
		a = v.discover(ctx)
	} else {
		a = v.ask(ctx, question{body: request(v.id(), mcp.MethodInitialize, r.initialize(rev.String())), id: v.last(), wait: r.opts.Connect})
	}
	o.Alive = v.alive
	if a.fate == silent && !v.alive {
		v.pipe.endInput()
		response := func(m *jsonrpc.Message) bool { return m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError }
		if b := v.ask(ctx, question{listen: true, until: response, wait: promptly}); b.fate == stopped {
			a = b
		}
	}
	o.Took = time.Since(start)
	v.link.close()
	o.Stray, o.Header, o.FirstByte = v.pipe.stray, v.pipe.headers, v.pipe.first
	o.Multiline = spread(o.Stray)
	o.Stderr = v.pipe.err.text()
	o.judge(&a, v)
	return o
}

// judge says what an answer means.
func (o *Observation) judge(a *answer, v *visit) {
	o.Result, o.Error = a.result, a.rpc
	o.Version = textOf(member(a.result, "protocolVersion"))
	for _, s := range texts(elements(member(a.result, "supportedVersions"), maxPages)) {
		if s == o.Revision.String() || o.Version == "" {
			o.Version = s
		}
	}
	switch {
	case a.fate == stopped:
		o.Outcome = Buffered
	case a.fate == silent:
		o.Outcome = Silent
	case a.fate == gone:
		o.Outcome = Ended
		o.Exit, _ = errors.AsType[*stdio.ExitError](a.err)
		if o.Exit == nil {
			o.Exit, _ = errors.AsType[*stdio.ExitError](v.pipe.proc.Wait())
		}
	case a.rpc != nil:
		o.Outcome = Refused
	case o.Version == o.Revision.String():
		o.Outcome = Agreed
	default:
		o.Outcome = OtherVersion
	}
}

// spread reports whether lines that are no messages are one when they are put together.
func spread(lines [][]byte) bool {
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

// note remembers what is special about a frame.
func (p *pipe) note(f *frame) {
	if p.first == 0 {
		p.first = f.after
	}
	p.headers = p.headers || f.framing == capture.FramingHeader
	if len(p.stray) < maxStray && len(parse(f.text)) == 0 && f.err == nil {
		p.stray = append(p.stray, f.text)
	}
}
