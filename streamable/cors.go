package streamable

import (
	"net/http"
	"strings"
)

// Values of headers of the CORS protocol (https://fetch.spec.whatwg.org/#http-cors-protocol), which nobody changes. There is no Access-Control-Allow-Credentials:
// tokens come in a header that pages set themselves, and cookies or client certificates would let a page act for a user without having anything of theirs.
var (
	corsMethods = []string{"POST, GET, DELETE"}
	corsExposed = []string{"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, DPoP-Nonce"}
	corsMaxAge  = []string{"7200"} // seconds; browsers take no more
	varyOrigin  = []string{"Origin"}
)

// corsHeaders are those that requests may have besides what the CORS protocol always allows. Any that begins with mcpPrefix may come too.
const (
	corsHeaders = "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, DPoP, traceparent, tracestate, baggage"
	mcpPrefix   = "mcp-"
)

const (
	maxCORSHeader  = 256  // bytes of a header's name that is asked for and may be allowed
	maxCORSHeaders = 8192 // and of all of them
)

// writeCORS lets the page see the answer. It reports whether there is something to be handled: a preflight request is answered.
func (a *accessPolicy) writeCORS(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h["Access-Control-Allow-Origin"] = r.Header["Origin"][:1:1] // which has been parsed, so nothing else can be in it
	if r.Method != http.MethodOptions || r.Header["Access-Control-Request-Method"] == nil {
		h["Access-Control-Expose-Headers"] = corsExposed
		return true
	}
	h["Access-Control-Allow-Methods"] = corsMethods
	h["Access-Control-Allow-Headers"] = []string{allowedHeaders(r.Header["Access-Control-Request-Headers"])}
	h["Access-Control-Max-Age"] = corsMaxAge
	w.WriteHeader(http.StatusNoContent)
	return false
}

// allowedHeaders returns the headers that may come, given those that are asked for.
func allowedHeaders(requested []string) string {
	var b strings.Builder
	b.WriteString(corsHeaders)
	for _, line := range requested {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.Trim(name, " \t")
			if len(name) > maxCORSHeader || b.Len()+len(name) > maxCORSHeaders || !isToken(name) {
				continue
			}
			if len(name) > len(mcpPrefix) && strings.EqualFold(name[:len(mcpPrefix)], mcpPrefix) {
				b.WriteString(", ")
				b.WriteString(name)
			}
		}
	}
	return b.String()
}

// isToken checks what RFC 9110, section 5.6.2, has.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// addVary tells caches that the answer depends on the origin.
func addVary(h http.Header) {
	if h["Vary"] == nil {
		h["Vary"] = varyOrigin[:1:1] // appending to it copies it
		return
	}
	h["Vary"] = append(h["Vary"], varyOrigin[0])
}
