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

// withDPoP has sites that take tokens with proofs only, or other tokens too.
func withDPoP(required, nonces bool) siteOptions {
	return siteOptions{guard: func(o *auth.GuardOptions) { o.DPoP = &auth.DPoPOptions{Required: required, Nonces: nonces} }}
}

// TestDPoP binds tokens to the client's key, because the site or the client requires it. The issuer
// demands a nonce in each proof, and the site does in half of the cases. Refreshing binds the next
// token, too.
func TestDPoP(t *testing.T) {
	for _, format := range []string{formatJWT, formatOpaque} {
		for _, nonces := range []bool{false, true} {
			for _, era := range eras {
				name := strings.Join([]string{format, map[bool]string{false: "no nonces", true: "nonces"}[nonces], era.name}, " ")
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					o := withDPoP(nonces, nonces) // what does not require proofs leaves it to the client
					o.introspection = withoutCache.introspection
					s := newSite(t, issuers.at(t, ""), format, o)
					v := newVisitor(t, s, "alice", func(_ *visitor, o *oauth.ClientOptions) {
						if !nonces {
							o.DPoP = oauth.DPoPOn
						}
					})
					c := v.mustDial(era.revision)
					got := v.whoami(c)
					if !got.Bound || got.Subject != "alice" {
						t.Errorf("the site takes the caller for %+v", got)
					}
					if q := v.asked()[0]; q.Get("dpop_jkt") == "" {
						t.Errorf("the code is not bound: %v", q)
					}
					if format == formatOpaque {
						s.issuer.lose(t, "token", v.token())
						if again := v.whoami(c); !again.Bound || v.grants("refresh_token") != 1 {
							t.Errorf("after a refresh the site takes the caller for %+v", again)
						}
					}
					if n := len(v.asked()); n != 1 {
						t.Errorf("the user was asked %d times, want once", n)
					}
				})
			}
		}
	}
}

// TestDPoPTheft has an attacker who saw a request, with its token and its proof.
func TestDPoPTheft(t *testing.T) {
	for _, format := range []string{formatJWT, formatOpaque} {
		for _, nonces := range []bool{false, true} {
			t.Run(format+map[bool]string{false: " no nonces", true: " nonces"}[nonces], func(t *testing.T) {
				t.Parallel()
				s := newSite(t, issuers.at(t, ""), format, withDPoP(false, nonces))
				v := newVisitor(t, s, "alice", func(_ *visitor, o *oauth.ClientOptions) { o.DPoP = oauth.DPoPOn })
				v.whoami(v.mustDial(mcp.LatestRevision))
				seen, token := v.last(), v.token()
				proof := seen.header.Get("DPoP")
				before := s.calls.Load()

				s.refused(t, "as a bearer token", s.call(t, "Bearer "+token), http.StatusUnauthorized, "invalid_token", before)
				s.refused(t, "as a bearer token with the proof", s.call(t, "Bearer "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_token", before)
				s.refused(t, "without the proof", s.call(t, "DPoP "+token), http.StatusUnauthorized, "invalid_dpop_proof", before)
				s.refused(t, "the same request again", s.call(t, "DPoP "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_dpop_proof", before)

				thief := newProver(t)
				own := thief.proof(http.MethodPost, s.url, token, "")
				s.refused(t, "the thief's own proof", s.call(t, "DPoP "+token, "DPoP", own), http.StatusUnauthorized, "invalid_dpop_proof", before)
			})
		}
	}
}

// TestDPoPProof has the owner of a token make proofs for other requests than they
// are sent with, and one that is right.
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
		s.refused(t, name, s.call(t, "DPoP "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_dpop_proof", 0)
	}
	if r := s.call(t, "Bearer "+is.token(t, s.url, scopeRead)); r.status != http.StatusUnauthorized {
		t.Errorf("a token that is not bound: status %d, %s", r.status, r.body)
	}
	fussy := newSite(t, is, formatJWT, withDPoP(true, true))
	bound := owner.token(t, is, fussy.url, scopeRead)
	r := fussy.call(t, "DPoP "+bound, "DPoP", owner.proof(http.MethodPost, fussy.url, bound, ""))
	fussy.refused(t, "without the nonce", r, http.StatusUnauthorized, "use_dpop_nonce", 0)
	nonce := r.header.Get("DPoP-Nonce")
	fussy.refused(t, "with another nonce", fussy.call(t, "DPoP "+bound, "DPoP", owner.proof(http.MethodPost, fussy.url, bound, nonce+"x")), http.StatusUnauthorized, "use_dpop_nonce", 0)
	if r := fussy.call(t, "DPoP "+bound, "DPoP", owner.proof(http.MethodPost, fussy.url, bound, nonce)); r.status != http.StatusOK {
		t.Errorf("with the nonce: status %d, %s", r.status, r.body)
	}

	proof := owner.proof(http.MethodPost, s.url, token, "")
	if r := s.call(t, "DPoP "+token, "DPoP", proof); r.status != http.StatusOK || s.calls.Load() != 1 {
		t.Errorf("the right one: status %d, %s, %d calls", r.status, r.body, s.calls.Load())
	}
	s.refused(t, "the right one again", s.call(t, "DPoP "+token, "DPoP", proof), http.StatusUnauthorized, "invalid_dpop_proof", 1)
}

// A prover makes proofs of possession by RFC 9449, by hand.
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

// proof returns one for a request; a token or a nonce that is empty is not in it.
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
		t.Fatalf("the issuer does not demand a nonce: status %d, %s", r.status, r.body)
	}
	return accessToken(t, is.submit(t, "/token", machineID, machineSecret, form, p.proof(http.MethodPost, endpoint, "", nonce)))
}
