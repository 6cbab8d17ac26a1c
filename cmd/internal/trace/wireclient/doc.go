// Package wireclient sends given bytes to a server of the Model Context Protocol
// (https://modelcontextprotocol.io/specification) and returns what comes back. It
// makes no handshake, answers nothing and checks nothing: its users are programs that
// send malformed messages, or those of a recorded client. Package client is for all
// others.
//
// There are three layers, and each is of use by itself:
//
//	Session       one session over any transport: Send, Next, Close
//	├ Process     a server on a pipe: frames in any framing, standard error, exit
//	└ HTTP        requests with the usual headers, and those of a session or of a HeaderMirror
//	  └ Exchange  one request and its response: a body, or events; Limit bounds a wait
//
// A Session reads everything at once and merges it, so it suits a client that is played. With an
// Exchange, the caller decides when to read, when to give up and which headers to make invalid.
//
// # Recording
//
// All layers record events of package capture by a function, in a possible order of
// cause and effect: a message to the server before its first byte is sent, and one of
// the server before the caller gets it. The function returns the number of the event.
//
// # Concurrency
//
// One goroutine may send to a Process or Session while another reads from it; any
// goroutine may call Close, which waits for all goroutines of this package. An HTTP may
// be used by many goroutines at once, an Exchange by one.
//
// # Errors
//
// Errors contain no URLs, which may have secrets. An [*EndedError] or a [*StatusError]
// reports that a server ended or refused a connection; [ErrTooLarge] is wrapped if a limit
// is exceeded, and [ErrClosed] is returned after Close.
package wireclient
