package issuer

import (
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// authenticate returns the client of a token request, and whether it has authenticated.
func (i *Issuer) authenticate(r *http.Request) (string, bool) {
	id, secret, basic := r.BasicAuth()
	used := "none"
	switch {
	case basic:
		used = "client_secret_basic"
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	case r.PostForm.Get("client_assertion") != "":
		used = "private_key_jwt"
		id = i.checkAssertion(r.PostForm.Get("client_assertion"))
		secret = i.Clients[id]
	default:
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
		if secret != "" {
			used = "client_secret_post"
		}
	}
	methods, _ := i.Document()["token_endpoint_auth_methods_supported"].([]string)
	if methods != nil && !slices.Contains(methods, used) {
		i.errorf("client authenticated by %s, supported are %v", used, methods)
	}
	want, known := i.Clients[id]
	return id, known && secret == want
}

// checkAssertion returns the client that an assertion is by.
func (i *Issuer) checkAssertion(assertion string) string {
	signed, err := jose.ParseSignedCompact(assertion, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		i.errorf("assertion: %v", err)
		return ""
	}
	payload, err := signed.Verify(i.ClientKey)
	if err != nil {
		i.errorf("assertion: %v", err)
		return ""
	}
	var c struct{ Iss, Sub, Aud, Jti string }
	if err := json.Unmarshal(payload, &c); err != nil || c.Iss != c.Sub || c.Aud != i.URL || c.Jti == "" {
		i.errorf("assertion %s: %v", payload, err)
	}
	return c.Iss
}

// CheckProof checks the proof of possession (https://www.rfc-editor.org/rfc/rfc9449) of a request
// for a URL with an access token, which may be "". It returns the proof's claims and the thumbprint
// of its key.
func CheckProof(r *http.Request, target, token string) (claims map[string]any, thumbprint string, err error) {
	signed, err := jose.ParseSignedCompact(r.Header.Get("DPoP"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, "", fmt.Errorf("proof: %w", err)
	}
	head := signed.Signatures[0].Header
	payload, err := signed.Verify(head.JSONWebKey)
	if err != nil || !head.JSONWebKey.IsPublic() || head.ExtraHeaders["typ"] != "dpop+jwt" {
		return nil, "", fmt.Errorf("proof: header %v: %v", head, err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return nil, "", fmt.Errorf("proof: %w", err)
	}
	var ath any
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		ath = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if claims["htm"] != r.Method || claims["htu"] != target || claims["ath"] != ath || claims["jti"] == "" || claims["iat"] == nil {
		return nil, "", fmt.Errorf("proof has %v for %s %s", claims, r.Method, target)
	}
	print, err := head.JSONWebKey.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, "", fmt.Errorf("proof: %w", err)
	}
	return claims, base64.RawURLEncoding.EncodeToString(print), nil
}
