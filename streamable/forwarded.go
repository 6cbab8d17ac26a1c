package streamable

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

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
