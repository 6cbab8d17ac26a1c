package taphttp

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"mcpwire/internal/net/loopback"
)

// access decides by which names clients may reach the tap. The server sees its own name in the Host
// header, and cannot detect a page that lets its name point to this machine (DNS rebinding). An
// address cannot be rebound, so all addresses are allowed.
type access struct {
	names   map[string]bool
	anyHost bool
}

func newAccess(hosts []string) (access, error) {
	a := access{names: map[string]bool{"localhost": true}}
	for _, h := range hosts {
		if h == "*" {
			a.anyHost = true
			continue
		}
		name, ok := hostname(h)
		if !ok {
			return access{}, fmt.Errorf("taphttp: %.100q is not the name of a host", h)
		}
		a.names[name] = true
	}
	return a, nil
}

// allows reports whether a Host header is allowed.
func (a access) allows(host string) bool {
	name, ok := hostname(host)
	if !ok {
		return false
	}
	_, err := netip.ParseAddr(name)
	return a.anyHost || err == nil || a.names[name]
}

// trusts reports whether an origin is this machine or one of the allowed hosts. The tap replaces
// only such origins: the server could not distinguish other pages from them otherwise.
func (a access) trusts(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	name, ok := hostname(u.Host)
	return ok && (a.anyHost || a.names[name] || loopback.IsHost(name))
}

// maxHost is in bytes: a name has at most 253, a port 5.
const maxHost = 300

// hostname returns the host of host [ ":" port ], in lower case and without a trailing dot. It
// accepts only the characters of hosts, since the result becomes part of URLs.
func hostname(s string) (string, bool) {
	if s == "" || len(s) > maxHost || strings.ContainsFunc(s, isNotHostChar) {
		return "", false
	}
	name := s
	if host, port, err := net.SplitHostPort(s); err == nil {
		if strings.ContainsFunc(port, func(c rune) bool { return c < '0' || c > '9' }) {
			return "", false
		}
		name = host
	} else {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.ContainsAny(name, "[]") || strings.Contains(name, ":") && !isIPv6(name) {
		return "", false
	}
	return name, name != ""
}

func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6() && addr.Zone() == ""
}

func isNotHostChar(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:[]", c)
}

// upgrades reports whether a request wants to leave HTTP. It ignores h2c, which some clients always
// offer and a server may ignore.
func upgrades(r *http.Request) bool {
	if r.Method == http.MethodConnect {
		return true
	}
	for _, v := range r.Header.Values("Upgrade") {
		for protocol := range strings.SplitSeq(v, ",") {
			if p := strings.TrimSpace(protocol); p != "" && !strings.EqualFold(p, "h2c") {
				return true
			}
		}
	}
	return false
}
