package probe

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// An Outcome is the result of a handshake.
type Outcome string

// The outcomes.
const (
	// Negotiated means that the server supports the revision.
	Negotiated Outcome = "agreed"
	// OtherVersion means that the server answered with another version.
	OtherVersion Outcome = "other"
	// Refused means that the server answered with an error.
	Refused Outcome = "refused"
	// Silent means that no response came in time.
	Silent Outcome = "silent"
	// Buffered means that the response came only after the server's input ended.
	Buffered Outcome = "buffered"
	// Ended means that the process ended.
	Ended Outcome = "ended"
	// NotStarted means that the process could not be started.
	NotStarted Outcome = "unstarted"
)

// An Observation is the result of one handshake with a new process.
type Observation struct {
	Revision mcp.Revision
	Outcome  Outcome
	// Version is the version in the server's response, or "".
	Version string
	// Error is the error in the server's response, or nil.
	Error *jsonrpc.Error
	// Took is the time from the start of the process to the response, or to its end.
	Took time.Duration
	// Alive reports that initialize got a response although server/discover did not.
	Alive bool
	// Disturbed reports that the server responds to nothing after server/discover, although another
	// process of it responds to initialize.
	Disturbed bool
	// Stray holds the first lines on standard output that are not messages. They belong to the
	// caller.
	Stray [][]byte
	// Header reports messages with a Content-Length header.
	Header bool
	// Multiline reports messages that span several lines.
	Multiline bool
	Exit      *stdio.ExitError
	// Err is why the process could not be started.
	Err error
	// Result is the result of the handshake, as JSON text.
	Result []byte
	// OtherID is the id of a response that came, as JSON text, if it is not that of the request.
	OtherID []byte

	stderr *stderrKeeper
}

// Stderr returns the beginning and the end of the standard error output so far.
func (o *Observation) Stderr() string { return o.stderr.text() }

// maxStray limits Observation.Stray.
const maxStray = 20

// observe returns the observation of a handshake. v is nil if the process could not be started,
// which err explains.
func observe(rev mcp.Revision, v *driver, err error) Observation {
	o := Observation{Revision: rev}
	if v == nil {
		o.Outcome, o.Err = NotStarted, err
		return o
	}
	o.Alive, o.Disturbed, o.Took = v.alive, v.disturbed, v.handshakeTime
	o.Stray, o.Header = slices.Clone(v.stdio.stray), v.stdio.headerFraming
	o.Multiline = formOneMessage(o.Stray)
	o.stderr = v.stdio.stderr
	o.classify(&v.first, v)
	return o
}

// classify sets the outcome from the reply.
func (o *Observation) classify(a *reply, d *driver) {
	o.Result, o.Error, o.OtherID = a.result, a.rpcError, a.otherID()
	o.Version = jsonwire.Text(jsonwire.Lookup(a.result, "protocolVersion"))
	for _, s := range texts(elements(jsonwire.Lookup(a.result, "supportedVersions"), maxPages)) {
		if s == o.Revision.String() || o.Version == "" {
			o.Version = s
		}
	}
	switch {
	case d.buffered:
		o.Outcome = Buffered
	case a.state == timedOut:
		o.Outcome = Silent
	case a.state == disconnected:
		o.Outcome = Ended
		o.Exit, _ = errors.AsType[*stdio.ExitError](a.err)
		if o.Exit == nil {
			o.Exit, _ = errors.AsType[*stdio.ExitError](d.stdio.Child().Wait())
		}
	case a.rpcError != nil:
		o.Outcome = Refused
	case o.Version == o.Revision.String():
		o.Outcome = Negotiated
	default:
		o.Outcome = OtherVersion
	}
}

// otherID returns the id of a response to another request that came before the response, or nil.
func (a *reply) otherID() []byte {
	for i := range a.before {
		if m := &a.before[i]; wireclient.IsAnswer(&m.Message) {
			return []byte(m.ID)
		}
	}
	return nil
}

// formOneMessage reports whether lines that are not messages form one message together.
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
	// A long one may be truncated.
	return len(lines) > 1 && bytes.Contains(whole, []byte(`"jsonrpc"`)) && bytes.Equal(bytes.TrimSpace(lines[0]), []byte("{"))
}

// observeFrame records unusual properties of a frame.
func (sc *stdioConn) observeFrame(f *wireclient.Frame) {
	sc.headerFraming = sc.headerFraming || f.Framing == capture.FramingHeader
	switch {
	case f.Err != nil:
	case len(wireclient.Messages(f.Text)) > 0:
		sc.gotMessage = true
	case len(sc.stray) < maxStray:
		sc.stray = append(sc.stray, f.Text)
	}
}
