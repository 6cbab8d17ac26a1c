// Package loopback recognizes the names and addresses of this machine, and requests that name
// them, and finds free ports.
package loopback

import (
	"fmt"
	"math/rand/v2"
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

// FreeAddresses returns different addresses on the loopback interface that nobody listens on, for
// processes that must know each other before they listen. The ports are below those that systems
// give to outgoing connections and to listeners at port 0, so that none of these takes one in the
// meantime.
func FreeAddresses(n int) (addresses []string, err error) {
	const first, end, maxFailures = 16 << 10, 32 << 10, 100
	for failures := 0; len(addresses) < n; {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", first+rand.IntN(end-first)))
		if err == nil {
			defer l.Close() // the next port is another one
			addresses = append(addresses, l.Addr().String())
		} else if failures++; failures == maxFailures {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	return addresses, nil
}
