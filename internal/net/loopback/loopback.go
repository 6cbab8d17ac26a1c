// Package loopback recognizes the names and addresses of this machine.
package loopback

import (
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
