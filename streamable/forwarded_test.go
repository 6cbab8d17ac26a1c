package streamable_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"mcpwire/streamable"
)

func TestForwardedFor(t *testing.T) {
	client := streamable.ForwardedFor(netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	for _, tt := range []struct {
		name, remote string
		header       []string
		want         string
	}{
		{"no proxy", "192.0.2.1:5", nil, "192.0.2.1"},
		{"no proxy, with a header", "192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"},
		{"proxy without a header", "127.0.0.1:5", nil, "127.0.0.1"},
		{"proxy", "127.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1"},
		{"forged first element", "127.0.0.1:5", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"forged first header", "127.0.0.1:5", []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "[fd00::1]:5", []string{"198.51.100.1,10.1.1.1"}, "198.51.100.1"},
		{"two proxies, two headers", "127.0.0.1:5", []string{"198.51.100.1", "10.1.1.1"}, "198.51.100.1"},
		{"proxies only", "127.0.0.1:5", []string{"10.0.0.2, 10.1.1.1"}, "10.0.0.2"},
		{"port", "127.0.0.1:5", []string{"198.51.100.1:80"}, "198.51.100.1"},
		{"IPv6 with a port", "127.0.0.1:5", []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		{"IPv6 in brackets", "127.0.0.1:5", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv4-mapped proxy, client with a zone", "[::ffff:127.0.0.1]:5", []string{"fe80::1%eth0"}, "fe80::1"},
		{"invalid address", "127.0.0.1:5", []string{"198.51.100.1, unknown"}, "127.0.0.1"},
		{"empty", "127.0.0.1:5", []string{""}, "127.0.0.1"},
		{"empty element", "127.0.0.1:5", []string{"198.51.100.1,"}, "127.0.0.1"},
		{"no remote address", "pipe", []string{"198.51.100.1"}, "invalid IP"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr = tt.remote
		if tt.header != nil {
			r.Header["X-Forwarded-For"] = tt.header
		}
		if got := client(r).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
