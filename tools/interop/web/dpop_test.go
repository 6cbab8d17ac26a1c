package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

// withDPoP returns options for sites with DPoP. If required is not set, they also accept bearer
// tokens.
func withDPoP(required, nonces bool) siteOptions {
	return siteOptions{guard: func(o *auth.GuardOptions) { o.DPoP = &auth.DPoPOptions{Required: required, Nonces: nonces} }}
}

// TestDPoP binds tokens to the client's key, because the site or the client requires it. The issuer
// requires a nonce in each proof, and the site does so in half of the cases. A refreshed token is
// bound too.
func TestDPoP(t *testing.T) {
	for _, format := range []string{formatJWT, formatOpaque} {
		for _, nonces := range []bool{false, true} {
			for _, era := range eras {
				name := strings.Join([]string{format, map[bool]string{false: "no nonces", true: "nonces"}[nonces], era.name}, " ")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					o := withDPoP(nonces, nonces) // without nonces, the client decides
					o.introspection = withoutCache.introspection
					s := newSite(t, issuers.at(t, ""), format, o)
					v := newSiteUser(t, s, "alice", func(_ *siteUser, o *oauth.ClientOptions) {
						if !nonces {
							o.DPoP = oauth.DPoPOn
						}
					})
					c := v.mustDial(era.revision)
					got := v.whoami(c)
					if !got.Bound || got.Subject != "alice" {
						t.Errorf("identity = %+v, want alice with a bound token", got)
					}
					if q := v.logins()[0]; q.Get("dpop_jkt") == "" {
						t.Errorf("authorization request lacks dpop_jkt: %v", q)
					}
					if format == formatOpaque {
						s.issuer.remove(t, "token", v.token())
						if again := v.whoami(c); !again.Bound || v.grants("refresh_token") != 1 {
							t.Errorf("after a refresh: identity = %+v, want a bound token", again)
						}
					}
					if n := len(v.logins()); n != 1 {
						t.Errorf("logins = %d, want 1", n)
					}
				})
			}
		}
	}
}

// TestDPoPTheft sends the token and the proof of another request, as an attacker would.
func TestDPoPTheft(t *testing.T) {
	for _, format := range []string{formatJWT, formatOpaque} {
		for _, nonces := range []bool{false, true} {
			t.Run(format+map[bool]string{false: " no nonces", true: " nonces"}[nonces], func(t *testing.T) {
				t.Parallel()
				s := newSite(t, issuers.at(t, ""), format, withDPoP(false, nonces))
				v := newSiteUser(t, s, "alice", func(_ *siteUser, o *oauth.ClientOptions) { o.DPoP = oauth.DPoPOn })
				v.whoami(v.mustDial(mcp.LatestRevision))
				seen, token := v.last(), v.token()
				proof := seen.header.Get("DPoP")
				before := s.calls.Load()

				s.checkRejected(t, "as a bearer token", s.call(t, "Bearer "+token), http.StatusUnauthorized, "invalid_token", before)
				s.checkRejected(t, "as a bearer token with the proof", s.call(t, "Bearer "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_token", before)
				s.checkRejected(t, "without the proof", s.call(t, "DPoP "+token), http.StatusUnauthorized, "invalid_dpop_proof", before)
				s.checkRejected(t, "the same request again", s.call(t, "DPoP "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_dpop_proof", before)

				attacker := newProver(t)
				own := attacker.proof(http.MethodPost, s.url, token, "")
				s.checkRejected(t, "the attacker's proof", s.call(t, "DPoP "+token, "DPoP", own), http.StatusUnauthorized, "invalid_dpop_proof", before)
			})
		}
	}
}

// TestDPoPProof sends proofs that were made for other requests, and a valid one.
func TestDPoPProof(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	s := newSite(t, is, formatJWT, withDPoP(true, false))
	other := newSite(t, is, formatJWT, withDPoP(true, false))
	owner := newProver(t)
	token := owner.token(t, is, s.url, scopeRead)
	for name, proof := range map[string]string{
		"for another method": owner.proof(http.MethodGet, s.url, token, ""),
		"for another URL":    owner.proof(http.MethodPost, other.url, token, ""),
		"for another token":  owner.proof(http.MethodPost, s.url, token+"x", ""),
		"for no token":       owner.proof(http.MethodPost, s.url, "", ""),
		"no proof":           "eyJ9.e30.AAAA",
	} {
		s.checkRejected(t, name, s.call(t, "DPoP "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_dpop_proof", 0)
	}
	if r := s.call(t, "Bearer "+is.token(t, s.url, scopeRead)); r.status != http.StatusUnauthorized {
		t.Errorf("unbound token: status = %d, want %d: %s", r.status, http.StatusUnauthorized, r.body)
	}
	withNonces := newSite(t, is, formatJWT, withDPoP(true, true))
	bound := owner.token(t, is, withNonces.url, scopeRead)
	r := withNonces.call(t, "DPoP "+bound, "DPoP", owner.proof(http.MethodPost, withNonces.url, bound, ""))
	withNonces.checkRejected(t, "without the nonce", r, http.StatusUnauthorized, "use_dpop_nonce", 0)
	nonce := r.header.Get("DPoP-Nonce")
	withNonces.checkRejected(t, "with another nonce", withNonces.call(t, "DPoP "+bound, "DPoP", owner.proof(http.MethodPost, withNonces.url, bound, nonce+"x")), http.StatusUnauthorized, "use_dpop_nonce", 0)
	if r := withNonces.call(t, "DPoP "+bound, "DPoP", owner.proof(http.MethodPost, withNonces.url, bound, nonce)); r.status != http.StatusOK {
		t.Errorf("with the nonce: status = %d, want %d: %s", r.status, http.StatusOK, r.body)
	}

	proof := owner.proof(http.MethodPost, s.url, token, "")
	if r := s.call(t, "DPoP "+token, "DPoP", proof); r.status != http.StatusOK || s.calls.Load() != 1 {
		t.Errorf("valid proof: status = %d, calls = %d, want %d and 1: %s", r.status, s.calls.Load(), http.StatusOK, r.body)
	}
	s.checkRejected(t, "the valid proof again", s.call(t, "DPoP "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_dpop_proof", 1)
}

// A prover makes proofs of RFC 9449 without package oauth.
type prover struct {
	t   *testing.T
	key *ecdsa.PrivateKey
}

func newProver(t *testing.T) *prover {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &prover{t, key}
}

// proof returns a proof for a request. It omits an empty token or nonce.
func (p *prover) proof(method, address, token, nonce string) string {
	p.t.Helper()
	x, y := coordinates(&p.key.PublicKey)
	header := map[string]any{"typ": "dpop+jwt", "alg": "ES256", "jwk": map[string]string{"kty": "EC", "crv": "P-256", "x": x, "y": y}}
	claims := map[string]any{"jti": rand.Text(), "htm": method, "htu": address, "iat": time.Now().Unix()}
	if token != "" {
		hash := sha256.Sum256([]byte(token))
		claims["ath"] = base64.RawURLEncoding.EncodeToString(hash[:])
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	var parts []string
	for _, part := range []any{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			p.t.Fatal(err)
		}
		parts = append(parts, base64.RawURLEncoding.EncodeToString(text))
	}
	digest := sha256.Sum256([]byte(strings.Join(parts, ".")))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, digest[:])
	if err != nil {
		p.t.Fatal(err)
	}
	signature := slices.Concat(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32)))
	return strings.Join(append(parts, base64.RawURLEncoding.EncodeToString(signature)), ".")
}

// token returns a token of the client machineID that is bound to p's key.
func (p *prover) token(t *testing.T, is *issuer, resource string, scopes ...string) string {
	t.Helper()
	endpoint := is.url + "/token"
	form := machineForm(resource, scopes)
	r := is.submit(t, "/token", machineID, machineSecret, form, p.proof(http.MethodPost, endpoint, "", ""))
	nonce := r.header.Get("DPoP-Nonce")
	if r.status != http.StatusBadRequest || nonce == "" {
		t.Fatalf("token request without a nonce: status = %d, want %d and a nonce: %s", r.status, http.StatusBadRequest, r.body)
	}
	return accessToken(t, is.submit(t, "/token", machineID, machineSecret, form, p.proof(http.MethodPost, endpoint, "", nonce)))
}
