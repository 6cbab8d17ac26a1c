package oauth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

func testKey(t testing.TB) *oauth.ClientKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &oauth.ClientKey{Key: key, KeyID: "k1"}
}

func TestClientCredentials(t *testing.T) {
	key := testKey(t)
	for _, tt := range []struct {
		method string
		change func(*oauth.ClientOptions)
	}{
		{"client_secret_basic", func(o *oauth.ClientOptions) { o.ClientSecret = auth.NewSecret("SECRET: %&=") }},
		{"client_secret_post", func(o *oauth.ClientOptions) { o.ClientSecret = auth.NewSecret("SECRET: %&=") }},
		{"private_key_jwt", func(o *oauth.ClientOptions) { o.ClientKey = key }},
	} {
		t.Run(tt.method, func(t *testing.T) {
			w := newWorld(t)
			as := w.as[worldAS]
			as.AuthMethods(tt.method)
			as.ClientKey = key.Key.Public().(*ecdsa.PublicKey)
			as.Clients["robot:1"] = "SECRET: %&="
			as.Refresh = false
			delete(as.Document(), "authorization_endpoint")
			delete(as.Document(), "code_challenge_methods_supported")
			rt := w.transport(func(o *oauth.ClientOptions) {
				o.Grant, o.ClientID, o.ClientIssuer, o.Scopes = oauth.ClientCredentials{}, "robot:1", worldAS, []string{"a", "offline_access"}
				tt.change(o)
			})
			mustPost(t, rt)
			form := as.Asked[0]
			if form.Get("grant_type") != "client_credentials" || form.Get("resource") != worldServer || form.Get("scope") != "a" {
				t.Errorf("got %v", form)
			}
			if w.count("/register") != 0 {
				t.Error("registered")
			}
		})
	}
}

// Spec: C149 C150 C151 C152
func TestCredentialsAreOfOneIssuer(t *testing.T) {
	for _, issuer := range []string{worldSecondAS, worldAS + "/", oauth.TrustFirstIssuer} {
		w := newWorld(t)
		for _, as := range w.as {
			as.Clients["robot"] = "s"
			as.AuthMethods("client_secret_basic")
		}
		rt := w.transport(func(o *oauth.ClientOptions) {
			o.Grant, o.ClientID, o.ClientSecret, o.ClientIssuer = oauth.ClientCredentials{}, "robot", auth.NewSecret("s"), issuer
		})
		if issuer == oauth.TrustFirstIssuer {
			mustPost(t, rt)
			w.accept = w.as[worldSecondAS]
			w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)["authorization_servers"] = []string{worldSecondAS}
		}
		if _, err := post(t.Context(), rt); !errors.Is(err, oauth.ErrUntrusted) {
			t.Errorf("%s: got %v", issuer, err)
		}
		if n := w.count(worldSecondAS + "/token"); n != 0 {
			t.Errorf("%s: %d token requests to another issuer", issuer, n)
		}
	}
}

func TestJWTBearer(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w := newWorld(t)
		as := w.as[worldAS]
		as.Clients[""] = ""
		if refused {
			as.TokenError = func(url.Values) string { return "invalid_grant" }
		}
		var asked []oauth.AssertionRequest
		rt := w.transport(func(o *oauth.ClientOptions) {
			o.ClientIssuer = worldAS
			o.Grant = oauth.JWTBearer{Assertion: func(_ context.Context, r oauth.AssertionRequest) (auth.Secret, error) {
				asked = append(asked, r)
				return auth.NewSecret("SECRET-assertion"), nil
			}}
		})
		if refused {
			for range 3 {
				if _, err := post(t.Context(), rt); !errors.Is(err, oauth.ErrRefused) {
					t.Errorf("got %v", err)
				}
			}
		} else {
			mustPost(t, rt)
		}
		want := []oauth.AssertionRequest{{Issuer: worldAS, TokenEndpoint: worldAS + "/token", Resource: worldServer}}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Error(diff)
		}
		if f := as.Asked; len(f) != 1 || f[0].Get("assertion") != "SECRET-assertion" || f[0].Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			t.Errorf("got %v", f)
		}
	}
}

func TestEnterpriseManaged(t *testing.T) {
	for _, issued := range []string{"urn:ietf:params:oauth:token-type:id-jag", "urn:ietf:params:oauth:token-type:access_token"} {
		w := newWorld(t)
		as := w.as[worldAS]
		as.Clients["app"] = "s"
		as.AuthMethods("client_secret_basic")
		var exchange url.Values
		w.odd[worldIDP+"/token"] = func(out http.ResponseWriter, req *http.Request) {
			if err := req.ParseForm(); err != nil {
				t.Error(err)
			}
			exchange = req.PostForm
			issuer.Respond(out, http.StatusOK, map[string]any{"access_token": "SECRET-id-jag", "issued_token_type": issued, "token_type": "N_A"})
		}
		rt := w.transport(func(o *oauth.ClientOptions) {
			o.ClientID, o.ClientSecret, o.ClientIssuer = "app", auth.NewSecret("s"), worldAS
			o.Grant = oauth.EnterpriseManaged{
				TokenEndpoint: worldIDP + "/token",
				ClientID:      "at-idp",
				SubjectToken:  func(context.Context) (auth.Secret, error) { return auth.NewSecret("SECRET-id-token"), nil },
			}
		})
		if issued != "urn:ietf:params:oauth:token-type:id-jag" {
			if _, err := post(t.Context(), rt); !errors.Is(err, oauth.ErrUntrusted) || len(as.Asked) != 0 {
				t.Errorf("got %v and %v", err, as.Asked)
			}
			continue
		}
		mustPost(t, rt)
		want := url.Values{
			"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
			"requested_token_type": {"urn:ietf:params:oauth:token-type:id-jag"},
			"subject_token_type":   {"urn:ietf:params:oauth:token-type:id_token"},
			"subject_token":        {"SECRET-id-token"},
			"audience":             {worldAS},
			"resource":             {worldServer},
			"client_id":            {"at-idp"},
		}
		if diff := cmp.Diff(want, exchange); diff != "" {
			t.Error(diff)
		}
		if as.Asked[0].Get("assertion") != "SECRET-id-jag" {
			t.Errorf("got %v", as.Asked[0])
		}
	}
}

func TestPreissued(t *testing.T) {
	w := newWorld(t)
	w.as[worldAS].Tokens["second"] = issuer.Token{Resource: worldServer}
	texts := []string{"first", "second"}
	rt := w.transport(func(o *oauth.ClientOptions) {
		o.Grant = oauth.Preissued{Token: func(context.Context) (auth.Secret, error) {
			text := texts[0]
			if len(texts) > 1 {
				texts = texts[1:]
			}
			return auth.NewSecret(text), nil
		}}
	})
	mustPost(t, rt)
	w.revoke()
	resp, err := post(t.Context(), rt)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %v, %v", resp, err)
	}
	if w.count("/token")+w.count(".well-known/oauth-protected-resource/mcp") != 0 {
		t.Errorf("got %v", w.requests())
	}
	bad := w.transport(func(o *oauth.ClientOptions) {
		o.Grant = oauth.Preissued{Token: func(context.Context) (auth.Secret, error) { return auth.NewSecret("SECRET\r\nX: y"), nil }}
	})
	if _, err := post(t.Context(), bad); err == nil || errors.Is(err, oauth.ErrUntrusted) {
		t.Errorf("got %v", err)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	s := auth.NewSecret("SECRET")
	v := struct {
		R oauth.Record
		O oauth.ClientOptions
	}{
		oauth.Record{ProofKey: s, Tokens: &oauth.Tokens{Access: s, Refresh: s}, Client: &oauth.RegisteredClient{Secret: s}},
		oauth.ClientOptions{ClientSecret: s},
	}
	j, err := json.Marshal(v.R)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s", v, v, v, j)
	for _, bad := range []string{"SECRET", fmt.Sprintf("%x", "SECRET"), base64.StdEncoding.EncodeToString([]byte("SECRET"))} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in %q", bad, text)
		}
	}
}
