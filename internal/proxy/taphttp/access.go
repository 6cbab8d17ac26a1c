package taphttp

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// access says under which names clients may reach the tap. The server behind it sees its own name in the Host header, whatever the client sent, and could
// not tell that a page has had its name point to this machine (DNS rebinding). An address cannot be made to point elsewhere, so all of them are good.
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

// allows judges a Host header.
func (a access) allows(host string) bool {
	name, ok := hostname(host)
	if !ok {
		return false
	}
	_, err := netip.ParseAddr(name)
	return a.anyHost || err == nil || a.names[name]
}

// trusts says whether the pages of an origin are this machine's or those of a host that clients were allowed to name. Only their origin is changed for the server: with
// it, the server would have no way to tell any other page from them.
func (a access) trusts(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	name, ok := hostname(u.Host)
	return ok && (a.anyHost || a.names[name] || isLoopback(name))
}

const maxHost = 300 // bytes: a name has 253 at most, a port 5

// hostname returns the host of host [ ":" port ], in lower case and without the dot of the root. Only characters that hosts consist of are let through, since it
// is put in URLs.
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

// upgrades reports whether a request wants to leave HTTP. To h2c, which some clients always offer and no server has to take, it is enough to say nothing.
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
