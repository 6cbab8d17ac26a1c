// Package taphttp implements an HTTP proxy between MCP clients and a server that
// records all traffic before it forwards it. It supports Streamable HTTP of all
// revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http)
// and the HTTP+SSE transport of 2024-11-05
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
//
// A tap serves the paths of the server's whole origin: https://example.com/a?b
// becomes http://127.0.0.1:9000/a?b. Clients use the URL of the server with another
// host, and relative references of the server lead through the tap, including those
// to authorization metadata and to the endpoint of HTTP+SSE. The tap rewrites an
// endpoint event with an absolute URL of the server's origin, and records a note. It
// changes no other part of a body.
//
// # What is recorded
//
// An exchange has a request, its body, the response, its body or the events of its
// stream, and an end, with the reason if it is abnormal. A body or event that holds a
// message is recorded as a message, after its last byte has arrived and before that
// byte is forwarded. Bodies are recorded in parts if they are larger than
// [Options.MaxBody], incomplete, or in an unknown content coding; readers do not see
// messages in parts. Bodies in gzip and deflate are forwarded unchanged and recorded
// decoded, up to a limit.
//
// Events of streams have all their fields and comments. A response that the tap
// itself sends, because it refuses a request or the server does not respond, is not
// recorded as a response; the end of the exchange reports it.
//
// Exchanges are numbered, and so are sessions. Traffic that belongs to a session of
// the protocol, by its id or endpoint, has the number of the exchange that opened it.
// Other traffic has one number per client connection. This distinguishes two modern
// clients that both use the id 1, and it matches the response of a legacy client with
// its input request, although they use different exchanges and possibly different
// connections.
//
// # What is not transparent
//
//   - net/http reads and writes HTTP/1.1. It sorts header fields by name, and keeps their
//     spelling and the order of fields with the same name. The record has the order and
//     spelling of the wire for unencrypted connections and for HTTP/1.1 responses. Elsewhere
//     fields are sorted and spelled as in Content-Type for HTTP/1.1, or in lower case for
//     HTTP/2. Empty chunks, chunk sizes and chunk extensions are lost. Messages that
//     net/http considers malformed are neither forwarded nor recorded.
//   - Hop-by-hop fields are not forwarded
//     (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1). Requests of several clients
//     may share the tap's connections to the server, which may use another HTTP version.
//     Such a connection is closed after 4 s without traffic. The tap adds no Via and no
//     X-Forwarded fields.
//   - The server sees its own Host. It sees the client's Origin unless [Options.Origin]
//     says otherwise: a server that compares the two may refuse a page that it serves.
//     Redirects are forwarded. A Location or Content-Location with the server's origin gets
//     the origin of the tap; one with another origin bypasses the tap. A note says so.
//   - Authorization metadata (https://www.rfc-editor.org/rfc/rfc9728) and WWW-Authenticate
//     are not rewritten. They name the server's URL as the resource, and a client that
//     compares it with the tap's URL may refuse to continue; absolute URLs in them bypass
//     the tap. Authorize such a client with the server first, or give it a token.
//   - The tap reads the body of a request, up to [Options.MaxBody], before it forwards it.
//     Larger bodies, lines of messages, and bodies of unknown length other than JSON are
//     forwarded as they arrive. The beginning of a stream in response to a GET is delayed
//     until its first event is complete.
//   - If the server is unreachable, or fails before the head of its response is complete,
//     clients get status 502 or 504. A response that fails later is cut off.
//   - A client that closes its half of the connection after the request counts as gone, as
//     in net/http: the exchange ends.
//   - WebSocket and other uses of Upgrade are refused with status 501.
//
// # Breakpoints
//
// With [Options.Breakpoints] the tap holds messages that match a filter until a viewer
// decides, or until a timeout: of the body of a POST before anything of the request is
// sent to the server, of a JSON response before its head is sent to the client, and of
// an event before its first byte. While an event is held, the tap does not read its
// stream: later events wait in the buffers of the connection, and then in the server.
// Other exchanges go on. Comments between events are not held, but wait behind one that
// is. A batch is held if one of its messages matches, as a whole.
//
//   - An edited body has another Content-Length and no content coding. The fields that
//     repeat a modern request (Mcp-Method, Mcp-Name, Mcp-Param-* and
//     MCP-Protocol-Version) follow it. Which arguments they repeat is known from a list of
//     tools that came through the tap, and otherwise guessed from the values that the
//     client sent. The status of a response stays. An edited event keeps its id, its retry
//     time, its name and its comments.
//   - A dropped request or JSON response, or a batch that has a request, fails with status
//     502, since a client would wait for a response that cannot come. A dropped body with
//     only notifications or responses is accepted with status 202. A dropped event leaves
//     its id and retry time, so that a client that resumes the stream does not get it
//     again; the stream goes on without it, and ends without the response if it was one.
//   - A response to a client's request has status 200, or the status that a modern server
//     has for the error. A response to a server's request is posted to the server
//     with the header of the client's request for the stream. What the tap itself responds
//     has no CORS fields: a page of another origin sees a failure.
//   - If the client disconnects or the exchange is aborted, what is held for it is not
//     forwarded: with a modern server, a disconnect cancels. [Handler.Shutdown] passes on
//     everything that is held before it waits.
//
// Messages over HTTP+SSE, the transport of 2024-11-05, are forwarded and recorded, and not
// held; a note in the capture says so. Bodies, and events, above 8 MiB are never held and
// pass as they arrive, as do bodies that are not JSON, lines of messages, and content
// codings other than gzip and deflate.
// The tap asks servers for none, with Accept-Encoding: identity, and forwards an event
// stream that is compressed nevertheless decoded. It requests the body of a client that
// waits for 100 Continue itself.
//
// The capture has two sides, as that of a bridge: downstream is what clients send and
// get, upstream what the server gets and sends, each with its own sessions and exchanges.
//
// # Why not httputil.ReverseProxy
//
// It forwards a request while it reads it. A server that answers early, as is common
// for event streams, makes the proxy respond before it has read the body. net/http
// then closes the client's connection after the response without waiting for unsent
// data: about one response in a hundred loses its end. Reading the body first avoids
// that; where that is impossible, [http.ResponseController.EnableFullDuplex] does.
// Also, ReverseProxy has no hook to record the body of a request or the end of a
// response before they are forwarded, and it changes headers unnecessarily.
//
// # Security
//
// The server does not see the name by which a client reached the tap, so the tap
// checks it: a web page must not reach it through a DNS name that points to this
// machine (see [Options.Hosts]). The tap has no credentials; clients send theirs.
// Both sides are untrusted: headers, bodies, decoded sizes, exchanges and the memory
// for sessions are limited, and a client that does not read delays the server.
//
// # Concurrency
//
// A Handler is safe for concurrent use. The only goroutines it starts decode
// compressed bodies, in turns with the goroutine of the request, and end with the
// request. [Handler.Shutdown] waits for requests; goroutines of the transport to the
// server end with its connections.
//
// # Errors
//
// [New] reports invalid arguments. [Handler.Serve] returns errors of its listener and
// of certificate files, and wraps [httpserve.ErrRemoteAddress]. The failure of an
// exchange is recorded, and reported by a status or by cutting off the response; it
// is logged if there was no response. Recording never fails, see package capture.
package taphttp
