package translate

import (
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Side is one of a translator's two peers.
type Side uint8

// The sides.
const (
	Dropped    Side = iota // nothing is sent, for the reason that Rule says
	Downstream             // the client
	Upstream               // the server
)

// An Out is a message to send, or a call to give up. The Outs of one step are in the order in which they have to go.
type Out struct {
	To      Side
	Message []byte // JSON text on one line; nil if there is nothing to send, but something to end

	Stream uint64 // near: on which stream it belongs, 0 for none in particular
	Final  bool   // near: nothing more comes on that stream for the request it answers; of a batch, for the batch
	Status int    // near: the HTTP status that goes with an error; 0 is 200. It can only be sent if nothing has gone on the stream

	Call   int64  // far: the id of the request that Message is, or that Cancel gives up; 0 is a notification or an answer
	Cancel bool   // far: Call is given up, and no answer to it is wanted
	Method string // far: of the request or notification; "" is an answer to the server

	Rule   string   // what was done to the message, in a few words; "" if it only got another id
	Causes []uint64 // the marks of earlier messages that it is made of, besides the one that came in; see SetCause
}

// A Translator is what both directions have in common. Each method returns what has to be sent.
type Translator interface {
	// FromDownstream takes a message, or a batch, that came from the client on a stream. The translator may answer it itself.
	FromDownstream(now time.Time, message []byte, stream uint64) []Out
	// FromUpstream takes a message, or a batch, that came from the server, in answer to a call (see the package) or on its own account, 0.
	FromUpstream(now time.Time, message []byte, call int64) []Out
	// SetCause names the message that the next step is about, for Out.Causes of later ones; a driver that records both sides gives the number of its event. 0 is none.
	SetCause(event uint64)
	// StreamClosed says that nothing can be sent on a stream any more. In the modern era that cancels the request it came with.
	StreamClosed(now time.Time, stream uint64) []Out
	// CallFailed says that the transport could not bring a call to an answer, and with what error the client is to be told. A call that is over is ignored.
	CallFailed(now time.Time, call int64, e *jsonrpc.Error) []Out
	// UpstreamLost says that the server, or the session with it, is gone. Open calls fail with e, but those that are certain not to have been carried out,
	// which are sent again when it is back.
	UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out
	// UpstreamReady says that there is a server to send to again after UpstreamLost. It must be called only after that: a translator begins with one.
	UpstreamReady(now time.Time) []Out
	// NotificationsLost says that what the server sent of itself may have been lost, while the session goes on.
	NotificationsLost(now time.Time) []Out
	// Next returns when Tick has to be called; the zero time is never.
	Next() time.Time
	// Tick does what is due.
	Tick(now time.Time) []Out
	// Close ends what stands open, with e for requests of the client, and gives up all calls. The translator takes nothing any more.
	Close(now time.Time, e *jsonrpc.Error) []Out
	// Legacy returns the revision that the legacy side agreed on, which HTTP repeats in a header; RevisionNone before the handshake.
	Legacy() mcp.Revision
	// Modern returns the revision of the modern side.
	Modern() mcp.Revision
	// InFlight returns how many requests of the client are being served, and how many calls are held open for clients that have to answer first.
	InFlight() (requests, held int)
}
