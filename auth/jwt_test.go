package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcpwire/auth"
)

func TestJWTPrincipal(t *testing.T) {
	key := newRSKey(t, "k1")
	v := rsJWT(t, auth.JWTOptions{}, key)
	thumbprint := key.thumbprint(t)
	exp := time.Now().Add(time.Minute).Unix()
	for _, tt := range []struct {
		name    string
		changes map[string]any
		want    auth.Principal
	}{
		{"all", nil, auth.Principal{Scopes: []string{"read", "write"}}},
		{"audiences", map[string]any{"aud": []string{"https://other.example", rsResource}}, auth.Principal{Scopes: []string{"read", "write"}}},
		{"no scope", map[string]any{"scope": nil}, auth.Principal{}},
		{"scp array", map[string]any{"scope": nil, "scp": []string{"a", "b", "a"}}, auth.Principal{Scopes: []string{"a", "b"}}},
		{"scp text", map[string]any{"scope": nil, "scp": "a  b"}, auth.Principal{Scopes: []string{"a", "b"}}},
		{"scope first", map[string]any{"scp": "admin"}, auth.Principal{Scopes: []string{"read", "write"}}},
		{"invalid scopes", map[string]any{"scope": "a \"b\" c\u00e9 \t"}, auth.Principal{Scopes: []string{"a"}}},
		{"azp", map[string]any{"client_id": nil, "azp": "app"}, auth.Principal{Scopes: []string{"read", "write"}}},
		{"bound", map[string]any{"cnf": map[string]any{"jkt": thumbprint}}, auth.Principal{Scopes: []string{"read", "write"}, KeyThumbprint: thumbprint}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			payload, err := json.Marshal(with(with(rsClaims(), map[string]any{"exp": exp}), tt.changes))
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.Verify(t.Context(), key.sign(t, map[string]any{"typ": "at+jwt", "kid": "k1"}, payload))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Issuer, tt.want.Subject, tt.want.ClientID, tt.want.Expires = rsIssuer, "alice", "app", time.Unix(exp, 0)
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreUnexported(auth.Principal{}), cmpopts.IgnoreFields(auth.Principal{}, "Claims")); diff != "" {
				t.Errorf("principal (-want +got):\n%s", diff)
			}
			if string(got.Claims["sub"]) != `"alice"` {
				t.Errorf("claims = %s, without sub", got.Claims)
			}
		})
	}
}

// Spec: S203 S208 S210 S211
func TestJWTRejected(t *testing.T) {
	key, other := newRSKey(t, "k1"), newRSKey(t, "k1")
	now := time.Now()
	for _, tt := range []struct {
		name         string
		head, claims map[string]any
		want         string
	}{
		{"audience of another", nil, map[string]any{"aud": "https://api.example.com"}, "wrong audience"},
		{"audience with a slash", nil, map[string]any{"aud": rsResource + "/"}, "wrong audience"},
		{"audience longer", nil, map[string]any{"aud": rsResource + "x"}, "wrong audience"},
		{"no audience", nil, map[string]any{"aud": nil}, "wrong audience"},
		{"audience with null", nil, map[string]any{"aud": []any{rsResource, json.RawMessage("null")}}, "wrong audience"},
		{"issuer", nil, map[string]any{"iss": rsIssuer + "/"}, "wrong issuer"},
		{"no issuer", nil, map[string]any{"iss": nil}, "wrong issuer"},
		{"expired", nil, map[string]any{"exp": now.Add(-time.Second).Unix()}, "has expired"},
		{"no expiry", nil, map[string]any{"exp": nil}, "exp is missing"},
		{"expiry is null", nil, map[string]any{"exp": json.RawMessage("null")}, "exp is not a date"},
		{"expiry is a text", nil, map[string]any{"exp": "4000000000"}, "exp is not a date"},
		{"expiry is huge", nil, map[string]any{"exp": json.RawMessage("1e300")}, "exp is not a date"},
		{"not valid yet", nil, map[string]any{"nbf": now.Add(45 * time.Second).Unix()}, "nbf"},
		{"issued later", nil, map[string]any{"iat": now.Add(45 * time.Second).Unix()}, "iat"},
		{"no subject", nil, map[string]any{"sub": nil}, "sub or client id is missing"},
		{"no client", nil, map[string]any{"client_id": nil}, "sub or client id is missing"},
		{"client is a number", nil, map[string]any{"client_id": 5, "azp": "app"}, "sub or client id is missing"},
		{"bound to a certificate", nil, map[string]any{"cnf": map[string]any{"x5t#S256": key.thumbprint(t)}}, "unsupported binding"},
		{"bound twice", nil, map[string]any{"cnf": map[string]any{"x5t#S256": "x", "jkt": key.thumbprint(t)}}, "unsupported binding"},
		{"bound to an invalid thumbprint", nil, map[string]any{"cnf": map[string]any{"jkt": "x"}}, "unsupported binding"},
		{"type of a proof", map[string]any{"typ": "dpop+jwt"}, nil, "typ is not"},
		{"type is null", map[string]any{"typ": json.RawMessage("null")}, nil, "typ is not"},
		{"critical extension", map[string]any{"crit": []string{"exp"}}, nil, "crit"},
		{"unencoded", map[string]any{"b64": true}, nil, "b64"},
		{"contains its key", map[string]any{"jwk": other.jwk()}, nil, "jwk"},
		{"unknown key", map[string]any{"kid": "k2"}, nil, "unknown key"},
		{"key id is a number", map[string]any{"kid": 1}, nil, "kid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := rsJWT(t, auth.JWTOptions{}, key)
			payload, err := json.Marshal(with(rsClaims(), tt.claims))
			if err != nil {
				t.Fatal(err)
			}
			_, err = v.Verify(t.Context(), key.sign(t, with(map[string]any{"typ": "at+jwt", "kid": "k1"}, tt.head), payload))
			if !errors.Is(err, auth.ErrInvalidToken) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Verify: %v, want ErrInvalidToken with %q", err, tt.want)
			}
		})
	}
}

// Spec: S208
func TestJWTForged(t *testing.T) {
	key, other := newRSKey(t, "k1"), newRSKey(t, "k1")
	good := key.token(t, nil)
	parts := strings.Split(good, ".")
	b64 := base64.RawURLEncoding.EncodeToString
	payload, err := json.Marshal(with(rsClaims(), map[string]any{"sub": "mallory"}))
	if err != nil {
		t.Fatal(err)
	}
	public, err := json.Marshal(key.jwk())
	if err != nil {
		t.Fatal(err)
	}
	hmac, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: public}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	hs, err := hmac.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	confused, err := hs.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	twice := []byte(strings.Replace(string(payload), `"sub":"mallory"`, `"sub":"alice","sub":"mallory"`, 1))
	for _, tt := range []struct{ name, token string }{
		{"another key", other.token(t, nil)},
		{"other claims", parts[0] + "." + b64(payload) + "." + parts[2]},
		{"no signature", parts[0] + "." + parts[1] + "."},
		{"two parts", parts[0] + "." + parts[1]},
		{"four parts", good + ".x"},
		{"none", b64([]byte(`{"alg":"none","typ":"at+jwt"}`)) + "." + b64(payload) + "."},
		{"none, signed", b64([]byte(`{"alg":"none","typ":"at+jwt","kid":"k1"}`)) + "." + b64(payload) + "." + parts[2]},
		{"symmetric with the public key", confused},
		{"line break", good[:len(good)-1] + "\n" + good[len(good)-1:]},
		{"padded", good + "="},
		{"a claim twice", key.sign(t, map[string]any{"typ": "at+jwt", "kid": "k1"}, twice)},
		{"claims are an array", key.sign(t, map[string]any{"typ": "at+jwt", "kid": "k1"}, []byte("[]"))},
		{"claims are null", key.sign(t, map[string]any{"typ": "at+jwt", "kid": "k1"}, []byte("null"))},
		{"JSON serialization", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`},
		{"not UTF-8", key.sign(t, map[string]any{"kid": "k1"}, append(payload[:len(payload)-1:len(payload)-1], ",\"x\":\"\xff\"}"...))},
		{"empty", ""},
		{"long", key.token(t, map[string]any{"x": strings.Repeat("x", 16<<10)})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := rsJWT(t, auth.JWTOptions{}, key)
			if p, err := v.Verify(t.Context(), tt.token); !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("Verify = %v, %v, want ErrInvalidToken", p, err)
			}
			if _, err := v.Verify(t.Context(), good); err != nil {
				t.Errorf("then a good token: %v", err)
			}
		})
	}
}

func TestJWTStrict(t *testing.T) {
	key := newRSKey(t, "k1")
	for _, tt := range []struct {
		name                string
		head, claims        map[string]any
		lenient, strictness bool // accepted
	}{
		{"RFC 9068", nil, nil, true, true},
		{"full media type", map[string]any{"typ": "application/AT+JWT"}, nil, true, true},
		{"JWT", map[string]any{"typ": "JWT"}, nil, true, false},
		{"no type", map[string]any{"typ": nil}, nil, true, false},
		{"no jti", nil, map[string]any{"jti": nil}, true, false},
		{"no iat", nil, map[string]any{"iat": nil}, true, false},
		{"azp", nil, map[string]any{"client_id": nil, "azp": "app"}, true, false},
		{"no key id, but one key", map[string]any{"kid": nil}, nil, true, true},
		{"where to find keys", map[string]any{"jku": "https://evil.example/keys", "x5u": "https://evil.example/cert"}, nil, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			payload, err := json.Marshal(with(rsClaims(), tt.claims))
			if err != nil {
				t.Fatal(err)
			}
			token := key.sign(t, with(map[string]any{"typ": "at+jwt", "kid": "k1"}, tt.head), payload)
			for strict, want := range map[bool]bool{false: tt.lenient, true: tt.strictness} {
				_, err := rsJWT(t, auth.JWTOptions{Strict: strict}, key).Verify(t.Context(), token)
				if (err == nil) != want || err != nil && !errors.Is(err, auth.ErrInvalidToken) {
					t.Errorf("strict %v: %v, want accepted %v", strict, err, want)
				}
			}
		})
	}
}

func TestJWTAlgorithms(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		key     rsKey
		jwkAlg  string // of the key in the set
		allowed []string
		ok      bool
	}{
		{"ES384", rsKey{"k", jose.ES384, p384}, "", nil, true},
		{"EdDSA", rsKey{"k", jose.EdDSA, ed}, "", nil, true},
		{"RS256", rsKey{"k", jose.RS256, rsaKey}, "", nil, true},
		{"PS256", rsKey{"k", jose.PS256, rsaKey}, "", nil, true},
		{"PS256 with a key for it", rsKey{"k", jose.PS256, rsaKey}, "PS256", nil, true},
		{"RS256 with a key for PS256", rsKey{"k", jose.RS256, rsaKey}, "PS256", nil, false},
		{"not in the list", rsKey{"k", jose.RS256, rsaKey}, "", []string{"ES256"}, false},
		{"not in the default list", rsKey{"k", jose.RS512, rsaKey}, "", nil, false},
		{"in a list", rsKey{"k", jose.RS512, rsaKey}, "", []string{"RS512"}, true},
		{"a weak key", rsKey{"k", jose.RS256, weak}, "", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			jwk := tt.key.jwk()
			jwk.Algorithm = tt.jwkAlg
			routes := &rsRoutes{}
			routes.say(rsKeysURL, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{jwk}})
			v, err := auth.NewJWT(&auth.JWTOptions{
				Issuer: rsIssuer, Audiences: []string{rsResource}, JWKSURL: rsKeysURL, HTTPClient: routes.client(), Algorithms: tt.allowed,
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = v.Verify(t.Context(), tt.key.token(t, nil))
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("Verify: %v, want accepted %v", err, tt.ok)
			}
		})
	}
}

func TestJWTOptions(t *testing.T) {
	good := auth.JWTOptions{Issuer: rsIssuer, Audiences: []string{rsResource}}
	for _, tt := range []struct {
		name   string
		change func(*auth.JWTOptions)
		ok     bool
	}{
		{"good", func(*auth.JWTOptions) {}, true},
		{"this machine", func(o *auth.JWTOptions) { o.Issuer = "http://127.0.0.1:8080" }, true},
		{"no issuer", func(o *auth.JWTOptions) { o.Issuer = "" }, false},
		{"http", func(o *auth.JWTOptions) { o.Issuer = "http://login.example.com" }, false},
		{"password", func(o *auth.JWTOptions) { o.Issuer = "https://a:b@login.example.com" }, false},
		{"key set by http", func(o *auth.JWTOptions) { o.JWKSURL = "http://login.example.com/keys" }, false},
		{"no audience", func(o *auth.JWTOptions) { o.Audiences = []string{""} }, false},
		{"symmetric", func(o *auth.JWTOptions) { o.Algorithms = []string{"ES256", "HS256"} }, false},
		{"none", func(o *auth.JWTOptions) { o.Algorithms = []string{"none"} }, false},
		{"no algorithm", func(o *auth.JWTOptions) { o.Algorithms = []string{} }, false},
		{"leeway", func(o *auth.JWTOptions) { o.Leeway = 61 * time.Second }, false},
	} {
		o := good
		tt.change(&o)
		if _, err := auth.NewJWT(&o); (err == nil) != tt.ok {
			t.Errorf("%s: NewJWT: %v, want accepted %v", tt.name, err, tt.ok)
		}
	}
	if _, err := auth.NewJWT(nil); err == nil {
		t.Error("NewJWT(nil) succeeded")
	}
}

// FuzzJWT shows that a token is rejected unless it is the one that was signed.
func FuzzJWT(f *testing.F) {
	key := fixedRSKey("k1")
	payload := []byte(`{"iss":"` + rsIssuer + `","aud":"` + rsResource + `","sub":"alice","client_id":"app","exp":7258118400}`)
	good := key.sign(f, map[string]any{"typ": "at+jwt", "kid": "k1"}, payload)
	f.Add(good)
	f.Add(strings.Replace(good, ".", "..", 1))
	v := rsJWT(f, auth.JWTOptions{}, key)
	f.Fuzz(func(t *testing.T, token string) {
		p, err := v.Verify(t.Context(), token)
		switch {
		case err == nil && token != good:
			t.Errorf("%q is accepted as %v's", token, p)
		case err != nil && token == good:
			t.Errorf("the valid token is rejected: %v", err)
		case err != nil && !errors.Is(err, auth.ErrInvalidToken):
			t.Errorf("Verify: %v, want ErrInvalidToken", err)
		}
	})
}

func newJWT(t *testing.T, routes *rsRoutes, keysURL string) auth.Verifier {
	t.Helper()
	v, err := auth.NewJWT(&auth.JWTOptions{Issuer: rsIssuer, Audiences: []string{rsResource}, JWKSURL: keysURL, HTTPClient: routes.client()})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// longToken returns a token that outlives the test.
func longToken(t *testing.T, k rsKey) string {
	return k.token(t, map[string]any{"exp": time.Now().Add(1000 * time.Hour).Unix()})
}

func wantVerify(t *testing.T, v auth.Verifier, token string, want error) {
	t.Helper()
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, want) {
		t.Errorf("Verify: %v, want %v", err, want)
	}
}

func wantHits(t *testing.T, routes *rsRoutes, url string, want int) {
	t.Helper()
	if got := routes.count(url); got != want {
		t.Errorf("%s was fetched %d times, want %d", url, got, want)
	}
}

func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, three := newRSKey(t, "1"), newRSKey(t, "2"), newRSKey(t, "3")
		routes := &rsRoutes{}
		routes.say(rsKeysURL, rsKeySet(one))
		v := newJWT(t, routes, rsKeysURL)
		tokens := map[string]string{"1": longToken(t, one), "2": longToken(t, two), "3": longToken(t, three)}

		wantVerify(t, v, tokens["1"], nil)
		routes.say(rsKeysURL, rsKeySet(one, two))
		<-time.After(29 * time.Second)
		wantVerify(t, v, tokens["2"], auth.ErrInvalidToken) // too soon for another fetch
		wantHits(t, routes, rsKeysURL, 1)
		<-time.After(time.Second)
		wantVerify(t, v, tokens["2"], nil)
		wantHits(t, routes, rsKeysURL, 2)

		for range 50 {
			// one fetch per 30 s for an unknown key
			wantVerify(t, v, tokens["3"], auth.ErrInvalidToken)
		}
		wantHits(t, routes, rsKeysURL, 2)
		<-time.After(30 * time.Second)
		for range 50 {
			wantVerify(t, v, tokens["3"], auth.ErrInvalidToken)
		}
		wantHits(t, routes, rsKeysURL, 3)

		routes.say(rsKeysURL, rsKeySet(two))
		<-time.After(15*time.Minute - time.Second)
		wantVerify(t, v, tokens["1"], nil)
		<-time.After(time.Second)
		wantVerify(t, v, tokens["1"], auth.ErrInvalidToken) // the key was withdrawn
		wantVerify(t, v, tokens["2"], nil)
		wantHits(t, routes, rsKeysURL, 4)
	})
}

func TestKeysStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, other := newRSKey(t, "1"), newRSKey(t, "2")
		routes := &rsRoutes{}
		routes.say(rsKeysURL, rsKeySet(key))
		v := newJWT(t, routes, rsKeysURL)
		token, unknown := longToken(t, key), longToken(t, other)
		wantVerify(t, v, token, nil)

		routes.say(rsKeysURL, nil)
		<-time.After(15 * time.Minute)
		for range 10 {
			wantVerify(t, v, token, nil)
		}
		wantHits(t, routes, rsKeysURL, 2)
		wantVerify(t, v, unknown, auth.ErrUnavailable) // it may be a new key
		<-time.After(59 * time.Minute)
		wantVerify(t, v, token, nil)
		<-time.After(time.Minute)
		wantVerify(t, v, token, auth.ErrUnavailable)

		routes.say(rsKeysURL, rsKeySet(key))
		<-time.After(5 * time.Second) // without keys it retries sooner
		wantVerify(t, v, token, nil)
	})
}

func TestKeysFetchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := newRSKey(t, "1")
		text, err := json.Marshal(rsKeySet(key))
		if err != nil {
			t.Fatal(err)
		}
		routes, release := &rsRoutes{}, make(chan struct{})
		routes.on(rsKeysURL, func(r *http.Request) (int, http.Header, string) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			return 200, nil, string(text)
		})
		v := newJWT(t, routes, rsKeysURL)
		token := longToken(t, key)
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := v.Verify(first, token); err != nil {
				t.Errorf("the first, whose request was canceled: %v", err)
			}
		})
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for range 20 {
			wg.Go(func() { wantVerify(t, v, token, nil) })
		}
		if _, err := v.Verify(impatient, token); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("a canceled wait: %v, want ErrUnavailable", err)
		}
		cancel() // must not prevent the others from getting the keys
		synctest.Wait()
		close(release)
		wg.Wait()
		wantHits(t, routes, rsKeysURL, 1)
	})
}

func TestKeysTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes := &rsRoutes{}
		routes.on(rsKeysURL, func(r *http.Request) (int, http.Header, string) {
			<-r.Context().Done()
			return 200, nil, ""
		})
		start := time.Now()
		wantVerify(t, newJWT(t, routes, rsKeysURL), longToken(t, newRSKey(t, "1")), auth.ErrUnavailable)
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("gave up after %v, want 10s", d)
		}
	})
}

func TestKeySetUnusualKeys(t *testing.T) {
	key := newRSKey(t, "1")
	good, err := json.Marshal(key.jwk())
	if err != nil {
		t.Fatal(err)
	}
	private, err := json.Marshal(jose.JSONWebKey{Key: key.private, KeyID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	member := func(extra string) string { return strings.TrimSuffix(string(good), "}") + "," + extra + "}" }
	for _, tt := range []struct {
		name, body string
		status     int
		want       error
	}{
		{"good", `{"keys":[` + string(good) + `]}`, 200, nil},
		{"among others", `{"keys":[{"kty":"XYZ"},{"kty":"oct","k":"AAAA","kid":"1"},5,` + string(good) + `]}`, 200, nil},
		{"other members", `{"keys":[` + member(`"x5c":["nonsense"],"x5u":"%","x5t":"?"`) + `]}`, 200, nil},
		{"for verification", `{"keys":[` + member(`"key_ops":["verify"]`) + `]}`, 200, nil},
		{"private", `{"keys":[` + string(private) + `]}`, 200, auth.ErrUnavailable},
		{"for encryption", `{"keys":[` + strings.Replace(string(good), `"sig"`, `"enc"`, 1) + `]}`, 200, auth.ErrUnavailable},
		{"for wrapping", `{"keys":[` + member(`"key_ops":["wrapKey"]`) + `]}`, 200, auth.ErrUnavailable},
		{"a member twice", `{"keys":[` + member(`"kid":"2"`) + `]}`, 200, auth.ErrUnavailable},
		{"100 keys", `{"keys":[` + strings.Repeat("{},", 99) + string(good) + `]}`, 200, nil},
		{"101 keys", `{"keys":[` + strings.Repeat("{},", 100) + string(good) + `]}`, 200, auth.ErrUnavailable},
		{"large", `{"keys":[` + string(good) + `]}` + strings.Repeat(" ", 256<<10), 200, auth.ErrUnavailable},
		{"none", `{"keys":[]}`, 200, auth.ErrUnavailable},
		{"no JSON", `<html>`, 200, auth.ErrUnavailable},
		{"null", `null`, 200, auth.ErrUnavailable},
		{"redirect", `{"keys":[` + string(good) + `]}`, 302, auth.ErrUnavailable},
		{"error", `{"keys":[` + string(good) + `]}`, 500, auth.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes := &rsRoutes{}
			routes.on(rsKeysURL, func(*http.Request) (int, http.Header, string) {
				return tt.status, http.Header{"Location": {"https://login.example.com/elsewhere"}}, tt.body
			})
			wantVerify(t, newJWT(t, routes, rsKeysURL), key.token(t, nil), tt.want)
			wantHits(t, routes, "https://login.example.com/elsewhere", 0)
		})
	}
}

func TestKeysWithoutID(t *testing.T) {
	one, two := newRSKey(t, "1"), newRSKey(t, "2")
	payload, err := json.Marshal(rsClaims())
	if err != nil {
		t.Fatal(err)
	}
	token := one.sign(t, map[string]any{"typ": "at+jwt"}, payload)
	wantVerify(t, rsJWT(t, auth.JWTOptions{}, one), token, nil)
	wantVerify(t, rsJWT(t, auth.JWTOptions{}, one, two), token, auth.ErrInvalidToken)
}

func TestDiscovery(t *testing.T) {
	key := newRSKey(t, "1")
	token := key.token(t, nil)
	urls := []string{
		"https://login.example.com/.well-known/oauth-authorization-server/tenant",
		"https://login.example.com/.well-known/openid-configuration/tenant",
		"https://login.example.com/tenant/.well-known/openid-configuration",
	}
	for i := range urls {
		routes := &rsRoutes{}
		routes.say(rsKeysURL, rsKeySet(key))
		routes.say(urls[i], map[string]any{"issuer": rsIssuer, "jwks_uri": rsKeysURL})
		wantVerify(t, newJWT(t, routes, ""), token, nil)
		for j, u := range urls {
			wantHits(t, routes, u, map[bool]int{true: 1}[j <= i])
		}
	}
	for _, tt := range []struct {
		name string
		doc  any
	}{
		{"wrong issuer", map[string]any{"issuer": rsIssuer + "/", "jwks_uri": rsKeysURL}},
		{"no issuer", map[string]any{"jwks_uri": rsKeysURL}},
		{"no keys", map[string]any{"issuer": rsIssuer}},
		{"keys by http", map[string]any{"issuer": rsIssuer, "jwks_uri": "http://login.example.com/keys"}},
		{"keys on this machine by http", map[string]any{"issuer": rsIssuer, "jwks_uri": "http://127.0.0.1/keys"}},
		{"keys in a file", map[string]any{"issuer": rsIssuer, "jwks_uri": "file:///etc/passwd"}},
		{"an array", []int{1}},
		{"nothing", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes := &rsRoutes{}
			routes.say(rsKeysURL, rsKeySet(key))
			routes.say(urls[0], tt.doc)
			// An invalid response ends the search; the next URL is not tried.
			routes.say(urls[1], map[string]any{"issuer": rsIssuer, "jwks_uri": rsKeysURL})
			wantVerify(t, newJWT(t, routes, ""), token, auth.ErrUnavailable)
		})
	}
	t.Run("nowhere", func(t *testing.T) { wantVerify(t, newJWT(t, &rsRoutes{}, ""), token, auth.ErrUnavailable) })
}

// TestForeignTokensFetchNothing shows that a token that would be rejected even with a valid
// signature causes no request.
func TestForeignTokensFetchNothing(t *testing.T) {
	key := newRSKey(t, "1")
	routes := &rsRoutes{}
	v := newJWT(t, routes, rsKeysURL)
	for _, claims := range []map[string]any{
		{"iss": "https://evil.example"}, {"aud": "https://evil.example"}, {"exp": time.Now().Add(-time.Hour).Unix()}, {"sub": ""},
	} {
		wantVerify(t, v, key.token(t, claims), auth.ErrInvalidToken)
	}
	wantHits(t, routes, rsKeysURL, 0)
	wantVerify(t, v, key.token(t, nil), auth.ErrUnavailable)
	wantHits(t, routes, rsKeysURL, 1)
}

func ExampleNewJWT() {
	verifier, err := auth.NewJWT(&auth.JWTOptions{
		Issuer:    "https://login.example.com",
		Audiences: []string{"https://api.example.com/mcp"},
		Strict:    true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = verifier.Verify(context.Background(), "not-a-jwt")
	fmt.Println(errors.Is(err, auth.ErrInvalidToken), err)
	// Output: true invalid token: not a signed JWT
}

// TestVerifiedTokens checks that a token that was accepted before is still checked for its expiry,
// its key and each of its characters.
func TestVerifiedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, forged := newRSKey(t, "1"), newRSKey(t, "1")
		routes := &rsRoutes{}
		routes.say(rsKeysURL, rsKeySet(key))
		v := newJWT(t, routes, rsKeysURL)
		short := key.token(t, map[string]any{"exp": time.Now().Add(time.Minute).Unix()})
		long := longToken(t, key)
		for range 2 {
			wantVerify(t, v, short, nil)
			wantVerify(t, v, long, nil)
		}
		head, signature := long[:strings.LastIndex(long, ".")], long[strings.LastIndex(long, "."):]
		wantVerify(t, v, head+strings.ToUpper(signature), auth.ErrInvalidToken)
		wantVerify(t, v, head, auth.ErrInvalidToken)
		wantVerify(t, v, longToken(t, forged), auth.ErrInvalidToken)
		<-time.After(time.Minute)
		wantVerify(t, v, short, auth.ErrInvalidToken)
		wantVerify(t, v, long, nil)

		// Another key with the same id.
		routes.say(rsKeysURL, rsKeySet(forged))
		<-time.After(15 * time.Minute)
		wantVerify(t, v, long, auth.ErrInvalidToken)
	})
}

// BenchmarkJWT verifies one token again and again, as the requests of one client do.
func BenchmarkJWT(b *testing.B) {
	k := newRSKey(b, "k")
	v := rsJWT(b, auth.JWTOptions{}, k)
	token := k.token(b, nil)
	if _, err := v.Verify(b.Context(), token); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}
