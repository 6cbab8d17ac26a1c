package streamable

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"mcpwire/internal/net/challenge"
	"mcpwire/jsonrpc"
)

// An accessPolicy accepts requests by their Host and Origin headers. It protects servers that a
// browser can reach from pages that the user happens to have open, whether these send cross-origin
// requests or resolve their name to this machine (DNS rebinding). Package auth identifies callers.
// An accessPolicy is immutable except for a cache, and safe for concurrent use.
type accessPolicy struct {
	// hosts has the allowed hosts other than the loopback's. Port 0 allows any port.
	hosts   map[hostName]struct{}
	origins map[webOrigin]struct{}
	// anyOrigin accepts pages of all origins, because a guard requires a token, which a page must
	// have and the browser does not add by itself.
	anyOrigin bool
	// lastHost is the last Host header that was accepted. Most requests have the same one.
	lastHost atomic.Pointer[string]
}

// newAccessPolicy returns the policy for [Options.Hosts] and [Options.Origins]. It returns an error
// for an invalid entry, because one that never matches is as likely a mistake as one that always
// does.
func newAccessPolicy(hosts, origins []string) (*accessPolicy, error) {
	a := &accessPolicy{hosts: make(map[hostName]struct{}, len(hosts)), origins: make(map[webOrigin]struct{}, len(origins))}
	for _, s := range hosts {
		h, ok := parseHost(s)
		if !ok {
			return nil, fmt.Errorf("%.100q is not a host: want one name or address, with or without a port, such as mcp.example.com or [2001:db8::1]:8080", s)
		}
		a.hosts[h] = struct{}{}
	}
	for _, s := range origins {
		o, ok := parseOrigin(s)
		if !ok {
			return nil, fmt.Errorf("%.100q is not an origin: want a scheme and a host, with or without a port, and nothing else, such as https://app.example.com", s)
		}
		a.origins[o] = struct{}{}
	}
	return a, nil
}

// Messages with status 403. They contain nothing of the request.
const (
	forbiddenHost = "the Host header is neither localhost nor an address of the loopback. " +
		"If clients may use that name, the server's operator must add it to the allowed hosts (Options.Hosts)."
	forbiddenOrigin = "web pages of this origin must not use the server. " +
		"If they may, the server's operator must add the origin to the allowed origins (Options.Origins)."
	forbiddenSite = "the browser reports a request from another site. " +
		"If its pages may use the server, the server's operator must add their origin to the allowed origins (Options.Origins)."
)

// check reports whether the request may be handled. If not, it has answered the request. It adds
// the headers that let pages of allowed origins read the response, and answers preflight requests.
// Call it before authentication: a preflight request has no credentials.
func (a *accessPolicy) check(w http.ResponseWriter, r *http.Request) bool {
	values := r.Header["Origin"]
	host, ok := a.host(r, values == nil)
	if !ok {
		return forbid(w, forbiddenHost)
	}
	if a.anyOrigin {
		return len(values) == 0 || a.writeCORS(w, r, corsAnyOrigin)
	}
	if len(a.origins) > 0 {
		addVary(w.Header())
	}
	if len(values) > 0 {
		o, ok := parseOrigin(values[0])
		if !ok || len(values) > 1 {
			return forbid(w, forbiddenOrigin)
		}
		if _, allowed := a.origins[o]; allowed {
			return a.writeCORS(w, r, values[:1:1]) // parsed: contains nothing else
		}
		if !o.isSameOrigin(host, r.TLS != nil) {
			return forbid(w, forbiddenOrigin)
		}
	}
	if isForeignFetch(r) {
		return forbid(w, forbiddenSite)
	}
	return true
}

// host returns the host of the request, and reports whether it is allowed. Without an Origin the
// host is not needed, and a cached Host header is not parsed.
func (a *accessPolicy) host(r *http.Request, noOrigin bool) (host hostName, ok bool) {
	last := a.lastHost.Load()
	known := last != nil && *last == r.Host
	if known && noOrigin {
		return hostName{}, true
	}
	if host, ok = parseHost(r.Host); !ok || !a.allowsHost(host) {
		return hostName{}, false
	}
	if !known {
		name := strings.Clone(r.Host) // it may be part of a large header
		a.lastHost.Store(&name)
	}
	return host, true
}

// allowsHost reports whether clients may reach the server as h.
func (a *accessPolicy) allowsHost(h hostName) bool {
	if h.isLocal() {
		return true
	}
	ports := [...]uint16{0, h.port, h.port}
	if h.port == 0 {
		// The scheme implies one of them. TLS may end before this process.
		ports = [...]uint16{0, portHTTP, portHTTPS}
	}
	for _, port := range ports {
		h.port = port
		if _, ok := a.hosts[h]; ok {
			return true
		}
	}
	return false
}

// isSameOrigin reports whether the origin is that of the server, given the host of the request. If
// TLS ends in this process, a page without TLS has another origin. Otherwise the scheme is unknown.
func (o webOrigin) isSameOrigin(host hostName, secure bool) bool {
	implied := impliedPort(o.scheme)
	if implied == 0 || secure && o.scheme != "https" {
		return false
	}
	if host.port == 0 {
		host.port = implied
	}
	return o.host == host
}

// isForeignFetch reports whether the browser says that the request comes neither from the server's
// own pages nor from the user. It is a second layer: browsers omit Origin if a page cannot read the
// response, but the request would still take effect
// (https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header).
func isForeignFetch(r *http.Request) bool {
	v := r.Header["Sec-Fetch-Site"]
	return v != nil && (len(v) != 1 || v[0] != "same-origin" && v[0] != "none")
}

// forbid answers with status 403 and returns false.
func forbid(w http.ResponseWriter, message string) bool {
	w.Header()["X-Content-Type-Options"] = noSniff
	writeError(w, http.StatusForbidden, jsonrpc.CodeInvalidRequest, message)
	return false
}

// noSniff is shared by responses and never changed.
var noSniff = []string{"nosniff"}

// Header values of the CORS protocol (https://fetch.spec.whatwg.org/#http-cors-protocol), never
// changed. Access-Control-Allow-Credentials is not sent: pages set tokens in a header themselves,
// and cookies or client certificates would let a page act for the user without a token.
var (
	corsMethods = []string{"POST, GET, DELETE"}
	corsExposed = []string{"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, DPoP-Nonce"}
	corsMaxAge  = []string{"7200"} // seconds; the most that browsers accept
	varyOrigin  = []string{"Origin"}

	corsAnyOrigin = []string{"*"}
)

// corsHeaders are the allowed request headers, in addition to those that CORS always allows.
// Headers that begin with mcpPrefix are allowed too.
const (
	corsHeaders = "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, DPoP, traceparent, tracestate, baggage"
	mcpPrefix   = "mcp-"
)

const (
	maxCORSHeader  = 256  // bytes of one requested header name
	maxCORSHeaders = 8192 // bytes of all of them
)

// writeCORS lets pages of the origin read the response. It reports false if it has answered a
// preflight request.
func (a *accessPolicy) writeCORS(w http.ResponseWriter, r *http.Request, origin []string) bool {
	h := w.Header()
	h["Access-Control-Allow-Origin"] = origin
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

// allowedHeaders returns the allowed headers, given the requested ones.
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

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool { return s != "" && strings.Trim(s, challenge.TokenCharacters) == "" }

// addVary tells caches that the response depends on the origin.
func addVary(h http.Header) {
	if h["Vary"] == nil {
		h["Vary"] = varyOrigin[:1:1] // appending to it copies it
		return
	}
	h["Vary"] = append(h["Vary"], varyOrigin[0])
}

// A hostName is the normalized host and port of a Host header or an origin. Either name or addr is
// set.
type hostName struct {
	// name is in lower case, without the root's dot.
	name string
	// addr has no zone, and IPv4 in IPv6 is unwrapped.
	addr netip.Addr
	// port is 0 if absent.
	port uint16
}

const maxHost = 300 // in bytes: a name has at most 253, a port 5

// parseHost parses host [ ":" port ] of RFC 9110, section 7.2. Names have the characters that occur
// in DNS and hosts files; internationalized names are in ASCII form. It allocates only for
// upper-case letters.
func parseHost(s string) (h hostName, ok bool) {
	if s == "" || len(s) > maxHost {
		return hostName{}, false
	}
	if s[0] == '[' {
		return parseBracketed(s)
	}
	name, port, colon := strings.Cut(s, ":")
	name = strings.TrimSuffix(name, ".")
	letters, ok := hostCharacters(name)
	if !ok {
		return hostName{}, false
	}
	if letters {
		h.name = strings.ToLower(name)
	} else if addr, err := netip.ParseAddr(name); err == nil {
		h.addr = addr
	} else {
		return hostName{}, false // such as 127.1, which programs interpret differently
	}
	return h.withPort(port, colon)
}

// parseBracketed parses an IPv6 host. It drops the zone, which only means something to the sender
// (RFC 6874, section 3).
func parseBracketed(s string) (h hostName, ok bool) {
	text, rest, ok := strings.Cut(s[1:], "]")
	if !ok {
		return hostName{}, false
	}
	text, zone, zoned := strings.Cut(text, "%")
	if zoned {
		if _, ok := hostCharacters(strings.TrimPrefix(zone, "25")); !ok {
			return hostName{}, false
		}
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() {
		return hostName{}, false
	}
	h.addr = addr.Unmap()
	port, colon := strings.CutPrefix(rest, ":")
	if rest != "" && !colon {
		return hostName{}, false
	}
	return h.withPort(port, colon)
}

// hostCharacters reports whether s can be a name or an IPv4 address. letters is false for an
// address.
func hostCharacters(s string) (letters, ok bool) {
	if s == "" {
		return false, false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c == '-', c == '_':
			letters = true
		case c >= '0' && c <= '9':
		case c == '.' && i > 0 && s[i-1] != '.':
		default:
			return false, false
		}
	}
	return letters, true
}

func (h hostName) withPort(port string, colon bool) (hostName, bool) {
	if !colon || port == "" { // an empty port is allowed (RFC 3986, section 3.2.3)
		return h, true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return hostName{}, false
	}
	h.port = uint16(n)
	return h, true
}

// isLocal reports whether the host is this machine's loopback, independent of the resolver.
func (h hostName) isLocal() bool { return h.name == "localhost" || h.addr.IsLoopback() }

// A webOrigin is a normalized origin (RFC 6454, section 4). It includes the port that the scheme
// implies.
type webOrigin struct {
	scheme string
	host   hostName
}

const (
	portHTTP  = 80
	portHTTPS = 443
)

// impliedPort returns the port of URLs without one, or 0 if the scheme is not http or https.
func impliedPort(scheme string) uint16 {
	switch scheme {
	case "http":
		return portHTTP
	case "https":
		return portHTTPS
	}
	return 0
}

// parseOrigin parses scheme "://" host [ ":" port ]. It accepts all schemes, because editors and
// browser extensions have others than http and https.
func parseOrigin(s string) (o webOrigin, ok bool) {
	scheme, host, ok := strings.Cut(s, "://")
	if !ok || !isScheme(scheme) {
		return webOrigin{}, false
	}
	o.scheme = strings.ToLower(scheme)
	if o.host, ok = parseHost(host); !ok {
		return webOrigin{}, false
	}
	if o.host.port == 0 {
		o.host.port = impliedPort(o.scheme)
	}
	return o, true
}

// isScheme reports whether s is a scheme (RFC 3986, section 3.1).
func isScheme(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// ForwardedFor returns a function for [Options].ClientAddr and auth.GuardOptions.ClientAddr. The
// function returns the address that a request comes from if proxies add the address of their client
// to the header X-Forwarded-For. It trusts only entries that proxies in the given networks have
// added. It is safe for concurrent use.
func ForwardedFor(proxies ...netip.Prefix) func(*http.Request) netip.Addr {
	proxies = slices.Clone(proxies)
	isProxy := func(addr netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	return func(r *http.Request) netip.Addr {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return netip.Addr{}
		}
		addr := peer.Addr().Unmap().WithZone("")
		rest := strings.Join(r.Header["X-Forwarded-For"], ",")
		for more := true; more && isProxy(addr); {
			at := strings.LastIndexByte(rest, ',')
			next, ok := parseForwarded(strings.TrimSpace(rest[at+1:]))
			if !ok {
				break
			}
			addr, more = next, at >= 0
			rest = rest[:max(at, 0)]
		}
		return addr
	}
}

// parseForwarded parses an address as proxies write it, with or without a port.
func parseForwarded(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), true
}
