// Package taphttp stands between an MCP client and a server on HTTP, forwards everything, and records it before it is forwarded. It serves
// Streamable HTTP of all revisions (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http) and the HTTP+SSE of 2024-11-05
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
//
// A tap has the paths of the server's whole origin: what is at https://example.com/a?b is at http://127.0.0.1:9000/a?b. So clients are given the URL of
// the server with another host in it, and relative references of the server lead through the tap, those to metadata of authorization and to the endpoint of HTTP+SSE
// included. An endpoint event with an absolute URL of the server's origin is rewritten, and a note says so; that is all of a body that is ever changed.
//
// # What is recorded
//
// An exchange is a request, its body, the response, its body or the events of its stream, and an end, with the reason unless it is the normal one. Bodies and
// events that hold a message are recorded as messages, when their last byte has come and before it is forwarded. Parts of a body, which are all there is
// of one above [Options.MaxBody], of one that breaks off and of one in a content coding that is not known, are no messages to readers. Bodies in gzip and deflate are
// forwarded as they are; what is recorded is decoded, and bounded.
//
// Events of streams have all their fields, and comments. Responses of the tap's own, where it refuses a request or the server does not respond, are not recorded as
// responses; the end says it.
//
// Exchanges are counted. So are sessions: what belongs to a session of the protocol, by its id or by its endpoint, has the number of the exchange that
// opened it; all else has one number for each connection of a client. Two modern clients that both use the id 1 are therefore told apart, and a legacy client's answer
// is found with the question, although they come by different exchanges and, maybe, connections.
//
// # What is not transparent
//
//   - HTTP/1.1 is read and written by net/http. It writes the fields of a header sorted by name; their spelling, and the order of fields with the same name,
//     stay. The record has the order and the spelling of the wire where the connection is not encrypted, and of a server's HTTP/1.1 also if it is. Elsewhere
//     fields are sorted, with capitals as in Content-Type for HTTP/1.1 and without for HTTP/2. Empty chunks and the sizes of chunks are lost, and so are extensions of
//     chunks. Requests and responses that net/http takes for malformed get no further, and are not recorded.
//   - Fields for one hop are not forwarded (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1). The tap has connections to the server of its own, which requests
//     of several clients may share, and may speak another version of HTTP there. A connection to the server is given up when it was idle for 4 s. It adds no Via and no X-Forwarded.
//   - The Host that the server sees is its own. The Origin is the client's, unless [Options.Origin] says otherwise: a server that compares the two
//     may refuse a page that it serves itself. Redirects are passed on; an absolute Location leads past the tap, which a note says.
//   - What metadata of authorization (https://www.rfc-editor.org/rfc/rfc9728) and WWW-Authenticate say is not rewritten. They name the server's URL as the resource,
//     and a client that compares it with the URL that it was given, the tap's, may refuse to go on; absolute URLs in them lead past the tap. Such a client is
//     authorized with the server first, or given a token.
//   - The whole body of a request is read before the server gets any of it, up to [Options.MaxBody]; what is larger, lines of messages, and bodies of an unknown length that
//     are no JSON go through as they come. The beginning of a stream that answers a GET is held back until its first event is complete.
//   - Where the server cannot be reached, or breaks off before the head of its response is complete, clients get status 502 or 504. A response that breaks off
//     later breaks off.
//   - A client that closes its half of the connection behind the request is taken for gone, as net/http does: the exchange ends.
//   - WebSocket and whatever else needs an Upgrade are refused with status 501.
//
// # Why not httputil.ReverseProxy
//
// It sends a request on while it reads it. A server that answers before it has read the body, as is common for event streams, makes the proxy respond
// before it has read the body, and then net/http closes the client's connection behind the response without regard for what was not sent yet: about one
// response in a hundred loses its end. Reading the body first avoids it, and where that cannot be done [http.ResponseController.EnableFullDuplex] does. The
// proxy has also no place to record the body of a request and the end of a response before they are forwarded, and changes headers that it need not.
//
// # Security
//
// The server cannot see by which name the tap was reached, so the tap checks that itself: a page in a browser must not use a name of its own that points to this
// machine (see [Options.Hosts]). It has no credentials; clients send theirs. Both sides are taken for hostile: headers, bodies, decoded sizes, exchanges
// and what is kept of sessions are bounded, and a client that does not read leaves what it does not read at the server.
//
// # Concurrency
//
// A Handler may be used by many goroutines at once. The only goroutines that it starts decode compressed bodies, one at a time in turns with the request's own, and have
// ended when the request has. [Handler.Shutdown] waits for requests; those of the transport to the server end with its connections.
//
// # Errors
//
// [New] says what is wrong with its arguments. [Handler.Serve] returns errors of its listener and of files with certificates, and wraps [streamable.ErrRemoteAddress]. What goes wrong
// with an exchange is recorded, answered by a status or by breaking off, and logged if there was no response; recording itself never fails, see package capture.
package taphttp
