package taphttp

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"mcpwire/capture"
)

// eventEndpoint is the name of the event by which a server of revision 2024-11-05 says where messages are to be posted
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).
const eventEndpoint = "endpoint"

// bindEndpoint remembers which session a POST to the endpoint belongs to: its response comes on this stream.
func (x *exchange) bindEndpoint(data string) {
	if x.r.Method != http.MethodGet {
		return
	}
	ref, err := url.Parse(data)
	if err != nil {
		return
	}
	x.h.sessions.bind(endpointSpace, x.r.URL.ResolveReference(ref).RequestURI(), x)
}

// rewriteEndpoint returns the reference to an endpoint that leads through the tap, and whether it is another. What is relative does already, since the tap has the
// paths of the server.
func (x *exchange) rewriteEndpoint(data string) (string, bool) {
	ref, err := url.Parse(data)
	if err != nil {
		x.note(capture.ToClient, "the endpoint event holds no URL: "+printable(err.Error()))
		return data, false
	}
	if ref.Host == "" {
		return data, false
	}
	if !x.sameOrigin(ref) {
		x.note(capture.ToClient, "the endpoint event leads to another origin than that of the server, and past the tap: "+printable(data))
		return data, false
	}
	scheme := ""
	if ref.Scheme != "" {
		if scheme = "http:"; x.r.TLS != nil {
			scheme = "https:"
		}
	}
	_, rest, _ := strings.Cut(data, "//")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[i:]
	} else {
		rest = ""
	}
	to := scheme + "//" + x.r.Host + rest
	x.note(capture.ToClient, "the endpoint event was rewritten from "+printable(data)+" to "+printable(to))
	return to, true
}

// sameOrigin reports whether a URL is of the server's origin. Names and addresses of this machine's loopback are taken for one another.
func (x *exchange) sameOrigin(u *url.URL) bool {
	up := x.h.upstream
	if u.Scheme != "" && !strings.EqualFold(u.Scheme, up.Scheme) || port(u, up.Scheme) != port(up, up.Scheme) {
		return false
	}
	a, b := strings.ToLower(u.Hostname()), strings.ToLower(up.Hostname())
	return a == b || isLoopback(a) && isLoopback(b)
}

func port(u *url.URL, scheme string) string {
	if p := u.Port(); p != "" {
		return p
	}
	p, _ := net.LookupPort("tcp", scheme)
	if p == 443 {
		return "443"
	}
	return "80"
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// A gate holds the beginning of an event stream back until it is clear whether it is an endpoint event, which may have to be rewritten. It opens for
// good behind the first event that has data; everything passes as it came otherwise.
type gate struct {
	x        *exchange
	open     bool
	buffered []byte
}

// maxHeldEvent is how much is held back, in bytes: an endpoint is a URL.
const maxHeldEvent = 16 << 10

// filter returns what may be forwarded now that p has come. It is good until the next call.
func (g *gate) filter(p []byte) []byte {
	if g.open {
		return p
	}
	g.buffered = append(g.buffered, p...)
	var out []byte
	for !g.open {
		n, b := scanEvent(g.buffered)
		if !b.complete && !b.notEndpoint && len(g.buffered) <= maxHeldEvent {
			out = append(out, g.buffered[:n]...) // comments
			g.buffered = g.buffered[n:]
			return out
		}
		if b.complete && b.name == eventEndpoint && b.dataLines == 1 && n <= maxHeldEvent {
			out = append(out, g.rewrite(g.buffered[:n], b)...)
			g.open = true
		} else {
			out = append(out, g.buffered[:n]...)
			g.open = !b.complete || b.dataLines > 0
		}
		g.buffered = g.buffered[n:]
	}
	out = append(out, g.buffered...)
	g.buffered = nil
	return out
}

// flush returns what is held back when the stream ends.
func (g *gate) flush() []byte {
	out := g.buffered
	g.buffered = nil
	return out
}

func (g *gate) rewrite(event []byte, b eventHead) []byte {
	to, changed := g.x.rewriteEndpoint(string(event[b.from:b.to]))
	if !changed {
		return event
	}
	return append(append(bytes.Clone(event[:b.from]), to...), event[b.to:]...)
}

// A block is what is known of the event at the start of a text.
type eventHead struct {
	name        string
	dataLines   int
	from, to    int  // the value of the last data field
	complete    bool // its empty line is there
	notEndpoint bool // it is complete or not, but certainly no endpoint event
}

// scanEvent returns the event at the start of b, with its length; if it is not complete, the length is that of the comments and empty lines in front of it.
func scanEvent(b []byte) (int, eventHead) {
	var e eventHead
	front, fields := 0, false
	pos := 0
	for {
		i := bytes.IndexAny(b[pos:], "\r\n")
		if i < 0 {
			return front, e
		}
		line, start, next := b[pos:pos+i], pos, pos+i+1
		if b[next-1] == '\r' && next < len(b) && b[next] == '\n' {
			next++
		}
		pos = next
		if start == 0 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		switch {
		case len(line) == 0 && fields:
			e.complete = true
			return next, e
		case len(line) == 0, line[0] == ':':
			if !fields {
				front = next
			}
			continue
		}
		fields = true
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.name = string(value)
			e.notEndpoint = e.name != eventEndpoint
		case "data":
			e.dataLines++
			e.to = start + i
			e.from = e.to - len(value)
		}
	}
}
