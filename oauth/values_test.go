package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/auth"
)

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestScopeTexts checks which texts are scopes.
func TestScopeTexts(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "!": true, "~": true, "a:b/c": true, strings.Repeat("x", 256): true,
		"": false, " ": false, "a b": false, "\x7f": false, "é": false, `a"`: false, `a\`: false, "\x00": false, strings.Repeat("x", 257): false,
	} {
		if got := isScope(text); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
	if got, want := parseScopes(`a  b a "x" c`), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var many []string
	for i := range maxScopes + 1 {
		many = append(many, fmt.Sprint("s", i))
	}
	if got := unionScopes(nil, many); len(got) != maxScopes {
		t.Errorf("got %d scopes, want %d", len(got), maxScopes)
	}
}

// TestNonceTexts checks which nonces are stored.
func TestNonceTexts(t *testing.T) {
	for nonce, want := range map[string]bool{
		"n": true, "!~": true, strings.Repeat("x", 1024): true,
		"": false, "a b": false, "a\x7f": false, "é": false, strings.Repeat("x", 1025): false,
	} {
		var c nonceCache
		if got := c.store("a", http.Header{"Dpop-Nonce": {nonce}}); got != want || (c.get("a") != "") != want {
			t.Errorf("%.20q: got %t, want %t", nonce, got, want)
		}
	}
}

// TestLifetime checks which values of expires_in are valid.
func TestLifetime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"3600": time.Hour, `"3600"`: time.Hour, "0": 0, "1.5": 1500 * time.Millisecond, "1e300": maxLifetime,
		"": -1, "-1": -1, `"x"`: -1, "null": -1, `"NaN"`: -1, "{}": -1,
	} {
		got, ok := (&tokenResponse{ExpiresIn: []byte(text)}).lifetime()
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: got %v, %t, want %v", text, got, ok, want)
		}
	}
}

// TestErrorResponses checks which error a response has.
func TestErrorResponses(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{`{"error":"invalid_grant","error_description":"x"}`, "invalid_grant"},
		{`{"error":""}`, "status 400"},
		{`{"error_description":"x"}`, "status 400"},
		{`{"error":"invalid_grant"`, "status 400"},
		{`[]`, "status 400"},
		{`{"error":7}`, "status 400"},
	} {
		if err := responseError(&httpResponse{status: 400, body: []byte(tt.body)}); !isOAuthError(err, tt.want) {
			t.Errorf("%s: got %v, want %s", tt.body, err, tt.want)
		}
	}
	if got, want := printable("a\x1f\x20~\x7fé\nb", 100), "a ~b"; got != want {
		t.Errorf("printable text: got %q, want %q", got, want)
	}
}

// TestRenewal checks that a token is renewed before it expires, if it can be refreshed.
func TestRenewal(t *testing.T) {
	s := new(serverAuth)
	for _, tt := range []struct{ expires, refresh, want bool }{{true, true, true}, {true, false, false}, {false, true, false}, {false, false, false}} {
		o := new(Tokens)
		if tt.expires {
			o.Expiry = time.Now().Add(time.Hour)
		}
		if tt.refresh {
			o.Refresh = auth.NewSecret("r")
		}
		k := s.newToken(o, "", "", nil)
		if got := !k.renewAt.IsZero(); got != tt.want || got && !k.renewAt.Before(o.Expiry) || k.needsRenewal(time.Now()) {
			t.Errorf("%+v: renewed at %v", tt, k.renewAt)
		}
	}
}

// TestRedirectTexts checks which redirect URIs are valid, are the same for an authorization server,
// and can be listened on.
func TestRedirectTexts(t *testing.T) {
	for text, want := range map[string]bool{
		"https://example.com/cb": true, "http://127.0.0.1/cb": true, "http://[::1]:7/cb": true,
		"http://example.com/cb": false, "com.example:/cb": false, "https:///cb": false, "https://me@example.com/cb": false, "https://example.com/cb#x": false, "https://%zz/": false, "ftp://127.0.0.1/cb": false, "": false,
	} {
		if err := checkRedirectURI(text); (err == nil) != want {
			t.Errorf("%s: got %v, want valid %t", text, err, want)
		}
	}
	for _, tt := range []struct {
		known, used string
		want        bool
	}{
		{"https://example.com/cb", "https://example.com/cb", true},
		{"https://example.com/cb", "https://example.com:444/cb", false},
		{"http://127.0.0.1/cb", "http://127.0.0.1:7/cb", true},
		{"http://127.0.0.1:1/cb", "http://127.0.0.1:7/cb", true},
		{"http://127.0.0.1/cb", "http://127.0.0.1:7/other", false},
		{"http://127.0.0.1/cb", "http://localhost:7/cb", false},
		{"http://example.com/cb", "http://example.com:7/cb", false},
		{"https://127.0.0.1/cb", "https://127.0.0.1:7/cb", false},
		{"http://%zz/", "http://127.0.0.1/", false},
		{"http://127.0.0.1/", "http://%zz/", false},
	} {
		if got := sameRedirect(tt.known, tt.used); got != tt.want {
			t.Errorf("%s and %s: got %t, want %t", tt.known, tt.used, got, tt.want)
		}
	}
	hosts, path := loopbackHosts([]string{"http://%zz/cb", "https://127.0.0.1/cb", "http://example.com/cb", "http://127.0.0.1/a%2fb", "http://[::1]:7/a%2fb", "http://localhost/other"})
	if !slices.Equal(hosts, []string{"127.0.0.1", "::1"}) || path != "/a%2fb" {
		t.Errorf("got the hosts %q and the path %s", hosts, path)
	}
}

// TestListenLoopback checks that localhost has a listener for IPv4, and one for IPv6 if there is
// IPv6, with the same port, and that other hosts have one.
func TestListenLoopback(t *testing.T) {
	both := []string{"127.0.0.1"}
	if ln, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		ln.Close()
		both = append(both, "::1")
	}
	for host, want := range map[string][]string{"localhost": both, "127.0.0.1": {"127.0.0.1"}} {
		listeners, err := listenLoopback(host, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		ports := map[string]bool{}
		for _, ln := range listeners {
			h, p, err := net.SplitHostPort(ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			got, ports[p] = append(got, h), true
			ln.Close()
		}
		if !slices.Equal(got, want) || len(ports) != 1 {
			t.Errorf("%s: listens on %q with the ports %v, want %q with one port", host, got, ports, want)
		}
	}
}

// TestProofKeys checks which keys a prompt may choose.
func TestProofKeys(t *testing.T) {
	own, err := newProofKey()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := own.seal()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newProofKey()
	if err != nil {
		t.Fatal(err)
	}
	otherSealed, err := other.seal()
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(key any, err error) auth.Secret {
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return auth.NewSecret(base64.StdEncoding.EncodeToString(der))
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	for _, tt := range []struct {
		name   string
		key    *proofKey
		chosen auth.Secret
		want   string // a thumbprint
		fails  bool
	}{
		{"its own", own, sealed, own.thumbprint, false},
		{"another one", own, otherSealed, other.thumbprint, false},
		{"none", own, auth.Secret{}, "", false},
		{"one instead of none", nil, otherSealed, other.thumbprint, false},
		{"none instead of none", nil, auth.Secret{}, "", false},
		{"no base64", own, auth.NewSecret("%"), "", true},
		{"no key", own, auth.NewSecret("AAAA"), "", true},
		{"another curve", own, pkcs8(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)), "", true},
		{"another type", own, pkcs8(ed, err), "", true},
	} {
		got, err := chooseProofKey(tt.key, func(offered auth.Secret) auth.Secret {
			if want := tt.key != nil; (offered.Reveal() == sealed.Reveal()) != want || offered.IsZero() == want {
				t.Errorf("%s: the prompt gets another key, or none", tt.name)
			}
			return tt.chosen
		})
		thumbprint := ""
		if got != nil {
			thumbprint = got.thumbprint
		}
		if (err != nil) != tt.fails || thumbprint != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.name, thumbprint, err, tt.want)
		}
	}
}

// TestClientKeys checks the header of an assertion, and that EnterpriseManaged needs all of its
// options.
func TestClientKeys(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"": `{"alg":"ES256","typ":"JWT"}`, "k1": `{"alg":"ES256","kid":"k1","typ":"JWT"}`} {
		signer, err := (&ClientKey{Key: key, KeyID: id}).signer()
		if err != nil {
			t.Fatal(err)
		}
		jws, err := signer.Sign([]byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := jws.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(text, ".")
		if got, err := base64.RawURLEncoding.DecodeString(head); string(got) != want || err != nil {
			t.Errorf("key id %q: got the header %s, %v, want %s", id, got, err, want)
		}
	}
	subject := func(context.Context) (auth.Secret, error) { return auth.NewSecret("t"), nil }
	o := &ClientOptions{ClientIssuer: "https://as.example.com"}
	for _, tt := range []struct {
		name string
		g    EnterpriseManaged
		want string // in the error
	}{
		{"all", EnterpriseManaged{TokenEndpoint: "https://idp/t", ClientID: "c", SubjectToken: subject}, ""},
		{"no endpoint", EnterpriseManaged{ClientID: "c", SubjectToken: subject}, "needs TokenEndpoint"},
		{"no client id", EnterpriseManaged{TokenEndpoint: "https://idp/t", SubjectToken: subject}, "needs TokenEndpoint"},
		{"no token", EnterpriseManaged{TokenEndpoint: "https://idp/t", ClientID: "c"}, "needs TokenEndpoint"},
		{"a key", EnterpriseManaged{TokenEndpoint: "https://idp/t", ClientID: "c", SubjectToken: subject, Issuer: "https://idp", ClientKey: &ClientKey{Key: key}}, ""},
		{"a key without an issuer", EnterpriseManaged{TokenEndpoint: "https://idp/t", ClientID: "c", SubjectToken: subject, ClientKey: &ClientKey{Key: key}}, "needs Issuer"},
		{"a key of no type", EnterpriseManaged{TokenEndpoint: "https://idp/t", ClientID: "c", SubjectToken: subject, Issuer: "https://idp", ClientKey: &ClientKey{}}, "unsupported type"},
	} {
		if err := tt.g.check(o); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}

// A countedBody counts the bytes that are read of it.
type countedBody struct {
	left, read int
	closed     bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), b.left)
	b.left -= n
	b.read += n
	return n, nil
}

func (b *countedBody) Close() error {
	b.closed = true
	return nil
}

// TestDrain checks that only short responses of known length are read, and that all are closed.
func TestDrain(t *testing.T) {
	for length, want := range map[int64]int{-1: 0, 0: 0, 7: 7, maxDrainBytes: maxDrainBytes, maxDrainBytes + 1: 0} {
		body := &countedBody{left: 2 * maxDrainBytes}
		drain(&http.Response{ContentLength: length, Body: body})
		if body.read != want || !body.closed {
			t.Errorf("length %d: got %d bytes, closed %t, want %d", length, body.read, body.closed, want)
		}
	}
}

// TestBodies checks when the body of a request that is not sent is closed, and that a second copy
// of a request has another body.
func TestBodies(t *testing.T) {
	failed := errors.New("failed")
	tr := new(clientTransport)
	for _, first := range []bool{true, false} {
		body := new(countedBody)
		req := &http.Request{Method: "POST", Body: body, Header: http.Header{}}
		if err := tr.closeOnError(req, first, failed); err != failed || body.closed != first {
			t.Errorf("first %t: got %v, closed %t", first, err, body.closed)
		}
		if err := tr.closeOnError(&http.Request{}, first, failed); err != failed {
			t.Errorf("no body: got %v", err)
		}
		req.GetBody = func() (io.ReadCloser, error) { return new(countedBody), nil }
		out, err := tr.authorize(req, nil, first)
		if err != nil || (out.Body == io.ReadCloser(body)) != first || out.Header.Get("Authorization") != "" {
			t.Errorf("first %t: got the body %p of %p, %v", first, out.Body, body, err)
		}
		req.GetBody = func() (io.ReadCloser, error) { return nil, failed }
		if _, err := tr.authorize(req, nil, first); (err == failed) == first {
			t.Errorf("first %t: no second body: got %v", first, err)
		}
	}
}

// TestTransportError checks that a canceled request has the error of its context, and that others
// name the server.
func TestTransportError(t *testing.T) {
	failed := errors.New("no route")
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", "https://as.example.com/x?secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	f := new(fetcher)
	if err := f.transportError(req, failed); !errors.Is(err, ErrUnreachable) || !errors.Is(err, failed) || !strings.Contains(err.Error(), "as.example.com") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := f.transportError(req, failed); err != context.Canceled {
		t.Errorf("canceled: got %v", err)
	}
}

// TestRecordText checks that the error of an invalid record has nothing of its text.
func TestRecordText(t *testing.T) {
	for _, text := range []string{`{"tokens":{"access":"SECRET"}`, `{"tokens":"SECRET"}`, `SECRET`} {
		r := &Record{Issuer: "i"}
		if err := r.UnmarshalSecrets([]byte(text)); err == nil || strings.Contains(err.Error(), "SECRET") || r.Issuer != "i" {
			t.Errorf("%s: got %v, the record %v", text, err, r.Issuer)
		}
	}
}

// TestRegistered checks which registrations of the client can be used, and for which tokens.
func TestRegistered(t *testing.T) {
	const issuer = "https://as.example.com"
	for _, tt := range []struct {
		name   string
		client *RegisteredClient
		want   bool
	}{
		{"none", nil, false},
		{"no id", &RegisteredClient{Secret: auth.NewSecret("s")}, false},
		{"no expiry", &RegisteredClient{ID: "c"}, true},
		{"not expired", &RegisteredClient{ID: "c", SecretExpiry: time.Now().Add(time.Hour)}, true},
		{"expired", &RegisteredClient{ID: "c", SecretExpiry: time.Now().Add(-time.Hour)}, false},
		{"another one", &RegisteredClient{ID: "other"}, true},
	} {
		c, err := NewClient(&ClientOptions{Store: NewMemoryStore()})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.opts.Store.Save(t.Context(), c.registrationKey(issuer), &Record{Client: tt.client}); err != nil {
			t.Fatal(err)
		}
		cred, err := c.registeredCredentials(t.Context(), issuer)
		if err != nil || (cred != nil) != tt.want || tt.want && cred.id != tt.client.ID {
			t.Errorf("%s: got %v, %v", tt.name, cred, err)
		}
		cred, err = (&serverAuth{client: c}).credentialsOf(t.Context(), &token{Tokens: new(Tokens), issuer: issuer, clientID: "c"})
		if want := tt.want && tt.client.ID == "c"; (err == nil) != want || !want && !errors.Is(err, ErrUnregistered) || want && cred.id != "c" {
			t.Errorf("%s: credentials of a token: got %v, %v", tt.name, cred, err)
		}
	}
	if cred, err := (&Client{opts: ClientOptions{Store: NewMemoryStore()}}).registeredCredentials(t.Context(), issuer); cred != nil || err != nil {
		t.Errorf("an empty store: got %v, %v", cred, err)
	}
}

// TestInitialAccessToken checks that the token for registrations is sent only to the issuer that
// the options name.
func TestInitialAccessToken(t *testing.T) {
	for _, tt := range []struct{ token, issuer, want string }{
		{"SECRET", "https://as.example.com", "Bearer SECRET"},
		{"", "https://as.example.com", ""},
		{"SECRET", "https://other.example.com", ""},
		{"SECRET", "", ""},
	} {
		got := "not sent"
		c, err := NewClient(&ClientOptions{
			ClientIssuer: tt.issuer, Registration: Registration{InitialAccessToken: auth.NewSecret(tt.token)},
			MetadataTransport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				got = r.Header.Get("Authorization")
				return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		d := &discovery{issuer: "https://as.example.com", as: &issuerDocument{RegistrationEndpoint: "https://as.example.com/register"}}
		if _, err := c.register(t.Context(), d, "http://127.0.0.1/callback"); err == nil || got != tt.want {
			t.Errorf("token %q for %q: sent %q, %v, want %q", tt.token, tt.issuer, got, err, tt.want)
		}
	}
}

// TestUnreadableStore checks the errors of a store whose folder is a file.
func TestUnreadableStore(t *testing.T) {
	dir := t.TempDir()
	s, err := NewFileStore(filepath.Join(dir, "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	key := RecordKey{Resource: "r"}
	if err := s.Save(t.Context(), key, &Record{Issuer: "i"}); err != nil {
		t.Fatal(err)
	}
	keys := s.(interface {
		Keys(context.Context) ([]RecordKey, error)
	})
	if got, err := keys.Keys(t.Context()); err != nil || !slices.Equal(got, []RecordKey{key}) {
		t.Errorf("got the keys %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	unlock, err := s.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if again, err := s.Lock(ctx); err == nil {
		again()
		t.Error("the store was locked twice")
	}
	unlock()
}
