// Package loopback recognizes the names and addresses of this machine, and requests that name them.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// IsHost reports whether a host without a port is this machine: localhost, or a loopback address
// without a zone. It does not use DNS.
func IsHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// Only rejects requests for other hosts than this machine, and requests with an origin. They come
// from web pages, which may have changed the address of their name.
func Only(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !IsHost(strings.Trim(host, "[]")) || r.Header.Get("Origin") != "" {
			http.Error(w, "only for this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
