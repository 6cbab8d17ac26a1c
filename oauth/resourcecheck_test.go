package oauth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestCheckResource(t *testing.T) {
	for _, tt := range []struct {
		resource, server string
		ok               bool
	}{
		{"https://example.com/mcp", "https://example.com/mcp", true},
		{"HTTPS://Example.COM:443/mcp/", "https://example.com/mcp", true},
		{"https://example.com", "https://example.com/mcp", true},
		{"https://example.com/", "https://example.com/a/b", true},
		{"https://example.com/a", "https://example.com/a/b", true},
		{"https://example.com/a?x=1", "https://example.com/a?x=1", true},
		{"https://example.com/a", "https://example.com/a?x=1", true},
		{"https://example.com/a?x=2", "https://example.com/a?x=1", false},
		{"https://example.com/a", "https://example.com/ab", false},
		{"https://example.com/a/b", "https://example.com/a", false},
		{"https://example.com/A", "https://example.com/a", false},
		{"https://example.com:444/a", "https://example.com/a", false},
		{"http://example.com/a", "https://example.com/a", false},
		{"https://sub.example.com/a", "https://example.com/a", false},
		{"https://u@example.com/a", "https://example.com/a", false},
		{"https://example.com/a/..", "https://example.com/a", false},
		{"/a", "https://example.com/a", false},
		{"", "https://example.com/a", false},
	} {
		u, err := canonicalServer(tt.server)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkResource(tt.resource, u); errors.Is(err, ErrUntrusted) == tt.ok {
			t.Errorf("%q for %q: %v", tt.resource, tt.server, err)
		}
	}
}

// FuzzResourceMetadata checks that metadata that is accepted is for the server.
func FuzzResourceMetadata(f *testing.F) {
	f.Add([]byte(`{"resource":"https://example.com/mcp","authorization_servers":["https://as.example.com"]}`))
	f.Add([]byte(`{"resource":"https://example.com:443"}`))
	f.Add([]byte(`[]`))
	server, err := canonicalServer("https://example.com/mcp/x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var d resourceDocument
		if decodeObject(body, &d) != nil || checkResource(d.Resource, server) != nil {
			return
		}
		u, err := url.Parse(d.Resource)
		if err != nil || !strings.EqualFold(u.Scheme, "https") || !strings.EqualFold(u.Hostname(), "example.com") {
			t.Errorf("%q is accepted", d.Resource)
		}
		for _, issuer := range d.AuthorizationServers {
			addresses, err := issuerURLs(issuer)
			if err != nil {
				continue
			}
			for _, a := range addresses {
				if _, err := url.Parse(a); err != nil && checkIssuer(issuer) {
					t.Errorf("issuer %q has the metadata URL %q", issuer, a)
				}
			}
		}
	})
}

func checkIssuer(issuer string) bool {
	_, err := (&fetcher{}).parseEndpoint("issuer", issuer)
	return err == nil
}

// FuzzIssuerMetadata checks that endpoints that are accepted are by https.
func FuzzIssuerMetadata(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://as.example.com","token_endpoint":"https://as.example.com/token","authorization_endpoint":"javascript:alert(1)"}`))
	f.Add([]byte(`{"issuer":"https://as.example.com","token_endpoint":"https://as.example.com/token"}`))
	f.Add([]byte(`{"Issuer":"https://as.example.com"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := decodeIssuerDocument(body, "https://as.example.com", &fetcher{})
		if err != nil {
			return
		}
		for _, e := range []string{d.TokenEndpoint, d.AuthorizationEndpoint, d.RegistrationEndpoint} {
			if u, err := url.Parse(e); e != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
				t.Errorf("endpoint %q", e)
			}
		}
	})
}

// TestMetadataTransport shows that the default transport obeys the options for it.
func TestMetadataTransport(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	trusted := s.Client().Transport.(*http.Transport).TLSClientConfig
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, tt := range map[string]struct {
		opts ClientOptions
		ok   bool
	}{
		"by default":             {ClientOptions{MetadataTLS: trusted}, false},
		"loopback":               {ClientOptions{MetadataTLS: trusted, AllowLoopbackHTTP: true}, true},
		"network":                {ClientOptions{MetadataTLS: trusted, MetadataNetworks: here}, true},
		"another network":        {ClientOptions{MetadataTLS: trusted, MetadataNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, false},
		"an unknown certificate": {ClientOptions{MetadataNetworks: here}, false},
	} {
		c, err := NewClient(&tt.opts)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.opts.MetadataTransport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want success %v", name, err, tt.ok)
		}
	}
}
