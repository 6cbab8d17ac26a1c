// Package translate converts messages between the two eras of the protocol
// (https://modelcontextprotocol.io/specification). [LegacyToModern] serves a
// legacy client, with a handshake, on a modern server. [ModernToLegacy] serves
// modern clients, without a handshake, on a legacy server. Package internal/era
// converts single messages. This package keeps the state between messages.
//
// A [Translator] is a state machine without transport, goroutines and clock.
// Its driver passes it each message with the time, and sends the messages that
// it returns. The client is downstream, the server is upstream:
//
//	t := translate.NewLegacyToModern(nil)
//	for _, out := range t.FromDownstream(now, message, stream) { send(out) } // from the client
//	for _, out := range t.FromUpstream(now, message, call) { send(out) }     // from the server
//	timer.Reset(time.Until(t.Next()))                                        // then t.Tick(now)
//
// # Downstream streams
//
// The driver numbers the streams that carry messages to the client. Over HTTP each POST is a stream
// with a new number. Everything else is stream 0: stdio, a socket, the GET stream of a legacy
// session. [Out.Stream] is the stream of a message to the client. [Out.Final] marks the last
// message for a stream's request. When the client closes a stream, the driver calls StreamClosed.
// In the legacy era this does not cancel the request: its messages then have stream 0.
//
// # Upstream calls
//
// A request to the server has an integer id from [Options].IDs, which is also its [Out.Call]. Over
// HTTP each request is a POST, and the driver passes this number with every message on its stream.
// It passes 0 for stdio and for a GET stream.
//
// [Out.Cancel] gives up a call. For a modern server the driver closes the POST over HTTP, or sends
// Out.Message on other transports. For a legacy server it sends Out.Message, then closes the
// stream. When a transport fails, the driver calls CallFailed for one call, or UpstreamLost for the
// session. [Out.Withdraw] gives up a call that may not be canceled, if it was not sent yet.
//
// # Causes
//
// The output of a step comes from its input message, and from earlier messages
// in [Out.Causes], such as a request that waited for the handshake. [Out.Rule]
// describes the conversion in a few words.
//
// # Parts
//
// A translator dispatches messages to parts. Each part is one file, and only its methods change its
// state. Names of parts and files begin with the era of the client. In the order of construction:
//
//	LegacyToModern: handshake, inputs, requests, calls, subscription, tasks
//	ModernToLegacy: requests, handshake, inputs, calls, rounds, tools, tasks, subscriptions
//
// A part uses only parts that are constructed before it. What it needs from a
// later part, or from the translator, it gets as a function. All parts share
// the core: the output of the step, the timers and the count of stored bytes.
//
// # Limits
//
// [Limits] bounds the number, bytes and time of everything that a translator keeps. It answers a
// request above a limit with an error that names the reason.
//
// # Concurrency
//
// A translator must not be used by several goroutines at once. The caller owns
// the slices in Out. The translator does not keep the messages it gets.
//
// # Errors
//
// Methods do not fail. An invalid message causes an error response to its
// sender, or an Out to [Dropped] with the reason.
package translate
