package auth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

const rsIntrospect = "https://login.example.com/introspect"

func newIntrospection(t *testing.T, routes *rsRoutes, change func(*auth.IntrospectionOptions)) auth.Verifier {
	t.Helper()
	o := auth.IntrospectionOptions{
		Endpoint: rsIntrospect, Issuer: rsIssuer, Audiences: []string{rsResource}, ClientID: "rs", ClientSecret: auth.NewSecret("s:e c"), HTTPClient: routes.client(),
	}
	if change != nil {
		change(&o)
	}
	v, err := auth.NewIntrospection(&o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func rsAnswer() map[string]any {
	return with(rsClaims(), map[string]any{"active": true, "token_type": "Bearer"})
}

// Spec: S203 S208 S210 S211
func TestIntrospection(t *testing.T) {
	jkt := newRSKey(t, "").thumbprint(t)
	null := json.RawMessage("null")
	for _, tt := range []struct {
		name    string
		changes map[string]any
		want    error
	}{
		{"good", nil, nil},
		{"audiences", map[string]any{"aud": []string{"x", rsResource}}, nil},
		{"no expiry", map[string]any{"exp": nil}, nil},
		{"no subject", map[string]any{"sub": nil}, nil},
		{"bound", map[string]any{"cnf": map[string]any{"jkt": jkt}, "token_type": "DPoP"}, nil},
		{"inactive", map[string]any{"active": false}, auth.ErrInvalidToken},
		{"active is a text", map[string]any{"active": "true"}, auth.ErrUnavailable},
		{"active is missing", map[string]any{"active": nil}, auth.ErrUnavailable},
		{"active by another name", map[string]any{"active": nil, "Active": true}, auth.ErrUnavailable},
		{"another audience", map[string]any{"aud": "https://other.example"}, auth.ErrInvalidToken},
		{"no audience", map[string]any{"aud": nil}, auth.ErrInvalidToken},
		{"wrong issuer", map[string]any{"iss": "https://other.example"}, auth.ErrInvalidToken},
		{"no issuer", map[string]any{"iss": nil}, auth.ErrInvalidToken},
		{"expired", map[string]any{"exp": time.Now().Add(-time.Second).Unix()}, auth.ErrInvalidToken},
		{"expiry is null", map[string]any{"exp": null}, auth.ErrInvalidToken},
		{"not valid yet", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}, auth.ErrInvalidToken},
		{"nobody's", map[string]any{"sub": nil, "client_id": nil}, auth.ErrInvalidToken},
		{"bound in another way", map[string]any{"cnf": map[string]any{"x5t#S256": jkt}}, auth.ErrInvalidToken},
		{"access token", map[string]any{"token_type": "access_token"}, nil},
		{"token without a type", map[string]any{"token_type": nil}, nil},
		{"type is null", map[string]any{"token_type": null}, nil},
		{"refresh token", map[string]any{"token_type": "refresh_token"}, auth.ErrInvalidToken},
		{"identity token", map[string]any{"token_type": "id_token"}, auth.ErrInvalidToken},
		{"type of another kind", map[string]any{"token_type": 1}, auth.ErrInvalidToken},
		{"bound without a thumbprint", map[string]any{"token_type": "DPoP"}, auth.ErrInvalidToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes := &rsRoutes{}
			routes.say(rsIntrospect, with(rsAnswer(), tt.changes))
			wantVerify(t, newIntrospection(t, routes, nil), "opaque", tt.want)
		})
	}
}

func TestIntrospectionIssuerOptional(t *testing.T) {
	optional := func(o *auth.IntrospectionOptions) { o.IssuerOptional = true }
	for changes, want := range map[*map[string]any]error{
		{"iss": nil}:                    nil,
		{"iss": "https://evil.example"}: auth.ErrInvalidToken,
		{"iss": 5}:                      auth.ErrInvalidToken,
	} {
		routes := &rsRoutes{}
		routes.say(rsIntrospect, with(rsAnswer(), *changes))
		v := newIntrospection(t, routes, optional)
		p, err := v.Verify(t.Context(), "opaque")
		if !errors.Is(err, want) || err == nil && p.Issuer != rsIssuer {
			t.Errorf("%v: %v, %v, want %v", *changes, p, err, want)
		}
	}
}

func TestIntrospectionRequest(t *testing.T) {
	for _, inBody := range []bool{false, true} {
		routes := &rsRoutes{}
		routes.on(rsIntrospect, func(r *http.Request) (int, http.Header, string) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			got, _ := url.ParseQuery(string(body))
			want := url.Values{"token": {"t+/="}, "token_type_hint": {"access_token"}}
			authorization := "Basic " + base64.StdEncoding.EncodeToString([]byte("rs:s%3Ae+c"))
			if inBody {
				want["client_id"], want["client_secret"], authorization = []string{"rs"}, []string{"s:e c"}, ""
			}
			if got.Encode() != want.Encode() || r.Method != "POST" || r.Header.Get("Authorization") != authorization {
				t.Errorf("%s with Authorization %q and body %s, want POST, %q and %s", r.Method, r.Header.Get("Authorization"), body, authorization, want.Encode())
			}
			return 200, nil, `{"active":false}`
		})
		wantVerify(t, newIntrospection(t, routes, func(o *auth.IntrospectionOptions) { o.SecretInBody = inBody }), "t+/=", auth.ErrInvalidToken)
	}
}

func TestIntrospectionUnavailable(t *testing.T) {
	good, err := json.Marshal(rsAnswer())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name        string
		status      int
		contentType string
		body        string
	}{
		{"no answer", 0, "", ""},
		{"client secret rejected", 401, "application/json", `{"active":true}`},
		{"redirect", 307, "application/json", string(good)},
		{"no JSON type", 200, "text/plain", string(good)},
		{"no JSON", 200, "application/json", "{"},
		{"null", 200, "application/json", "null"},
		{"large", 200, "application/json", string(good) + strings.Repeat(" ", 256<<10)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			routes := &rsRoutes{}
			routes.on(rsIntrospect, func(*http.Request) (int, http.Header, string) {
				return tt.status, http.Header{"Content-Type": {tt.contentType}, "Location": {"https://evil.example/"}}, tt.body
			})
			v := newIntrospection(t, routes, nil)
			_, err := v.Verify(t.Context(), "opaque-and-secret")
			if !errors.Is(err, auth.ErrUnavailable) || strings.Contains(err.Error(), "opaque-and-secret") || strings.Contains(err.Error(), "s:e") {
				t.Errorf("Verify: %v, want ErrUnavailable without any secret", err)
			}
			wantHits(t, routes, "https://evil.example/", 0)
		})
	}
}

func TestIntrospectionCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name     string
			expires  time.Duration // zero means never
			ttl      time.Duration
			lifetime time.Duration
		}{
			{"a minute", 0, 0, time.Minute},
			{"until it expires", 10 * time.Second, 0, 10 * time.Second},
			{"as configured", time.Hour, 5 * time.Second, 5 * time.Second},
			{"at most a minute", time.Hour, time.Hour, time.Minute},
		} {
			routes, changes := &rsRoutes{}, map[string]any{"exp": nil}
			if tt.expires > 0 {
				changes["exp"] = time.Now().Add(tt.expires).Unix()
			}
			routes.say(rsIntrospect, with(rsAnswer(), changes))
			v := newIntrospection(t, routes, func(o *auth.IntrospectionOptions) { o.CacheTTL = tt.ttl })
			wantVerify(t, v, "one", nil)
			routes.say(rsIntrospect, map[string]any{"active": false})
			<-time.After(tt.lifetime - time.Nanosecond)
			wantVerify(t, v, "one", nil)
			wantVerify(t, v, "two", auth.ErrInvalidToken)
			wantHits(t, routes, rsIntrospect, 2)
			<-time.After(time.Nanosecond)
			wantVerify(t, v, "one", auth.ErrInvalidToken)
			wantHits(t, routes, rsIntrospect, 3)
		}
		routes := &rsRoutes{}
		routes.say(rsIntrospect, rsAnswer())
		v := newIntrospection(t, routes, func(o *auth.IntrospectionOptions) { o.CacheTTL = -1 })
		wantVerify(t, v, "one", nil)
		wantVerify(t, v, "one", nil)
		wantHits(t, routes, rsIntrospect, 2)
	})
}

func TestIntrospectionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, err := json.Marshal(rsAnswer())
		if err != nil {
			t.Fatal(err)
		}
		routes, release := &rsRoutes{}, make(chan struct{})
		routes.on(rsIntrospect, func(*http.Request) (int, http.Header, string) {
			<-release
			return 200, nil, string(good)
		})
		v := newIntrospection(t, routes, nil)
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = v.Verify(first, "one") })
		synctest.Wait()
		for range 20 {
			wg.Go(func() { wantVerify(t, v, "one", nil) })
		}
		synctest.Wait()
		cancel() // the context of the caller
		close(release)
		wg.Wait()
		wantHits(t, routes, rsIntrospect, 1)
	})
}

func TestIntrospectionSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		routes, release := &rsRoutes{}, make(chan struct{})
		routes.on(rsIntrospect, func(*http.Request) (int, http.Header, string) {
			<-release
			return 200, nil, `{"active":false}`
		})
		v := newIntrospection(t, routes, nil)
		var wg sync.WaitGroup
		for i := range 70 {
			wg.Go(func() { wantVerify(t, v, fmt.Sprint(i), auth.ErrInvalidToken) })
		}
		synctest.Wait()
		wantHits(t, routes, rsIntrospect, 64)
		close(release)
		wg.Wait()
		wantHits(t, routes, rsIntrospect, 70)
	})
}

func TestIntrospectionOptions(t *testing.T) {
	good := auth.IntrospectionOptions{Endpoint: rsIntrospect, Issuer: rsIssuer, Audiences: []string{rsResource}, ClientID: "rs", ClientSecret: auth.NewSecret("x")}
	for _, tt := range []struct {
		name   string
		change func(*auth.IntrospectionOptions)
	}{
		{"no endpoint", func(o *auth.IntrospectionOptions) { o.Endpoint = "" }},
		{"http", func(o *auth.IntrospectionOptions) { o.Endpoint = "http://login.example.com/introspect" }},
		{"no issuer", func(o *auth.IntrospectionOptions) { o.Issuer = "" }},
		{"no audience", func(o *auth.IntrospectionOptions) { o.Audiences = nil }},
		{"no client", func(o *auth.IntrospectionOptions) { o.ClientID = "" }},
		{"no secret", func(o *auth.IntrospectionOptions) { o.ClientSecret = auth.Secret{} }},
	} {
		o := good
		tt.change(&o)
		if _, err := auth.NewIntrospection(&o); err == nil {
			t.Errorf("%s: NewIntrospection succeeded", tt.name)
		}
	}
	if _, err := auth.NewIntrospection(&good); err != nil {
		t.Errorf("NewIntrospection: %v", err)
	}
}
