// Package egress sends requests to addresses that somebody else chose, without reaching what only
// this machine can reach.
package egress

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

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/net/loopback"
)

// Defaults of [Options].
const (
	defaultTimeout  = 10 * time.Second
	defaultMaxBytes = 256 << 10
	maxHeaderBytes  = 64 << 10
)

// ErrBlocked is the error of a request or response that the transport of [NewTransport] blocks.
var ErrBlocked = errors.New("rejected by the guard for outgoing requests")

// Options are the exceptions and limits of [NewTransport].
type Options struct {
	// AllowLoopback allows loopback addresses, also with http. It is for development and tests.
	AllowLoopback bool
	// AllowNetworks are additional networks that are not public, for example that of an
	// organization's own authorization server.
	AllowNetworks []netip.Prefix
	// Timeout limits the whole request, with its body. Zero means 10 seconds.
	Timeout time.Duration
	// MaxBytes limits a response's body, in bytes. Zero means 256 KiB.
	MaxBytes int64
	// TLS is the TLS configuration. It may be nil.
	TLS *tls.Config
}

// NewTransport returns a transport for requests to addresses that somebody else chose. It
// prevents them from reaching what only this machine can reach:
//
//   - It checks the address when it connects, after names were resolved, so a name that later
//     resolves to another address gains nothing.
//   - It connects only to public addresses: not to private networks, the machine itself, link-local
//     addresses (where clouds have their metadata services), or addresses that embed such an
//     address.
//   - It allows only https, over IPv4 and IPv6, without a proxy from the environment.
//   - It rejects redirects: such a response is an error, also for an [http.Client] that would
//     follow it.
//   - It drops cookies in both directions, does not compress, and limits time and size.
//
// Blocked requests fail with an error that wraps [ErrBlocked]. Many goroutines may use the
// transport at once. opts may be nil.
//
// See https://modelcontextprotocol.io/docs/tutorials/security/security_best_practices.
func NewTransport(opts *Options) http.RoundTripper {
	var o Options
	if opts != nil {
		o = *opts
	}
	defaults.IfNotPositive(&o.Timeout, defaultTimeout)
	defaults.IfNotPositive(&o.MaxBytes, defaultMaxBytes)
	return &transport{
		opts: o,
		https: o.httpTransport(func(addr netip.Addr) bool {
			return isPublic(addr) || o.AllowLoopback && addr.IsLoopback() || containsAddr(o.AllowNetworks, addr)
		}),
		loopbackHTTP: o.httpTransport(netip.Addr.IsLoopback),
	}
}

type transport struct {
	opts Options
	// loopbackHTTP is for http, which is only for loopback addresses. It is separate because the
	// dialer does not know the scheme.
	https, loopbackHTTP *http.Transport
}

func (o *Options) httpTransport(allowed func(netip.Addr) bool) *http.Transport {
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
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// checkDial checks the address of a connection before it is made.
func checkDial(network, address string, allowed func(netip.Addr) bool) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %q", ErrBlocked, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: address %q", ErrBlocked, address)
	}
	addr := ap.Addr()
	if addr.Zone() != "" || !allowed(addr.Unmap()) {
		return fmt.Errorf("%w: %s is not a public address", ErrBlocked, addr)
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
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
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
		return nil, fmt.Errorf("%w: %s responded with a redirect (status %d)", ErrBlocked, req.URL.Host, resp.StatusCode)
	}
	resp.Header.Del("Set-Cookie")
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: t.opts.MaxBytes, cancel: cancel}
	return resp, nil
}

// choose returns the transport for a request, or an error if it is blocked.
func (t *transport) choose(req *http.Request) (*http.Transport, error) {
	if req.URL.User != nil {
		return nil, fmt.Errorf("%w: a URL with a password", ErrBlocked)
	}
	switch {
	case req.URL.Scheme == "https":
		return t.https, nil
	case req.URL.Scheme == "http" && t.opts.AllowLoopback && loopback.IsHost(req.URL.Hostname()):
		return t.loopbackHTTP, nil
	}
	return nil, fmt.Errorf("%w: scheme %q for host %q", ErrBlocked, req.URL.Scheme, req.URL.Hostname())
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// limitedBody fails after more than left bytes, and releases the request's timeout when it is
// closed.
type limitedBody struct {
	io.ReadCloser
	left   int64
	cancel context.CancelFunc
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w: the response is too large", ErrBlocked)
	}
	// One byte more distinguishes a body that is too large from one that ends here.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, fmt.Errorf("%w: the response is too large", ErrBlocked)
	}
	return n, err
}

func (b *limitedBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// publicIPv6 is the public part of IPv6. Addresses outside of it are rejected: loopback,
// link-local, site-local and unique local addresses, multicast, forms that embed an IPv4 address
// (compatible, mapped, translated, NAT64) and reserved addresses.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// specialPrefixes are the blocks in IANA's special-purpose registries that are not the public
// internet, or that may lead elsewhere. IPv6 outside of [publicIPv6] needs no entry.
//
// https://www.iana.org/assignments/iana-ipv4-special-registry,
// https://www.iana.org/assignments/iana-ipv6-special-registry
var specialPrefixes = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network, often the host itself
	netip.MustParsePrefix("10.0.0.0/8"),      // private
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT, some metadata services
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local, most metadata services
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
	netip.MustParsePrefix("2002::/16"),         // 6to4, which embeds an IPv4 address
	netip.MustParsePrefix("2620:4f:8000::/48"), // AS112
	netip.MustParsePrefix("3fff::/20"),         // documentation
}

// isPublic reports whether addr is an address of the public internet. Addresses with a zone are
// not.
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
