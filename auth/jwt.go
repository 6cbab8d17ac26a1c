package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const maxLeeway = 60 * time.Second

// JWTOptions say which tokens a [JWT] accepts. Issuer and Audiences are required.
type JWTOptions struct {
	// Issuer is the authorization server's identifier, exactly as in its metadata and in the claim iss.
	Issuer string
	// Audiences are the names of this server, of which the claim aud must have one, exactly: the canonical URL of the resource ([CanonicalResource]), and
	// others only if the issuer cannot be made to use that. A name that several services share lets each use the tokens of the others.
	Audiences []string
	// JWKSURL is where the issuer's keys are. If it is empty, the issuer's metadata says so (RFC 8414 or OpenID Connect Discovery).
	JWKSURL string
	// Algorithms that signatures may use: ES256, ES384, ES512, EdDSA, PS256, PS384, PS512, RS256, RS384 or RS512. Nil means ES256, ES384, EdDSA, PS256 and
	// RS256. A key that names its algorithm is good for that one only.
	Algorithms []string
	// Strict demands all of https://www.rfc-editor.org/rfc/rfc9068: the type at+jwt, and the claims client_id, iat and jti. Without it the type may also be
	// JWT, or missing, as with issuers that do not know that document.
	Strict bool
	// ClientIDClaims are the claims that may have the client's id; the first that is there counts. Nil means client_id and azp. Strict only knows
	// client_id.
	ClientIDClaims []string
	// Leeway is by how much the issuer's clock may be ahead, at most 60 s; 0 means 30 s, less than 0 none. There is none for exp.
	Leeway time.Duration
	// RefreshInterval is how long keys are used before they are fetched again; 0 means 15 min. So long may a key go on to work after the issuer has withdrawn
	// it; an hour longer while the issuer does not answer.
	RefreshInterval time.Duration
	// HTTPClient fetches metadata and keys; nil means one of its own. Its cookies and its handling of redirects are not used: redirects fail.
	HTTPClient *http.Client
}

// JWT verifies tokens that are signed by one issuer, by https://www.rfc-editor.org/rfc/rfc9068 and https://www.rfc-editor.org/rfc/rfc8725. It may be used
// by many goroutines at once, has no goroutines of its own and need not be closed.
//
// The issuer's keys are fetched with the first token, when they are older than [JWTOptions.RefreshInterval], and for a key id that is not known, but for
// that at most once in 30 s. At most 100 keys in 256 KiB are taken. While the issuer does not answer, old keys go on to be used for an hour.
type JWT struct {
	issuer         string
	audiences      []string
	algorithms     []jose.SignatureAlgorithm
	strict         bool
	clientIDClaims []string
	leeway         time.Duration
	keys           *keySet
}

// defaultAlgorithms is what is accepted unless options say otherwise.
var defaultAlgorithms = []string{"ES256", "ES384", "EdDSA", "PS256", "RS256"}

// parseAlgorithms returns the algorithms by name. None that is symmetric, or "none", is known.
func parseAlgorithms(names []string) ([]jose.SignatureAlgorithm, error) {
	if names == nil {
		names = defaultAlgorithms
	}
	if len(names) == 0 {
		return nil, errors.New("no algorithms")
	}
	var algorithms []jose.SignatureAlgorithm
	for _, name := range names {
		switch a := jose.SignatureAlgorithm(name); a {
		case jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.PS256, jose.PS384, jose.PS512, jose.RS256, jose.RS384, jose.RS512:
			algorithms = append(algorithms, a)
		default:
			return nil, fmt.Errorf("%q is no signature algorithm with a public key that is known here", name)
		}
	}
	return algorithms, nil
}

// NewJWT returns a verifier of signed tokens. It fetches nothing yet.
func NewJWT(o *JWTOptions) (*JWT, error) {
	if o == nil {
		o = &JWTOptions{}
	}
	j := &JWT{issuer: o.Issuer, audiences: unique(o.Audiences), strict: o.Strict, clientIDClaims: unique(o.ClientIDClaims), leeway: o.Leeway}
	if _, err := checkEndpoint(o.Issuer); err != nil {
		return nil, fmt.Errorf("auth: issuer: %w", err)
	}
	if len(j.audiences) == 0 {
		return nil, errors.New("auth: a token must be for somebody: no audiences")
	}
	if o.JWKSURL != "" {
		if _, err := checkEndpoint(o.JWKSURL); err != nil {
			return nil, fmt.Errorf("auth: key set: %w", err)
		}
	}
	var err error
	if j.algorithms, err = parseAlgorithms(o.Algorithms); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	switch {
	case o.Leeway == 0:
		j.leeway = maxLeeway / 2
	case o.Leeway < 0:
		j.leeway = 0
	case o.Leeway > maxLeeway:
		return nil, fmt.Errorf("auth: a leeway of %v is more than %v", o.Leeway, maxLeeway)
	}
	switch {
	case o.Strict:
		j.clientIDClaims = []string{"client_id"}
	case len(j.clientIDClaims) == 0:
		j.clientIDClaims = []string{"client_id", "azp"}
	}
	j.keys = newKeySet(o)
	return j, nil
}

// Verify returns whose token it is. What the token claims is looked at first, and only a token that would be good if it were genuine can make the issuer's
// keys be fetched, which ends after 10 s even if ctx ends before.
func (j *JWT) Verify(ctx context.Context, token string) (*Principal, error) {
	head, claims, ok := parseJWT(token)
	if !ok {
		return nil, invalid("it is no signed JWT")
	}
	if iss, _ := claims.str("iss"); iss != j.issuer {
		return nil, invalid("it is from another issuer")
	}
	p, err := j.verify(ctx, token, head, claims)
	if err != nil {
		return nil, &authoritativeError{err}
	}
	return p, nil
}

// parseJWT returns the header and the claims of a token, without any judgment on them.
func parseJWT(token string) (head, claims claimSet, ok bool) {
	parts := strings.SplitN(token, ".", 4)
	if len(token) > maxToken || len(parts) != 3 {
		return nil, nil, false
	}
	if _, ok := decodeSegment(parts[2]); !ok || parts[2] == "" {
		return nil, nil, false
	}
	var sets [2]claimSet
	for i := range sets {
		text, ok := decodeSegment(parts[i])
		if !ok {
			return nil, nil, false
		}
		if sets[i], ok = parseObject(text); !ok {
			return nil, nil, false
		}
	}
	return sets[0], sets[1], true
}

func (j *JWT) verify(ctx context.Context, token string, head, claims claimSet) (*Principal, error) {
	alg, reason := j.checkHeader(head)
	if reason != "" {
		return nil, invalid(reason)
	}
	p, reason := j.checkClaims(claims)
	if reason != "" {
		return nil, invalid(reason)
	}
	kid, ok := head.str("kid")
	if head.has("kid") && !ok {
		return nil, invalid("kid is no string")
	}
	keys, err := j.keys.find(ctx, kid, alg)
	if err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return nil, invalid("it cannot be parsed")
	}
	for _, k := range keys {
		if _, err := signed.Verify(k.key); err == nil {
			return p, nil
		}
	}
	return nil, invalid("the signature is wrong")
}

// checkHeader returns the algorithm, or why the header is refused. Keys and certificates in it, or where they could be had, do not count:
// jku, x5u and x5c are passed over, and jwk is refused, since nothing but an attack on this very check has it.
func (j *JWT) checkHeader(head claimSet) (_ jose.SignatureAlgorithm, reason string) {
	name, _ := head.str("alg")
	alg := jose.SignatureAlgorithm(name)
	if !slices.Contains(j.algorithms, alg) {
		return "", "its algorithm is not accepted"
	}
	for _, name := range []string{"crit", "b64", "jwk", "zip", "enc"} {
		if head.has(name) {
			return "", "its header has " + name
		}
	}
	typ, ok := head.str("typ")
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	switch {
	case typ == "at+jwt":
	case j.strict:
		return "", "its type is not at+jwt"
	case !head.has("typ"), ok && typ == "jwt":
	default:
		return "", "its type is not that of an access token"
	}
	return alg, ""
}

// checkClaims returns the principal that the token would stand for, or why it would not.
func (j *JWT) checkClaims(claims claimSet) (_ *Principal, reason string) {
	if aud, _ := claims.strs("aud"); !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(j.audiences, a) }) {
		return nil, "it is for somebody else"
	}
	if !claims.has("exp") {
		return nil, "it has no exp"
	}
	expires, reason := claims.checkDates(time.Now(), j.leeway)
	if reason != "" {
		return nil, reason
	}
	if jti, _ := claims.str("jti"); j.strict && (jti == "" || !claims.has("iat")) {
		return nil, "it has no jti or iat"
	}
	p := &Principal{Issuer: j.issuer, Expires: expires, Scopes: claims.scopes(), Claims: map[string]json.RawMessage(claims)}
	p.Subject, _ = claims.str("sub")
	for _, name := range j.clientIDClaims {
		if claims.has(name) {
			p.ClientID, _ = claims.str(name)
			break
		}
	}
	if p.Subject == "" || p.ClientID == "" {
		return nil, "it has no sub or no client id"
	}
	var ok bool
	if p.KeyThumbprint, ok = claims.confirmation(); !ok {
		return nil, "it is bound in a way that cannot be checked"
	}
	return p, ""
}
