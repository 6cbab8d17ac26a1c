// Package loopback recognizes the names and addresses of this machine, and requests that name them.
package loopback

import (
	"net"
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

// Allows reports whether a request with this Host, and this Origin or "", is for this machine and
// not from a web page, which may have changed the address of its name.
func Allows(host, origin string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return IsHost(strings.Trim(host, "[]")) && origin == ""
}
