package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Spec: C163
func TestIsPublic(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want bool
	}{
		{"8.8.8.8", true},
		{"1.1.1.1", true},
		{"223.255.255.255", true},
		{"2606:4700:4700::1111", true},
		{"2a00:1450:4001::1", true},
		{"::ffff:8.8.8.8", true},

		{"0.0.0.0", false}, {"0.1.2.3", false}, {"10.0.0.1", false}, {"100.64.0.1", false}, {"100.127.255.255", false}, {"100.100.100.200", false},
		{"127.0.0.1", false}, {"127.255.0.1", false}, {"169.254.169.254", false}, {"172.16.0.1", false}, {"172.31.255.255", false},
		{"192.0.0.192", false}, {"192.0.2.1", false}, {"192.88.99.1", false}, {"192.168.1.1", false}, {"198.18.0.1", false}, {"198.19.255.255", false},
		{"198.51.100.1", false}, {"203.0.113.1", false}, {"224.0.0.1", false}, {"239.1.1.1", false}, {"240.0.0.1", false}, {"255.255.255.255", false},

		{"::", false}, {"::1", false}, {"::7f00:1", false}, {"::ffff:127.0.0.1", false}, {"::ffff:169.254.169.254", false}, {"::ffff:0:127.0.0.1", false},
		{"64:ff9b::7f00:1", false}, {"64:ff9b::808:808", false}, {"64:ff9b:1::1", false}, {"100::1", false}, {"2001::1", false}, {"2001:0:7f00:1::", false},
		{"2001:10::1", false}, {"2001:20::1", false}, {"2001:db8::1", false}, {"2002:7f00:1::1", false}, {"2002:808:808::1", false}, {"3fff::1", false},
		{"5f00::1", false}, {"fc00::1", false}, {"fd00:ec2::254", false}, {"fe80::1", false}, {"fe80::1%eth0", false}, {"fec0::1", false}, {"ff02::1", false},
		{"2606:4700:4700::1111%eth0", false},
	} {
		if got := isPublic(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s: got %v", tt.addr, got)
		}
	}
	if isPublic(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

func TestCheckDial(t *testing.T) {
	for _, tt := range []struct {
		network, address string
		ok               bool
	}{
		{"tcp4", "8.8.8.8:443", true},
		{"tcp6", "[::ffff:8.8.8.8]:443", true},
		{"tcp6", "[::ffff:10.0.0.1]:443", false},
		{"udp4", "8.8.8.8:443", false},
		{"unix", "/run/docker.sock", false},
		{"tcp4", "8.8.8.8", false},
		{"tcp6", "[fe80::1%lo]:443", false},
	} {
		if err := checkDial(tt.network, tt.address, isPublic); errors.Is(err, ErrBlocked) == tt.ok {
			t.Errorf("%s %s: %v", tt.network, tt.address, err)
		}
	}
}

// TestCheckDialMapped shows that addresses of an allowed network are also allowed in their
// IPv4-mapped IPv6 form.
func TestCheckDialMapped(t *testing.T) {
	inner := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	allowed := func(a netip.Addr) bool { return containsAddr(inner, a) }
	if err := checkDial("tcp6", "[::ffff:10.0.0.1]:443", allowed); err != nil {
		t.Error(err)
	}
}

// guarded sends a GET and returns the body.
func guarded(t *testing.T, o *Options, address string) (string, error) {
	t.Helper()
	rt := NewTransport(o)
	defer func() {
		rt.(*transport).loopbackHTTP.CloseIdleConnections()
		rt.(*transport).https.CloseIdleConnections()
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", "a=b")
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Set-Cookie") != "" {
		t.Error("a cookie came in")
	}
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// Spec: C163
func TestGuardedTransport(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") != "" || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("got headers %v", r.Header)
		}
		w.Header().Set("Set-Cookie", "a=b")
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/large":
			io.WriteString(w, strings.Repeat("x", 101))
		case "/full":
			io.WriteString(w, strings.Repeat("x", 100))
		case "/slow":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			io.WriteString(w, "hello")
		}
	})
	plain := httptest.NewServer(handler)
	defer plain.Close()
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	open := &Options{AllowLoopback: true, MaxBytes: 100, TLS: secure.Client().Transport.(*http.Transport).TLSClientConfig}
	named := strings.Replace(plain.URL, "127.0.0.1", "localhost", 1)
	t.Setenv("HTTP_PROXY", "http://proxy.example.com:1")
	t.Setenv("HTTPS_PROXY", "http://proxy.example.com:1")
	for _, tt := range []struct {
		name string
		o    *Options
		url  string
		want string
	}{
		{"http", open, plain.URL, "hello"},
		{"http by name", open, named, "hello"},
		{"https", open, secure.URL, "hello"},
		{"at the size limit", open, plain.URL + "/full", strings.Repeat("x", 100)},
		{"network allowed", &Options{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TLS: open.TLS}, secure.URL, "hello"},
		{"too large", open, plain.URL + "/large", ""},
		{"redirect", open, plain.URL + "/redirect", ""},
		{"http not allowed", nil, plain.URL, ""},
		{"http by name not allowed", nil, named, ""},
		{"https to loopback not allowed", &Options{TLS: open.TLS}, secure.URL, ""},
		{"http to a remote host", open, "http://8.8.8.8/", ""},
		{"http to a private address", open, "http://10.0.0.1/", ""},
		{"private address", open, "https://10.0.0.1/", ""},
		{"metadata service", open, "https://169.254.169.254/", ""},
		{"metadata service, mapped", open, "https://[::ffff:169.254.169.254]/", ""},
		{"password", open, strings.Replace(plain.URL, "127", "a:b@127", 1), ""},
		{"file", open, "file:///etc/passwd", ""},
	} {
		got, err := guarded(t, tt.o, tt.url)
		if tt.want == "" {
			if !errors.Is(err, ErrBlocked) {
				t.Errorf("%s: got %q, %v", tt.name, got, err)
			}
		} else if got != tt.want || err != nil {
			t.Errorf("%s: got %q, %v", tt.name, got, err)
		}
	}
	// The timeout includes the body: the server never responds.
	slow := *open
	slow.Timeout = time.Millisecond
	if _, err := guarded(t, &slow, plain.URL+"/slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func ExampleNewTransport() {
	client := &http.Client{Transport: NewTransport(nil)}
	_, err := client.Get("https://169.254.169.254/latest/meta-data/")
	fmt.Println(errors.Is(err, ErrBlocked))
	// Output: true
}
