package translate

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Side is a peer of a translator.
type Side uint8

// The sides.
const (
	// Dropped says that nothing is sent. Rule has the reason.
	Dropped Side = iota
	// Downstream is the client.
	Downstream
	// Upstream is the server.
	Upstream
)

// An Out is a message to send or a call to give up. The driver must process the Outs of a step in
// order.
type Out struct {
	To Side
	// Message is JSON text on one line. It is nil if a stream or a call ends without a message.
	Message []byte

	// Stream is the downstream stream of the message. Zero means no particular stream.
	Stream uint64
	// Final says that the stream carries no more messages for this request or batch.
	Final bool
	// Status is the HTTP status of an error, if nothing was sent on the stream. Zero means 200.
	Status int

	// Call is the id of the upstream request in Message, or of the call to cancel. Zero means a
	// notification or a response.
	Call int64
	// Cancel gives up Call. Its response is not wanted.
	Cancel bool
	// Withdraw says that Call need not be sent. There is no Message. If the driver has not sent the
	// call yet, it forgets it and calls CallFailed. Otherwise the response is still wanted.
	Withdraw bool
	// Method is the method of the upstream request or notification, and empty for a response.
	Method string

	// Rule describes the conversion in a few words. It is empty if only the id changed.
	Rule string
	// Causes holds the events of earlier messages that Message comes from, as passed to SetCause.
	Causes []uint64
}

// A Translator converts messages in one direction. Each method returns the messages to send.
type Translator interface {
	// FromDownstream takes a message or batch from the client on a stream. The translator may
	// answer it itself.
	FromDownstream(now time.Time, message []byte, stream uint64) []Out
	// FromUpstream takes a message or batch from the server. call is the call on whose stream it
	// came, or 0.
	FromUpstream(now time.Time, message []byte, call int64) []Out
	// SetCause sets the event number of the next step's message, for Out.Causes of later steps.
	// Zero means none.
	SetCause(event uint64)
	// StreamClosed says that a stream is closed. In the modern era this cancels its request.
	StreamClosed(now time.Time, stream uint64) []Out
	// CallFailed says that the transport lost a call. e is the error for the client. It ignores
	// calls that have ended.
	CallFailed(now time.Time, call int64, e *jsonrpc.Error) []Out
	// UpstreamLost says that the server or its session is gone. Pending calls fail with e, except
	// those in unsent. The translator sends these again when the server is back.
	UpstreamLost(now time.Time, e *jsonrpc.Error, unsent ...int64) []Out
	// UpstreamReady says that the server is back. Call it only after UpstreamLost.
	UpstreamReady(now time.Time) []Out
	// NotificationsLost says that notifications of the server may be lost while the session
	// continues.
	NotificationsLost(now time.Time) []Out
	// Next returns the time for Tick. The zero time means never.
	Next() time.Time
	// Tick runs the timers that are due.
	Tick(now time.Time) []Out
	// Close ends pending requests of the client with e and gives up all calls. Later steps do
	// nothing.
	Close(now time.Time, e *jsonrpc.Error) []Out
	// Legacy returns the negotiated revision of the legacy side, which HTTP repeats in a header. It
	// is RevisionNone before the handshake.
	Legacy() mcp.Revision
	// InFlight returns the number of pending client requests, and of calls that wait for input from
	// a client.
	InFlight() (requests, held int)
}

// Options are the options of a translator. Nil means the zero value, which is ready to use.
type Options struct {
	// Modern is the revision of the modern side. RevisionNone means the latest.
	Modern mcp.Revision
	// Legacy is the newest revision of the legacy side. RevisionNone means the latest.
	Legacy mcp.Revision

	// HandshakeFailed is called when a handshake with a legacy server fails. It may be nil.
	HandshakeFailed func()

	// Supported holds the revisions that the bridge announces to modern clients. Nil means Modern
	// alone.
	Supported []mcp.Revision
	// Hints are the cache hints for results of a legacy server. The zero value forbids caching.
	Hints era.CacheHints

	// Ring seals the request state that modern clients keep between input rounds. Nil means a new
	// one.
	Ring *seal.Ring
	// IDs counts the ids of calls. Translators on one upstream must share it and use [Route]. Nil
	// means a new counter.
	IDs *atomic.Int64
	// IsolateClients says that requests may come from several modern clients that must not see each
	// other's messages. A log message that may belong to several of them is dropped. Input requests
	// are not, within a principal: they take turns, because the server waits.
	IsolateClients bool
	// PrincipalOf returns the principal of the request on a stream. An input request goes only to
	// the principal whose call caused it, and is refused if that is not clear. Nil means that there
	// is one principal.
	PrincipalOf func(stream uint64) string
	// NewID returns ids that cannot be guessed. Nil means random ids.
	NewID func() string

	Limits Limits
}

// Limits bound the state of a translator. Zero values mean the defaults.
type Limits struct {
	// Requests limits pending client requests, without subscriptions. Zero means 1024.
	Requests int
	// Bytes limits the bytes of stored requests and results. Zero means 256 MiB.
	Bytes int
	// AwaitingInput limits the calls that wait for input from a client. Above it, the oldest is
	// given up. Zero means 256.
	AwaitingInput int
	// InputRequests limits pending input requests of a server. Zero means 1024.
	InputRequests int
	// InputRounds limits the input rounds of one request. Zero means 32.
	InputRounds int
	// Subscriptions limits pending subscriptions/listen requests. Zero means 64.
	Subscriptions int
	// Resources limits the subscribed resources. Zero means 1024.
	Resources int
	// Tasks limits the stored tasks. Zero means 256.
	Tasks int
	// ToolNames limits the tools whose task support is stored. Zero means 4096.
	ToolNames int
	// InputTimeout limits how long an input request waits for its response. Zero means 10 min.
	InputTimeout time.Duration
	// GatherDelay is how long a legacy server's first input request waits for others, to be sent
	// together. Zero means 10 ms.
	GatherDelay time.Duration
	// PollInterval is the time between polls of a task that names none. Zero means 1 s.
	PollInterval time.Duration
	// Depth limits the nesting of a message. Zero means 512.
	Depth int
}

func (o *Options) orDefault() Options {
	var full Options
	if o != nil {
		full = *o
	}
	full.Modern = cmp.Or(full.Modern, mcp.LatestRevision)
	full.Legacy = cmp.Or(full.Legacy, mcp.LatestLegacyRevision)
	full.Ring = cmp.Or(full.Ring, new(seal.Ring))
	full.IDs = cmp.Or(full.IDs, new(atomic.Int64))
	if full.HandshakeFailed == nil {
		full.HandshakeFailed = func() {}
	}
	if full.Supported == nil {
		full.Supported = []mcp.Revision{full.Modern}
	}
	if full.PrincipalOf == nil {
		full.PrincipalOf = func(uint64) string { return "" }
	}
	if full.NewID == nil {
		full.NewID = rand.Text
	}
	l := &full.Limits
	l.Requests = cmp.Or(l.Requests, 1024)
	l.Bytes = cmp.Or(l.Bytes, 256<<20)
	l.AwaitingInput = cmp.Or(l.AwaitingInput, 256)
	l.InputRequests = cmp.Or(l.InputRequests, 1024)
	l.InputRounds = cmp.Or(l.InputRounds, 32)
	l.Subscriptions = cmp.Or(l.Subscriptions, 64)
	l.Resources = cmp.Or(l.Resources, 1024)
	l.Tasks = cmp.Or(l.Tasks, 256)
	l.ToolNames = cmp.Or(l.ToolNames, 4096)
	l.InputTimeout = cmp.Or(l.InputTimeout, 10*time.Minute)
	l.GatherDelay = cmp.Or(l.GatherDelay, 10*time.Millisecond)
	l.PollInterval = cmp.Or(l.PollInterval, time.Second)
	l.Depth = cmp.Or(l.Depth, 512)
	return full
}

// Route returns the call that a message of a modern server names: by the id of a response, the
// progress token, or the subscription. It reports false if the message names none. It is for
// translators that share an upstream.
func Route(m *jsonrpc.Message) (call int64, ok bool) {
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return jsonwire.ParseInt(m.ID)
	case jsonrpc.KindNotification:
		if id, _, cancels := (era.Cancellation{}).Target(m); cancels {
			return jsonwire.ParseInt(id)
		}
		if string(m.Method) == mcp.NotificationProgress {
			token, _ := m.Param("progressToken")
			return jsonwire.ParseInt(token)
		}
		return jsonwire.ParseInt(era.Lookup(m.Params, "_meta", mcp.MetaSubscriptionID))
	}
	return 0, false
}

// ClientKey returns a digest of the capabilities and the client info in a modern request, or "" if
// it has no capabilities. Clients with different keys cannot share a legacy session, because its
// handshake declares both once.
func ClientKey(message []byte) string {
	var m jsonrpc.Message
	if rpcbatch.Is(message) || jsonrpc.Parse(message, &m, 0) != nil {
		return ""
	}
	caps := era.Lookup(m.Params, "_meta", mcp.MetaClientCapabilities)
	if caps == nil {
		return ""
	}
	text := jsonwire.AppendCompact(nil, caps)
	if info := era.Lookup(m.Params, "_meta", mcp.MetaClientInfo); info != nil {
		text = jsonwire.AppendCompact(append(text, ' '), info)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
