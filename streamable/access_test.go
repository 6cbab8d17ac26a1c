package streamable

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// accessRequest returns a request with the given Host and Origin headers.
func accessRequest(host string, header http.Header) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://placeholder/mcp", strings.NewReader("{}"))
	r.Host = host
	if header != nil {
		r.Header = header
	}
	return r
}

func mustAccess(t testing.TB, hosts, origins []string) *accessPolicy {
	t.Helper()
	a, err := newAccessPolicy(hosts, origins)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// checkRejected checks that the response is a JSON-RPC error without an id and without CORS
// headers.
func checkRejected(t *testing.T, w *httptest.ResponseRecorder, fix string) {
	t.Helper()
	var body struct {
		JSONRPC string
		ID      json.RawMessage
		Error   struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	if w.Code != http.StatusForbidden || body.JSONRPC != "2.0" || body.ID != nil || body.Error.Code != -32600 || !strings.Contains(body.Error.Message, fix) {
		t.Errorf("got status %d, %s, want a 403 and an error without an id that names %s", w.Code, w.Body, fix)
	}
	for name := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("the response has the header %s", name)
		}
	}
}

func TestAccessHost(t *testing.T) {
	a := mustAccess(t, []string{"mcp.example.com", "Port.Example.com:8443", "web.example.com:443", "192.0.2.7", "[2001:db8::1]:8080", "fe80.example.", "box"}, nil)
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:1": true, "localhost.": true, "localhost.:80": true, "localhost:": true,
		"127.0.0.1": true, "127.0.0.1:8080": true, "127.9.8.7": true, "127.0.0.1.": true,
		"[::1]": true, "[::1]:8080": true, "[0:0:0:0:0:0:0:1]": true, "[::ffff:127.0.0.1]:1": true, "[::1%25lo]": true, "[::1%lo]:2": true,

		"mcp.example.com": true, "MCP.example.COM:99": true, "mcp.example.com.": true,
		"port.example.com:8443": true, "port.example.com": false, "port.example.com:8444": false,
		"web.example.com": true, "web.example.com:443": true, "web.example.com:80": false,
		"192.0.2.7:1": true, "[2001:DB8:0::1]:8080": true, "[2001:db8::1]": false, "[2001:db8::1%eth0]:8080": true, "fe80.example": true, "box:1": true,

		"": false, ":80": false, ".": false, "evil.example": false, "evil.localhost": false, "localhost.evil.example": false, "notlocalhost": false, "localhos": false,
		"xmcp.example.com": false, "mcp.example.com.evil.example": false, "example.com": false, "localhost..": false, ".localhost": false,
		"127.0.0.1.evil.example": false, "127.1": false, "2130706433": false, "0x7f000001": false, "0177.0.0.1": false, "0.0.0.0": false, "0.0.0.0:8080": false,
		"[::]": false, "::1": false, "[::1": false, "[::1]x": false, "[::1]8080": false, "[127.0.0.1]": false, "[localhost]": false, "[::1%]": false, "[::1%25]": false,
		"[::1%l\"o]": false, "[]": false, "[::ffff:192.0.2.8]": false,
		"localhost:0": false, "localhost:65536": false, "localhost:+80": false, "localhost:80:80": false, "localhost:8o": false, "localhost: 80": false,
		"user@localhost": false, "localhost@evil.example": false, "localhost/evil": false, "localhost#": false, "localhost,evil.example": false, "localhost evil": false,
		"localho\u017ft": false, "loca\u2113host": false, "localhost\x00": false, "localhost%00": false, "*": false, "null": false, "localhost\\evil": false,
		strings.Repeat("a.", 200) + "example": false,
	} {
		w := httptest.NewRecorder()
		if got := a.check(w, accessRequest(host, nil)); got != want {
			t.Errorf("with the Host header %q: %v, want %v", host, got, want)
		} else if !want {
			checkRejected(t, w, "Options.Hosts")
			if host = strings.TrimSpace(host); strings.Contains(host, "evil") && strings.Contains(w.Body.String(), host) {
				t.Errorf("the refusal repeats %q", host)
			}
		}
	}
}

// Spec: S69 S70
func TestAccessOrigin(t *testing.T) {
	a := mustAccess(t, []string{"mcp.example.com", "plain.example.com"}, []string{"https://app.example.com", "http://localhost:3000", "https://port.example.com:444", "vscode-webview://abc123"})
	for _, test := range []struct {
		host, origin string
		want         bool
	}{
		{"localhost:8080", "http://localhost:8080", true}, // pages of the server itself
		{"localhost:8080", "http://LOCALHOST:8080", true},
		{"127.0.0.1:8080", "https://127.0.0.1:8080", true}, // TLS may be terminated by a proxy
		{"[::1]:8080", "http://[::1]:8080", true},
		{"mcp.example.com", "https://mcp.example.com", true},
		{"mcp.example.com", "https://mcp.example.com:443", true},
		{"mcp.example.com:443", "https://mcp.example.com", true},
		{"mcp.example.com", "http://mcp.example.com", true},
		{"mcp.example.com:443", "http://mcp.example.com", false},
		{"mcp.example.com", "https://mcp.example.com:8443", false},
		{"localhost:8080", "http://localhost:8081", false},
		{"localhost:8080", "http://localhost", false},
		{"localhost:8080", "http://127.0.0.1:8080", false}, // another origin for browsers too
		{"localhost:8080", "ftp://localhost:8080", false},
		// a host of the server, but another one
		{"mcp.example.com", "https://plain.example.com", false},

		{"localhost:8080", "https://app.example.com", true},
		{"localhost:8080", "https://app.example.com:443", true},
		{"localhost:8080", "HTTPS://App.Example.Com", true},
		{"localhost:8080", "http://localhost:3000", true},
		{"localhost:8080", "https://port.example.com:444", true},
		{"localhost:8080", "vscode-webview://abc123", true},
		{"localhost:8080", "https://port.example.com", false},
		{"localhost:8080", "http://app.example.com", false},
		{"localhost:8080", "https://app.example.com.evil.example", false},
		{"localhost:8080", "https://evil-app.example.com", false},
		{"localhost:8080", "https://app.example.com:444", false},
		{"localhost:8080", "vscode-webview://abc1234", false},
		{"localhost:8080", "https://evil.example", false},

		{"localhost:8080", "null", false},
		{"localhost:8080", "", false},
		{"localhost:8080", "*", false},
		{"localhost:8080", "https://app.example.com/", false},
		{"localhost:8080", "https://app.example.com/x", false},
		{"localhost:8080", "https://app.example.com https://evil.example", false},
		{"localhost:8080", "https://app.example.com, https://evil.example", false},
		{"localhost:8080", "https://user@app.example.com", false},
		{"localhost:8080", "app.example.com", false},
		{"localhost:8080", "//app.example.com", false},
		{"localhost:8080", "https:app.example.com", false},
		{"localhost:8080", "https://", false},
		{"localhost:8080", "://localhost:8080", false},
		{"localhost:8080", "1http://localhost:8080", false},
		{"localhost:8080", "http://localhost:8080\x00", false},
	} {
		w := httptest.NewRecorder()
		if got := a.check(w, accessRequest(test.host, http.Header{"Origin": {test.origin}})); got != test.want {
			t.Errorf("origin %q at %s: %v, want %v", test.origin, test.host, got, test.want)
		} else if !test.want {
			checkRejected(t, w, "Options.Origins")
		}
		if got := w.Header()["Vary"]; len(got) != 1 || got[0] != "Origin" {
			t.Errorf("origin %q: Vary is %q", test.origin, got)
		}
	}
	for _, values := range [][]string{{"https://app.example.com", "https://app.example.com"}, {"https://app.example.com", "https://evil.example"}} {
		w := httptest.NewRecorder()
		if a.check(w, accessRequest("localhost", http.Header{"Origin": values})) {
			t.Errorf("several origins, %q, were accepted", values)
		}
		checkRejected(t, w, "Options.Origins")
	}
}

// TestAccessOriginSecure shows that pages over plain HTTP are rejected if this server terminates
// TLS, since anyone on the network path could have changed them.
func TestAccessOriginSecure(t *testing.T) {
	a := mustAccess(t, []string{"mcp.example.com"}, nil)
	for origin, want := range map[string]bool{"http://mcp.example.com": false, "http://mcp.example.com:443": false, "https://mcp.example.com": true} {
		r := accessRequest("mcp.example.com", http.Header{"Origin": {origin}})
		r.TLS = new(tls.ConnectionState)
		if got := a.check(httptest.NewRecorder(), r); got != want {
			t.Errorf("%s: %v, want %v", origin, got, want)
		}
	}
}

func TestAccessFetchMetadata(t *testing.T) {
	a := mustAccess(t, nil, []string{"https://app.example.com"})
	const own, allowed, evil = "http://localhost:8080", "https://app.example.com", "https://evil.example"
	for _, test := range []struct {
		origin string
		site   []string
		want   bool
	}{
		{"", []string{"same-origin"}, true},
		{"", []string{"none"}, true},
		{"", []string{"same-site"}, false}, // a different port on localhost is the same site
		{"", []string{"cross-site"}, false},
		{"", []string{"new-value"}, false},
		{"", []string{""}, false},
		{"", []string{}, false},
		{"", []string{"same-origin", "cross-site"}, false},
		{own, []string{"same-origin"}, true},
		{own, []string{"cross-site"}, false},
		{allowed, []string{"cross-site"}, true},
		{allowed, []string{"same-site"}, true},
		{evil, []string{"same-origin"}, false},
	} {
		header := http.Header{"Sec-Fetch-Site": test.site}
		if test.origin != "" {
			header["Origin"] = []string{test.origin}
		}
		w := httptest.NewRecorder()
		if got := a.check(w, accessRequest("localhost:8080", header)); got != test.want {
			t.Errorf("origin %q, site %q: %v, want %v", test.origin, test.site, got, test.want)
		} else if !test.want {
			checkRejected(t, w, "Options.Origins")
		}
	}
}

func TestNewAccess(t *testing.T) {
	for _, host := range []string{"", "*", "*.example.com", "https://example.com", "example.com/mcp", "a b", "example.com:http", "example.com:0", "::1", "[::1", "bücher.example", "1.2.3", "a,b"} {
		if _, err := newAccessPolicy([]string{"ok.example", host}, nil); err == nil {
			t.Errorf("the host %q is taken", host)
		}
	}
	for _, origin := range []string{"", "*", "null", "example.com", "https://example.com/", "https://*", "https://*.example.com", "https://", "file://", "https://a b", "https://a@b", "https://bücher.example", "a\nb://c"} {
		if _, err := newAccessPolicy(nil, []string{"https://ok.example", origin}); err == nil {
			t.Errorf("the origin %q is taken", origin)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("error %q", err)
		}
	}
}

func TestCORS(t *testing.T) {
	a := mustAccess(t, nil, []string{"https://app.example.com"})
	const asked = "content-type, mcp-method,MCP-Param-Region , x-evil, mcp-, mcp-a b, mcp-ü, mcp-param-\x00, Mcp-Param-Täg, authorization"

	w := httptest.NewRecorder()
	if !a.check(w, accessRequest("localhost", http.Header{"Origin": {"https://app.example.com"}})) {
		t.Fatal("an allowed origin was rejected")
	}
	h := w.Header()
	if got := h["Access-Control-Allow-Origin"]; len(got) != 1 || got[0] != "https://app.example.com" {
		t.Errorf("Access-Control-Allow-Origin is %q", got)
	}
	for _, name := range []string{"Mcp-Session-Id", "WWW-Authenticate", "MCP-Protocol-Version"} {
		if !strings.Contains(h.Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("%s is not exposed", name)
		}
	}

	w = httptest.NewRecorder()
	r := accessRequest("localhost", http.Header{"Origin": {"https://app.example.com"}, "Access-Control-Request-Method": {"POST"},
		"Access-Control-Request-Headers": {asked, "mcp-name,mcp-param-x"}})
	r.Method = http.MethodOptions
	if a.check(w, r) {
		t.Error("a preflight request was passed to the handler")
	}
	h = w.Header()
	if w.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Methods") != "POST, GET, DELETE" || h.Get("Access-Control-Max-Age") == "" ||
		h.Get("Access-Control-Allow-Origin") != "https://app.example.com" || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight request: status %d, %v", w.Code, h)
	}
	if got, want := h.Get("Access-Control-Allow-Headers"), corsHeaders+", mcp-method, MCP-Param-Region, mcp-name, mcp-param-x"; got != want {
		t.Errorf("Access-Control-Allow-Headers\n got %q\nwant %q", got, want)
	}
}

func TestCORSRejected(t *testing.T) {
	for _, origins := range [][]string{nil, {"https://app.example.com"}} {
		a := mustAccess(t, nil, origins)
		for _, origin := range []string{"https://evil.example", "null"} {
			w := httptest.NewRecorder()
			r := accessRequest("localhost", http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}})
			r.Method = http.MethodOptions
			if a.check(w, r) {
				t.Errorf("a preflight request of %s was accepted", origin)
			}
			checkRejected(t, w, "Options.Origins")
		}
		w := httptest.NewRecorder()
		if !a.check(w, accessRequest("localhost", http.Header{"Origin": {"http://localhost"}})) {
			t.Error("the server's own page was rejected")
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("the server's own page got Access-Control-Allow-Origin %q, which it does not need", got)
		}
	}
}

// TestCORSBounds shows that the headers allowed by the response to a preflight request are limited.
func TestCORSBounds(t *testing.T) {
	got := allowedHeaders([]string{strings.Repeat("mcp-param-"+strings.Repeat("x", 200)+",", 1000), "mcp-" + strings.Repeat("y", 1000)})
	if len(got) > maxCORSHeaders+maxCORSHeader || strings.Contains(got, "yyy") {
		t.Errorf("%d bytes of headers are allowed", len(got))
	}
}

// TestCORSVary shows that responses do not share the value of the Vary header.
func TestCORSVary(t *testing.T) {
	a := mustAccess(t, nil, []string{"https://app.example.com"})
	first, second := httptest.NewRecorder(), httptest.NewRecorder()
	second.Header().Set("Vary", "Accept")
	a.check(first, accessRequest("localhost", nil))
	first.Header().Add("Vary", "Cookie")
	a.check(second, accessRequest("localhost", nil))
	third := httptest.NewRecorder()
	a.check(third, accessRequest("localhost", nil))
	if got := second.Header()["Vary"]; len(got) != 2 || got[0] != "Accept" || got[1] != "Origin" {
		t.Errorf("Vary is %q", got)
	}
	if got := third.Header()["Vary"]; len(got) != 1 || got[0] != "Origin" {
		t.Errorf("Vary is %q", got)
	}
}

func TestAccessAllocs(t *testing.T) {
	for name, a := range map[string]*accessPolicy{
		"defaults":   mustAccess(t, nil, nil),
		"configured": mustAccess(t, []string{"mcp.example.com"}, []string{"https://app.example.com"}),
	} {
		for _, host := range []string{"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "mcp.example.com:443"} {
			w, r := httptest.NewRecorder(), accessRequest(host, nil)
			if a.check(w, r) != (host[0] != 'm' || name == "configured") {
				t.Errorf("%s: %s wrong decision", name, host)
			}
			if host[0] == 'm' && name == "defaults" {
				continue
			}
			header := w.Header()
			if n := testing.AllocsPerRun(100, func() {
				delete(header, "Vary")
				a.check(w, r)
			}); n > 0 {
				t.Errorf("%s: %v allocations for a request to %s", name, n, host)
			}
		}
	}
}

// FuzzAccessHost shows that the default configuration accepts only loopback hosts, as parsed by the
// standard library.
func FuzzAccessHost(f *testing.F) {
	for _, s := range []string{"localhost:8080", "127.0.0.1", "[::1]:1", "evil.example", "[::ffff:127.0.0.1%25x]", "localhost.", "127.1"} {
		f.Add(s, "http://"+s)
	}
	a := mustAccess(f, nil, nil)
	f.Fuzz(func(t *testing.T, host, origin string) {
		if !a.check(httptest.NewRecorder(), accessRequest(host, http.Header{"Origin": {origin}})) {
			return
		}
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		}
		name = strings.TrimSuffix(strings.ToLower(name), ".")
		addr, err := netip.ParseAddr(name)
		if name != "localhost" && (err != nil || !addr.WithZone("").Unmap().IsLoopback()) {
			t.Errorf("the Host header %q was accepted", host)
		}
		if i := strings.Index(origin, "://"); i < 0 || !strings.EqualFold(origin[:i], "http") && !strings.EqualFold(origin[:i], "https") {
			t.Errorf("the origin %q was accepted at %q", origin, host)
		}
	})
}

func TestForwardedFor(t *testing.T) {
	client := ForwardedFor(netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
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
