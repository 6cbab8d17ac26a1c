package oauth_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

// Spec: C140 C145 C147 C148
func TestRegistrationOrder(t *testing.T) {
	const cimd = "https://app.example.com/client.json"
	for _, tt := range []struct {
		name   string
		as     func(*issuer.Issuer)
		client func(*oauth.ClientOptions)
		want   string
		method string
	}{
		{"configured", func(s *issuer.Issuer) {
			s.Document()["client_id_metadata_document_supported"] = true
			s.AuthMethods("client_secret_post", "client_secret_basic")
			s.Clients["mine"] = "s"
		}, func(o *oauth.ClientOptions) {
			o.ClientID, o.ClientSecret, o.ClientIssuer, o.ClientIDMetadataURL = "mine", auth.NewSecret("s"), worldAS, cimd
		}, "mine", ""},
		{"metadata document", func(s *issuer.Issuer) {
			s.Document()["client_id_metadata_document_supported"] = true
			s.Clients[cimd] = ""
		}, func(o *oauth.ClientOptions) { o.ClientIDMetadataURL = cimd }, cimd, ""},
		{"metadata document not supported", func(*issuer.Issuer) {}, func(o *oauth.ClientOptions) { o.ClientIDMetadataURL = cimd },
			"client-1-of-as.example.com", "none"},
		{"with basic", func(s *issuer.Issuer) {
			s.AuthMethods("client_secret_basic")
		}, func(*oauth.ClientOptions) {}, "client-1-of-as.example.com", "client_secret_basic"},
		{"with post", func(s *issuer.Issuer) {
			s.AuthMethods("client_secret_post")
		}, func(*oauth.ClientOptions) {}, "client-1-of-as.example.com", "client_secret_post"},
		{"methods not in the metadata", func(s *issuer.Issuer) { delete(s.Document(), "token_endpoint_auth_methods_supported") },
			func(*oauth.ClientOptions) {}, "client-1-of-as.example.com", "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			as := w.as[worldAS]
			tt.as(as)
			mustPost(t, w.transport(func(o *oauth.ClientOptions) {
				o.Registration.RedirectURIs = []string{worldCallback}
				tt.client(o)
			}))
			if got := as.Authorized[0].Get("client_id"); got != tt.want {
				t.Errorf("got client id %q, want %q", got, tt.want)
			}
			if tt.method == "" {
				if len(as.Registrations) != 0 {
					t.Errorf("registered: %v", as.Registrations)
				}
				return
			}
			want := []map[string]any{{
				"client_name": "MCP client", "redirect_uris": []any{worldCallback}, "application_type": "native",
				"grant_types": []any{"authorization_code", "refresh_token"}, "response_types": []any{"code"}, "token_endpoint_auth_method": tt.method,
			}}
			if diff := cmp.Diff(want, as.Registrations); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Spec: C149 C150 C151 C152 C153
func TestServerMoves(t *testing.T) {
	w := newWorld(t)
	w.as[worldAS].Refresh = true
	rt := w.transport(nil)
	mustPost(t, rt)
	w.accept = w.as[worldSecondAS]
	w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)["authorization_servers"] = []string{worldSecondAS}
	mustPost(t, rt)
	second := w.as[worldSecondAS]
	if len(second.Registrations) != 1 {
		t.Errorf("got %d registrations", len(second.Registrations))
	}
	for _, q := range append(second.Authorized, second.Asked...) {
		if got := q.Get("client_id"); got != "client-1-of-second.example.com" || q.Has("refresh_token") {
			t.Errorf("got %v", q)
		}
	}
	// Back at the first server, the registration there is still valid.
	w.accept = w.as[worldAS]
	w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)["authorization_servers"] = []string{worldAS}
	mustPost(t, rt)
	if n := len(w.as[worldAS].Registrations); n != 1 {
		t.Errorf("got %d registrations at the first", n)
	}
}

// TestRegistrationForgotten shows that the client registers again if the authorization server has
// lost its registration.
func TestRegistrationForgotten(t *testing.T) {
	w := newWorld(t)
	as := w.as[worldAS]
	c := w.client(nil)
	rt, err := c.Transport(worldServer, w)
	if err != nil {
		t.Fatal(err)
	}
	mustPost(t, rt)
	if err := c.Forget(t.Context(), worldServer); err != nil {
		t.Fatal(err)
	}
	as.TokenError = func(url.Values) string { return "invalid_client" }
	if _, err := post(t.Context(), rt); !errors.Is(err, oauth.ErrRefused) {
		t.Fatalf("got %v", err)
	}
	if len(as.Registrations) != 1 {
		t.Fatalf("got %d registrations", len(as.Registrations))
	}
	as.TokenError = nil
	if err := c.Forget(t.Context(), worldServer); err != nil {
		t.Fatal(err)
	}
	mustPost(t, rt)
	if len(as.Registrations) != 2 {
		t.Errorf("got %d registrations", len(as.Registrations))
	}
}

func TestRegisteredSecretExpires(t *testing.T) {
	w := newWorld(t)
	as := w.as[worldAS]
	as.AuthMethods("client_secret_basic")
	w.odd[worldAS+"/register"] = func(out http.ResponseWriter, req *http.Request) {
		as.Clients["x"] = "s"
		issuer.Respond(out, http.StatusCreated, map[string]any{"client_id": "x", "client_secret": "s", "client_secret_expires_at": time.Now().Add(-time.Hour).Unix()})
	}
	c := w.client(nil)
	for range 2 {
		rt, err := c.Transport(worldServer, w)
		if err != nil {
			t.Fatal(err)
		}
		mustPost(t, rt)
		if err := c.Forget(t.Context(), worldServer); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.count("/register"); got != 2 {
		t.Errorf("got %d registrations", got)
	}
}

// Spec: C141 C142 C143 C144
func TestMetadataDocument(t *testing.T) {
	w := newWorld(t)
	b, err := w.client(func(o *oauth.ClientOptions) {
		o.ClientIDMetadataURL = "https://app.example.com/client.json"
		o.Registration.ClientName = "An <App>"
	}).MetadataDocument()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"client_id": "https://app.example.com/client.json", "client_name": "An <App>", "application_type": "native",
		"redirect_uris": []any{"http://127.0.0.1/callback", "http://[::1]/callback"}, "token_endpoint_auth_method": "none",
		"grant_types": []any{"authorization_code", "refresh_token"}, "response_types": []any{"code"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := w.client(nil).MetadataDocument(); err == nil {
		t.Error("a document without a URL")
	}
}
