package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Defaults of [EgressOptions].
const (
	defaultEgressTimeout  = 10 * time.Second
	defaultEgressMaxBytes = 256 << 10
	maxEgressHeaderBytes  = 64 << 10
)

// ErrEgressBlocked is what a request fails with that a [GuardedTransport] does not let out, or whose response it does not let in.
var ErrEgressBlocked = errors.New("refused by the guard of outgoing requests")

// EgressOptions are the exceptions and limits of a [GuardedTransport].
type EgressOptions struct {
	// AllowLoopback lets requests go to the machine itself, by http too. It is for development and tests.
	AllowLoopback bool
	// AllowNetworks are networks that requests may go to although they are not public, as those that an organisation's own authorization server is in.
	AllowNetworks []netip.Prefix
	// Timeout is for the whole request, its body included. 0 means 10 seconds.
	Timeout time.Duration
	// MaxBytes limits a response's body. 0 means 256 KiB.
	MaxBytes int64
	// TLS is used as it is, and may be nil.
	TLS *tls.Config
}

// GuardedTransport returns a transport for requests to addresses that somebody else chose, who must not be able to make them reach what only this machine
// can reach:
//
//   - The address is judged when the connection is made, after names were resolved, so a name that means something else the second time gains nothing.
//   - Only public addresses are connected to: none of a private network, of the machine, of the link (where clouds have their metadata services), and none
//     that smuggles such an address in another.
//   - Only https, by IPv4 and IPv6, without a proxy from the environment.
//   - No redirects: a response with one is an error, also for an [http.Client] that would follow it.
//   - No cookies in either direction, no compression, and limits on time and size.
//
// What it refuses fails with an error that wraps [ErrEgressBlocked]. The transport may be used by many goroutines at once. opts may be nil.
//
// See https://modelcontextprotocol.io/docs/tutorials/security/security_best_practices.
func GuardedTransport(opts *EgressOptions) http.RoundTripper {
	var o EgressOptions
	if opts != nil {
		o = *opts
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultEgressTimeout
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultEgressMaxBytes
	}
	return &egressTransport{
		opts: o,
		https: o.transport(func(addr netip.Addr) bool {
			return isPublic(addr) || o.AllowLoopback && addr.IsLoopback() || containsAddr(o.AllowNetworks, addr)
		}),
		loopbackHTTP: o.transport(netip.Addr.IsLoopback),
	}
}

type egressTransport struct {
	opts EgressOptions
	// loopbackHTTP is for http, which is for the machine itself only. It is a transport of its own because the dialer is not told the scheme.
	https, loopbackHTTP *http.Transport
}

func (o *EgressOptions) transport(allowed func(netip.Addr) bool) *http.Transport {
	dialer := &net.Dialer{
		Timeout: o.Timeout,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return checkDial(network, address, allowed)
		},
	}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        o.TLS.Clone(),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           8,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        15 * time.Second,
		TLSHandshakeTimeout:    o.Timeout,
		ResponseHeaderTimeout:  o.Timeout,
		MaxResponseHeaderBytes: maxEgressHeaderBytes,
	}
}

// checkDial judges the address of a connection that is about to be made.
func checkDial(network, address string, allowed func(netip.Addr) bool) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %q", ErrEgressBlocked, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: address %q", ErrEgressBlocked, address)
	}
	addr := ap.Addr()
	if addr.Zone() != "" || !allowed(addr.Unmap()) {
		return fmt.Errorf("%w: %s is not a public address", ErrEgressBlocked, addr)
	}
	return nil
}

func containsAddr(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// RoundTrip implements [http.RoundTripper].
func (t *egressTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	rt, err := t.choose(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(req.Context(), t.opts.Timeout)
	req = req.Clone(ctx)
	req.Header.Del("Cookie")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("%w: %s answered with a redirect (status %d)", ErrEgressBlocked, req.URL.Host, resp.StatusCode)
	}
	resp.Header.Del("Set-Cookie")
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: t.opts.MaxBytes, cancel: cancel}
	return resp, nil
}

// choose returns the transport for a request, or why there is none.
func (t *egressTransport) choose(req *http.Request) (*http.Transport, error) {
	if req.URL.User != nil {
		return nil, fmt.Errorf("%w: a URL with a password", ErrEgressBlocked)
	}
	switch {
	case req.URL.Scheme == "https":
		return t.https, nil
	case req.URL.Scheme == "http" && t.opts.AllowLoopback && isLoopbackHost(req.URL.Hostname()):
		return t.loopbackHTTP, nil
	}
	return nil, fmt.Errorf("%w: scheme %q for host %q", ErrEgressBlocked, req.URL.Scheme, req.URL.Hostname())
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// isLoopbackHost reports whether host, without a port, names the machine itself without asking anybody.
func isLoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// limitedBody fails when more than left bytes come, and ends the request's timeout when it is closed.
type limitedBody struct {
	io.ReadCloser
	left   int64
	cancel context.CancelFunc
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w: the response is too large", ErrEgressBlocked)
	}
	// One byte more than there may be tells a body that is too large from one that ends here.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, fmt.Errorf("%w: the response is too large", ErrEgressBlocked)
	}
	return n, err
}

func (b *limitedBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// publicIPv6 is all of IPv6 that is given out to the public. What is outside of it is refused unseen: loopback, link-local, site-local and unique local
// addresses, multicast, the forms that carry an address of IPv4 (compatible, mapped, translated, NAT64) and whatever is reserved today.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// specialPrefixes are the blocks of IANA's registries of special purposes that are not the public internet, or that are a way into something that may
// not be. IPv6 outside of [publicIPv6] needs no row.
//
// https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
var specialPrefixes = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network; 0.0.0.0 is the host itself on many systems
	netip.MustParsePrefix("10.0.0.0/8"),      // private
	netip.MustParsePrefix("100.64.0.0/10"),   // transport-grade NAT, and metadata services of some clouds
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local, and metadata services of most clouds
	netip.MustParsePrefix("172.16.0.0/12"),   // private
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.31.196.0/24"), // AS112
	netip.MustParsePrefix("192.52.193.0/24"), // AMT
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),  // private
	netip.MustParsePrefix("192.175.48.0/24"), // AS112
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast

	netip.MustParsePrefix("2001::/23"),         // protocol assignments: Teredo, ORCHID, benchmarks
	netip.MustParsePrefix("2001:db8::/32"),     // documentation
	netip.MustParsePrefix("2002::/16"),         // 6to4, which carries an address of IPv4
	netip.MustParsePrefix("2620:4f:8000::/48"), // AS112
	netip.MustParsePrefix("3fff::/20"),         // documentation
}

// isPublic reports whether addr is an address of the public internet. Addresses with a zone are not.
func isPublic(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if addr.Is6() && !publicIPv6.Contains(addr) {
		return false
	}
	for _, p := range specialPrefixes {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}
