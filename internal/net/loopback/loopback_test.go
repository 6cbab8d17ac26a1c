package loopback_test

import (
	"net/http"
	"net/http/httptest"
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

func TestOnly(t *testing.T) {
	h := loopback.Only(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		host, origin string
		want         int
	}{
		{"localhost", "", 200}, {"localhost:80", "", 200}, {"127.0.0.1:80", "", 200}, {"[::1]:80", "", 200}, {"[::1]", "", 200},
		{"evil.example.com", "", 403}, {"evil.example.com:80", "", 403}, {"127.0.0.1.example.com:80", "", 403}, {"10.0.0.1:80", "", 403}, {"", "", 403},
		{"localhost:80", "http://evil.example.com", 403}, {"localhost:80", "null", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if r.Host = tt.host; tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("host %q, origin %q: got status %d, want %d", tt.host, tt.origin, w.Code, tt.want)
		}
	}
}
