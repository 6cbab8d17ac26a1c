package streamable

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// An access decides which requests may come in by where they say that they are for, and where they come from. It protects servers that a browser can reach:
// a page that the user happens to have open must not get at them, whether it asks across origins or has its own name point at this machine (DNS rebinding).
// Who the caller is, is for package auth. An access does not change but for what it remembers, and may be used by many goroutines at once.
type accessPolicy struct {
	hosts    map[hostName]struct{} // besides the loopback's; with port 0 on any port
	origins  map[webOrigin]struct{}
	lastHost atomic.Pointer[string] // Host header that was good; most requests have the same
}

// newAccessPolicy returns an access for [Options.Hosts] and [Options.Origins]. What is wrong with an entry is an error: something that never matches is as likely
// a mistake as something that always does.
func newAccessPolicy(hosts, origins []string) (*accessPolicy, error) {
	a := &accessPolicy{hosts: make(map[hostName]struct{}, len(hosts)), origins: make(map[webOrigin]struct{}, len(origins))}
	for _, s := range hosts {
		h, ok := parseHost(s)
		if !ok {
			return nil, fmt.Errorf("%.100q is not a host: it takes a name or an address, exactly one, with or without a port, such as mcp.example.com or [2001:db8::1]:8080", s)
		}
		a.hosts[h] = struct{}{}
	}
	for _, s := range origins {
		o, ok := parseOrigin(s)
		if !ok {
			return nil, fmt.Errorf("%.100q is not an origin: it takes a scheme and a host, exactly one, with or without a port, and nothing behind them, such as https://app.example.com", s)
		}
		a.origins[o] = struct{}{}
	}
	return a, nil
}

// A refusal of an access is a whole body: nothing of the request is in it.
const (
	forbiddenHost = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the Host header is neither localhost nor an address of the loopback. ` +
		`If this server is meant to be reached under that name, its operator has to add it to the allowed hosts (Options.Hosts)."}}` + "\n"
	forbiddenOrigin = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"web pages of this origin may not use the server. ` +
		`If they are meant to, its operator has to add the origin to the allowed ones (Options.Origins)."}}` + "\n"
	forbiddenSite = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the browser says that another site asks for this. ` +
		`If its pages are meant to use the server, its operator has to add their origin to the allowed ones (Options.Origins)."}}` + "\n"
)

// check reports whether the request may be handled. If not, it has been answered. It also adds the headers that let pages of allowed origins see the answer,
// and answers their preflight requests, so it has to come before everything that looks at who is asking: a preflight request has no credentials.
func (a *accessPolicy) check(w http.ResponseWriter, r *http.Request) bool {
	values := r.Header["Origin"]
	host, ok := a.host(r, values == nil)
	if !ok {
		return forbid(w, forbiddenHost)
	}
	if len(a.origins) > 0 {
		addVary(w.Header())
	}
	if len(values) == 0 {
		if r.Header["Sec-Fetch-Site"] != nil && !isSameOriginFetch(r) {
			return forbid(w, forbiddenSite)
		}
		return true
	}
	o, ok := parseOrigin(values[0])
	if !ok || len(values) > 1 {
		return forbid(w, forbiddenOrigin)
	}
	if _, allowed := a.origins[o]; allowed {
		return a.writeCORS(w, r)
	}
	if !o.isSameOrigin(host, r.TLS != nil) {
		return forbid(w, forbiddenOrigin)
	}
	if r.Header["Sec-Fetch-Site"] != nil && !isSameOriginFetch(r) {
		return forbid(w, forbiddenSite)
	}
	return true
}

// host returns the host that the request says it is for, and whether the server may be reached as that. Where the request is plain, without an Origin, it is not
// needed and, if it is known to be good, not looked at.
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

// allowsHost reports whether the server may be reached as h.
func (a *accessPolicy) allowsHost(h hostName) bool {
	if h.isLocal() {
		return true
	}
	if len(a.hosts) == 0 {
		return false
	}
	ports := [...]uint16{0, h.port, h.port}
	if h.port == 0 {
		ports = [...]uint16{0, portHTTP, portHTTPS} // whichever the scheme implies: TLS may end before this process
	}
	for _, port := range ports {
		h.port = port
		if _, ok := a.hosts[h]; ok {
			return true
		}
	}
	return false
}

// isSameOrigin reports whether the origin is that of the server itself, as which it was asked. Where TLS ends in this process, what came without it is of another
// origin; elsewhere the scheme cannot be told.
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

// isSameOriginFetch reports whether the browser says that the request comes from the server's own pages, or from the user. It is a second layer: browsers omit Origin where a
// page cannot see the answer, and what it did would be done all the same (https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header).
func isSameOriginFetch(r *http.Request) bool {
	v := r.Header["Sec-Fetch-Site"]
	return len(v) == 1 && (v[0] == "same-origin" || v[0] == "none")
}

// forbid answers with 403 and returns false.
func forbid(w http.ResponseWriter, body string) bool {
	h := w.Header()
	setHeader(h, jsonType)
	h["X-Content-Type-Options"] = noSniff
	w.WriteHeader(http.StatusForbidden)
	io.WriteString(w, body) // whoever does not want to read it need not
	return false
}

// noSniff is shared by responses; nobody changes it.
var noSniff = []string{"nosniff"}

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

// A hostName is the host and port of a Host header or of an origin, in the one form in which they are compared. One of name and addr is set.
type hostName struct {
	name string     // lower case, without the dot of the root
	addr netip.Addr // without a zone, IPv4 in IPv6 unwrapped
	port uint16     // 0 if there is none
}

const maxHost = 300 // bytes: a name has 253 at most, a port 5

// parseHost reads host [ ":" port ] as in RFC 9110, section 7.2. Names are of the characters that occur in DNS and the files of hosts; internationalised
// ones are in their ASCII form. It does not allocate unless there are capital letters.
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
		return hostName{}, false // such as 127.1, which programs differ about
	}
	return h.withPort(port, colon)
}

// parseBracketed reads the address of an IPv6 host. A zone means nothing to anybody but the sender (RFC 6874, section 3), so it is left out.
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

// hostCharacters reports whether s can be a name, or the dotted form of an address, in which there are no letters.
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
	if !colon || port == "" { // an empty port is none: RFC 3986, section 3.2.3
		return h, true
	}
	if port[0] < '0' || port[0] > '9' {
		return hostName{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return hostName{}, false
	}
	h.port = uint16(n)
	return h, true
}

// isLocal reports whether the host is this machine's loopback by whatever the resolver may say.
func (h hostName) isLocal() bool { return h.name == "localhost" || h.addr.IsLoopback() }

// A webOrigin is an origin as in RFC 6454, section 4, in the one form in which it is compared. A port that the scheme implies is there.
type webOrigin struct {
	scheme string
	host   hostName
}

const (
	portHTTP  = 80
	portHTTPS = 443
)

// impliedPort returns the port of URLs that name none, 0 if the scheme is not one of the web.
func impliedPort(scheme string) uint16 {
	switch scheme {
	case "http":
		return portHTTP
	case "https":
		return portHTTPS
	}
	return 0
}

// parseOrigin reads scheme "://" host [ ":" port ]. The scheme may be another than those of the web, because editors and browser extensions have their own.
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

// isScheme checks what RFC 3986, section 3.1, has.
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

// ForwardedFor returns a function for [Options].ClientAddr and auth.GuardOptions.ClientAddr: the
// address that a request comes from, where it comes through proxies that add the address of whom
// they got it from to the header X-Forwarded-For. It believes what proxies have added, whose
// addresses are in the networks given, and nothing that came before. The function may be called by
// many goroutines at once.
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
		headers := r.Header["X-Forwarded-For"]
		for i := len(headers) - 1; i >= 0; i-- {
			for rest, more := headers[i], true; more; {
				if !isProxy(addr) {
					return addr
				}
				at := strings.LastIndexByte(rest, ',')
				next, ok := parseForwarded(strings.TrimSpace(rest[at+1:]))
				if !ok {
					return addr
				}
				addr, more = next, at >= 0
				rest = rest[:max(at, 0)]
			}
		}
		return addr
	}
}

// parseForwarded reads an address as proxies write it, which may have a port.
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
