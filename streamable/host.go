package streamable

import (
	"net/netip"
	"strconv"
	"strings"
)

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
