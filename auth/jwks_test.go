package auth_test

import (
	"context"
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

	"mcpwire/auth"
)

func newJWT(t *testing.T, routes *rsRoutes, keysURL string) *auth.JWT {
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
		wantVerify(t, v, tokens["2"], auth.ErrInvalidToken) // too soon for another look
		wantHits(t, routes, rsKeysURL, 1)
		<-time.After(time.Second)
		wantVerify(t, v, tokens["2"], nil)
		wantHits(t, routes, rsKeysURL, 2)

		for range 50 {
			wantVerify(t, v, tokens["3"], auth.ErrInvalidToken) // an unknown key costs a fetch in 30 s
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
		wantVerify(t, v, tokens["1"], auth.ErrInvalidToken) // withdrawn
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
		<-time.After(5 * time.Second) // without keys it is tried again sooner
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
				t.Errorf("the first, whose request was cancelled: %v", err)
			}
		})
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for range 20 {
			wg.Go(func() { wantVerify(t, v, token, nil) })
		}
		if _, err := v.Verify(impatient, token); !errors.Is(err, auth.ErrUnavailable) {
			t.Errorf("one that waits no longer: %v, want ErrUnavailable", err)
		}
		cancel() // must not keep the others from getting the keys
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

func TestKeySetOdd(t *testing.T) {
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
		{"another issuer", map[string]any{"issuer": rsIssuer + "/", "jwks_uri": rsKeysURL}},
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
			// What answers with something wrong is not passed over for the next.
			routes.say(urls[1], map[string]any{"issuer": rsIssuer, "jwks_uri": rsKeysURL})
			wantVerify(t, newJWT(t, routes, ""), token, auth.ErrUnavailable)
		})
	}
	t.Run("nowhere", func(t *testing.T) { wantVerify(t, newJWT(t, &rsRoutes{}, ""), token, auth.ErrUnavailable) })
}

// A token that would not be good if it were genuine does not cause any request.
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
	// Output: true invalid token: it is no signed JWT
}
