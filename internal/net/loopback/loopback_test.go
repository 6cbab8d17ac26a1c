package loopback_test

import (
	"net"
	"testing"

	"mcpwire/internal/net/loopback"
)

func TestIsHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.8.0.1": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "10.0.0.1": false, "::2": false, "::1%eth0": false, "[::1]": false,
	} {
		if got := loopback.IsHost(host); got != want {
			t.Errorf("IsHost(%q) = %v, want %v", host, got, want)
		}
	}
}

func TestAllows(t *testing.T) {
	for _, tt := range []struct {
		host, origin string
		want         bool
	}{
		{"localhost", "", true}, {"localhost:80", "", true}, {"127.0.0.1:80", "", true}, {"[::1]:80", "", true}, {"[::1]", "", true},
		{"evil.example.com", "", false}, {"evil.example.com:80", "", false}, {"127.0.0.1.example.com:80", "", false}, {"10.0.0.1:80", "", false}, {"", "", false},
		{"localhost:80", "http://evil.example.com", false}, {"localhost:80", "null", false},
	} {
		if got := loopback.Allows(tt.host, tt.origin); got != tt.want {
			t.Errorf("Allows(%q, %q) = %v, want %v", tt.host, tt.origin, got, tt.want)
		}
	}
}

func TestFreeAddresses(t *testing.T) {
	all, err := loopback.FreeAddresses(20)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range all {
		l, err := net.Listen("tcp", address) // twice the same address would fail
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; port < 16<<10 || port >= 32<<10 {
			t.Errorf("got port %d, want one below those that systems choose", port)
		}
	}
}
