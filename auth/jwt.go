package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	josejson "github.com/go-jose/go-jose/v4/json"

	"mcpwire/internal/base/defaults"
)

const maxLeeway = 60 * time.Second

// JWTOptions are the options of NewJWT. Issuer and Audiences are required.
type JWTOptions struct {
	// Issuer is the authorization server's identifier, exactly as in its metadata and in the claim
	// iss.
	Issuer string
	// Audiences are the names of this server. The claim aud must contain one exactly: the canonical
	// URL of the resource ([CanonicalResource]), or other names only if the issuer cannot use that.
	// If several services share a name, each can use the tokens of the others.
	Audiences []string
	// JWKSURL is the URL of the issuer's keys. Empty means the URL in the issuer's metadata (RFC
	// 8414 or OpenID Connect Discovery).
	JWKSURL string
	// Algorithms lists the accepted signature algorithms: ES256, ES384, ES512, EdDSA, PS256, PS384,
	// PS512, RS256, RS384 or RS512. Nil means ES256, ES384, EdDSA, PS256 and RS256. A key that
	// names its algorithm is valid only for that.
	Algorithms []string
	// Strict requires all of https://www.rfc-editor.org/rfc/rfc9068: the type at+jwt, and the
	// claims client_id, iat and jti. Without it the type may also be JWT or missing, as with older
	// issuers.
	Strict bool
	// ClientIDClaims are the claims that may contain the client's id. The first that is present
	// counts. Nil means client_id and azp. Strict uses only client_id.
	ClientIDClaims []string
	// Leeway is the tolerance for an issuer's clock that is ahead, at most 60 s. Zero means 30 s; a
	// negative value means no tolerance. It does not apply to exp.
	Leeway time.Duration
	// RefreshInterval is how long keys are used before they are fetched again, and so how long a
	// withdrawn key still works; an hour longer while the issuer does not answer. Zero means 15
	// minutes.
	RefreshInterval time.Duration
	// HTTPClient fetches metadata and keys. Nil means a new client. Its cookies and its handling of
	// redirects are not used: redirects fail.
	HTTPClient *http.Client
}

// A jwtVerifier verifies tokens that are signed by one issuer.
type jwtVerifier struct {
	issuer         string
	audiences      []string
	algorithms     []string
	strict         bool
	clientIDClaims []string
	leeway         time.Duration
	keys           *keySet

	mu sync.Mutex
	// verified has tokens by their hash, because verifying a signature costs more than all else
	// that a server does for a small request. The time to find a token does not depend on secrets:
	// who can choose the hash has the token.
	verified recentCache[[sha256.Size]byte, verifiedToken]
}

// defaultAlgorithms are the algorithms that are accepted by default.
var defaultAlgorithms = []string{"ES256", "ES384", "EdDSA", "PS256", "RS256"}

// checkAlgorithms returns the names of the algorithms, or of the default ones if names is nil. It
// knows no symmetric algorithm and not "none".
func checkAlgorithms(names []string) ([]string, error) {
	if names == nil {
		return defaultAlgorithms, nil
	}
	if len(names) == 0 {
		return nil, errors.New("no algorithms")
	}
	for _, name := range names {
		switch jose.SignatureAlgorithm(name) {
		case jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.PS256, jose.PS384, jose.PS512, jose.RS256, jose.RS384, jose.RS512:
		default:
			return nil, fmt.Errorf("%q is not a supported signature algorithm with a public key", name)
		}
	}
	return slices.Clone(names), nil
}

// NewJWT returns a [Verifier] of tokens that are signed by one issuer, as in
// https://www.rfc-editor.org/rfc/rfc9068 and https://www.rfc-editor.org/rfc/rfc8725. It starts no
// goroutines and need not be closed.
//
// It fetches the issuer's keys for the first token, when they are older than
// [JWTOptions.RefreshInterval], and at most every 30 s for an unknown key id. A fetch is limited to
// 10 s, even if the context of Verify ends earlier. It accepts at most 100 keys in 256 KiB. While
// the issuer does not answer, it uses old keys for up to an hour.
//
// It remembers the signatures that it has verified, of some thousand tokens. A token that is sent
// again is accepted while it has not expired and its key is one of the issuer's.
func NewJWT(o *JWTOptions) (Verifier, error) {
	if o == nil {
		o = &JWTOptions{}
	}
	j := &jwtVerifier{issuer: o.Issuer, audiences: unique(o.Audiences), strict: o.Strict, clientIDClaims: unique(o.ClientIDClaims), leeway: o.Leeway}
	j.verified.max, j.verified.maxBytes = maxVerified, maxVerifiedBytes
	if _, err := checkEndpoint(o.Issuer); err != nil {
		return nil, fmt.Errorf("auth: issuer: %w", err)
	}
	if len(j.audiences) == 0 {
		return nil, errors.New("auth: no audiences: name at least one that tokens must have")
	}
	if o.JWKSURL != "" {
		if _, err := checkEndpoint(o.JWKSURL); err != nil {
			return nil, fmt.Errorf("auth: key set: %w", err)
		}
	}
	var err error
	if j.algorithms, err = checkAlgorithms(o.Algorithms); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	switch {
	case o.Leeway == 0:
		j.leeway = maxLeeway / 2
	case o.Leeway < 0:
		j.leeway = 0
	case o.Leeway > maxLeeway:
		return nil, fmt.Errorf("auth: the leeway %v is more than %v", o.Leeway, maxLeeway)
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

// Verify implements Verifier. It checks the claims first, so that only a token that would be valid
// if genuine can cause a fetch of the issuer's keys.
func (j *jwtVerifier) Verify(ctx context.Context, token string) (*Principal, error) {
	hash := sha256.Sum256([]byte(token))
	j.mu.Lock()
	known, ok := j.verified.get(hash)
	j.mu.Unlock()
	if ok && time.Now().Before(known.principal.Expires) {
		keys, err := j.keys.find(ctx, known.key.id, known.alg)
		if err != nil {
			return nil, &authoritativeError{err}
		}
		if slices.ContainsFunc(keys, known.key.equal) {
			return known.principal, nil
		}
	}
	head, claims, ok := parseJWT(token)
	if !ok {
		return nil, invalid("not a signed JWT")
	}
	if iss, _ := claims.str("iss"); iss != j.issuer {
		return nil, invalid("wrong issuer")
	}
	v, err := j.verify(ctx, token, head, claims)
	if err != nil {
		return nil, &authoritativeError{err}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.verified.put(hash, v, v.size)
	return v.principal, nil
}

// Limits of the tokens that are remembered.
const (
	maxVerified      = 8192
	maxVerifiedBytes = 8 << 20 // of the tokens, which are not kept
)

// A verifiedToken is the result for a token with a valid signature.
type verifiedToken struct {
	principal *Principal
	// key is the key of the signature, with the key id in the token's header, which may be "".
	key publicKey
	alg jose.SignatureAlgorithm
	// size is the length of the token.
	size int
}

// parseJWT returns the header and the claims of a token, unchecked.
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

func (j *jwtVerifier) verify(ctx context.Context, token string, head, claims claimSet) (v verifiedToken, err error) {
	alg, reason := j.checkHeader(head)
	if reason != "" {
		return v, invalid(reason)
	}
	p, reason := j.checkClaims(claims)
	if reason != "" {
		return v, invalid(reason)
	}
	kid, ok := head.str("kid")
	if head.has("kid") && !ok {
		return v, invalid("kid is not a string")
	}
	keys, err := j.keys.find(ctx, kid, alg)
	if err != nil {
		return v, err
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return v, invalid("malformed")
	}
	for _, k := range keys {
		if _, err := signed.Verify(k.key); err == nil {
			return verifiedToken{p, publicKey{kid, k.alg, k.key}, alg, len(token)}, nil
		}
	}
	return v, invalid("invalid signature")
}

// checkHeader returns the algorithm, or the reason why the header is rejected. It does not use keys
// and certificates in the header or their URLs: it ignores jku, x5u and x5c, and rejects jwk, which
// only an attack on this check would contain.
func (j *jwtVerifier) checkHeader(head claimSet) (_ jose.SignatureAlgorithm, reason string) {
	alg, _ := head.str("alg")
	if !slices.Contains(j.algorithms, alg) {
		return "", "algorithm not accepted"
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
		return "", "typ is not at+jwt"
	case !head.has("typ"), ok && typ == "jwt":
	default:
		return "", "typ is not that of an access token"
	}
	return jose.SignatureAlgorithm(alg), ""
}

// checkClaims returns the principal of the claims, or the reason why they are invalid.
func (j *jwtVerifier) checkClaims(claims claimSet) (_ *Principal, reason string) {
	if aud, _ := claims.strs("aud"); !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(j.audiences, a) }) {
		return nil, "wrong audience"
	}
	if !claims.has("exp") {
		return nil, "exp is missing"
	}
	expires, reason := claims.checkDates(time.Now(), j.leeway)
	if reason != "" {
		return nil, reason
	}
	if jti, _ := claims.str("jti"); j.strict && (jti == "" || !claims.has("iat")) {
		return nil, "jti or iat is missing"
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
		return nil, "sub or client id is missing"
	}
	var ok bool
	if p.KeyThumbprint, ok = claims.confirmation(); !ok {
		return nil, "unsupported binding of the token"
	}
	return p, ""
}

const (
	maxKeys               = 100
	defaultRefresh        = 15 * time.Minute
	maxStale              = time.Hour        // in addition to the refresh interval
	minRefetch            = 30 * time.Second // between two attempts
	minRefetchWithoutKeys = 5 * time.Second  // between two attempts without any keys
	staleTimeout          = 2 * time.Second  // of a refresh by a request that has a key
	minRSA                = 2048             // bits
	maxRSA                = 8192             // bits; larger ones cost the server too much
	maxCandidates         = 4                // keys to try for one signature
)

// A publicKey is a key of an issuer.
type publicKey struct {
	id string
	// alg is "" if the key does not say.
	alg jose.SignatureAlgorithm
	// key is an *ecdsa.PublicKey, *rsa.PublicKey or ed25519.PublicKey.
	key any
}

// equal reports whether the keys are the same, whatever their ids.
func (k publicKey) equal(other publicKey) bool {
	own, ok := k.key.(interface{ Equal(crypto.PublicKey) bool })
	return ok && own.Equal(other.key)
}

// keySet holds the keys of an issuer, and fetches them.
type keySet struct {
	// url may be empty.
	issuer, url     string
	client          *http.Client
	refreshInterval time.Duration
	// fetchLock is a lock for fetching the keys.
	fetchLock chan struct{}

	mu   sync.Mutex
	keys []publicKey
	// fetchedAt is the time of the keys. Zero means never.
	fetchedAt time.Time
	// attemptedAt is the start of the last attempt.
	attemptedAt time.Time
	// lastErr is the error of the last attempt.
	lastErr error
}

func newKeySet(o *JWTOptions) *keySet {
	s := &keySet{issuer: o.Issuer, url: o.JWKSURL, client: newFetchClient(o.HTTPClient), refreshInterval: o.RefreshInterval, fetchLock: make(chan struct{}, 1)}
	defaults.IfNotPositive(&s.refreshInterval, defaultRefresh)
	return s
}

// A keyLookup is the result of a search in the current keys.
type keyLookup struct {
	found []publicKey
	// usable says that there are keys that are not too old.
	usable bool
	// stale says that the keys should be fetched again.
	stale bool
	// mayFetch says that enough time has passed since the last attempt.
	mayFetch bool
	err      error
}

func (s *keySet) lookup(kid string, alg jose.SignatureAlgorithm) keyLookup {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := time.Since(s.fetchedAt)
	l := keyLookup{err: s.lastErr, usable: !s.fetchedAt.IsZero() && age < s.refreshInterval+maxStale}
	wait := minRefetchWithoutKeys
	if l.usable {
		l.found = candidates(s.keys, kid, alg)
		l.stale = age >= s.refreshInterval
		wait = minRefetch
	}
	l.mayFetch = s.attemptedAt.IsZero() || time.Since(s.attemptedAt) >= wait
	return l
}

// candidates returns the keys that may have made a signature. Without a key id, only one key may
// match.
func candidates(keys []publicKey, kid string, alg jose.SignatureAlgorithm) []publicKey {
	var found []publicKey
	for _, k := range keys {
		if (kid == "" || k.id == kid) && (k.alg == "" || k.alg == alg) && suitsAlgorithm(k.key, alg) {
			found = append(found, k)
		}
	}
	if kid == "" && len(found) > 1 {
		return nil
	}
	return found[:min(len(found), maxCandidates)]
}

// find returns the keys with the given id, at least one. A missing key id is "". One goroutine
// fetches keys and the others that need them wait.
func (s *keySet) find(ctx context.Context, kid string, alg jose.SignatureAlgorithm) ([]publicKey, error) {
	l := s.lookup(kid, alg)
	if len(l.found) > 0 && l.stale && l.mayFetch && s.tryRefresh(ctx) {
		if l = s.lookup(kid, alg); len(l.found) == 0 && l.usable {
			return nil, invalid("key has been withdrawn")
		}
	}
	if len(l.found) > 0 {
		return l.found, nil
	}
	select {
	case s.fetchLock <- struct{}{}:
	case <-ctx.Done():
		return nil, unavailable("waiting for keys", ctx.Err())
	}
	defer func() { <-s.fetchLock }()
	if l = s.lookup(kid, alg); len(l.found) == 0 && l.mayFetch {
		s.refresh(ctx, fetchTimeout)
		l = s.lookup(kid, alg)
	}
	switch {
	case len(l.found) > 0:
		return l.found, nil
	case l.err != nil: // it may be a new key
		return nil, unavailable("loading the issuer's keys", l.err)
	}
	return nil, invalid("unknown key")
}

// tryRefresh fetches the keys, unless another goroutine does. It reports whether it did.
func (s *keySet) tryRefresh(ctx context.Context) bool {
	select {
	case s.fetchLock <- struct{}{}:
		defer func() { <-s.fetchLock }()
		s.refresh(ctx, staleTimeout)
		return true
	default:
		return false
	}
}

// refresh fetches the keys. It continues when the caller's request is canceled: otherwise a client
// could prevent the fetch by canceling its requests.
func (s *keySet) refresh(ctx context.Context, timeout time.Duration) {
	now := time.Now()
	s.mu.Lock()
	s.attemptedAt = now
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	keys, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
	if err == nil {
		s.keys, s.fetchedAt = keys, now
	}
}

func (s *keySet) fetch(ctx context.Context) ([]publicKey, error) {
	address := s.url
	if address == "" {
		var err error
		if address, err = s.discover(ctx); err != nil {
			return nil, err
		}
	}
	text, err := fetchDocument(ctx, s.client, address)
	if err != nil {
		return nil, err
	}
	return parseKeySet(text)
}

// discover returns the URL of the keys in the issuer's metadata.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Authorization Server Metadata Discovery").
func (s *keySet) discover(ctx context.Context) (string, error) {
	var failed error
	for _, address := range metadataURLs(s.issuer) {
		text, err := fetchDocument(ctx, s.client, address)
		if status := statusError(0); errors.As(err, &status) && status >= 400 && status < 500 {
			failed = err
			continue
		}
		if err != nil {
			return "", err
		}
		doc, ok := parseObject(text)
		if !ok {
			return "", errors.New("the issuer's metadata is not a JSON object")
		}
		if iss, _ := doc.str("issuer"); iss != s.issuer {
			return "", errors.New("the issuer's metadata names another issuer")
		}
		keys, _ := doc.str("jwks_uri")
		u, err := checkEndpoint(keys)
		if err != nil {
			return "", fmt.Errorf("jwks_uri of the issuer: %w", err)
		}
		if u.Scheme == "http" && !strings.HasPrefix(s.issuer, "http:") {
			return "", errors.New("jwks_uri of the issuer does not use https")
		}
		return keys, nil
	}
	return "", fmt.Errorf("no metadata of the issuer: %w", failed)
}

// metadataURLs returns the possible URLs of an issuer's metadata, in order.
func metadataURLs(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	origin := u.Scheme + "://" + u.Host
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	const oauth, oidc = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	if path == "" {
		return []string{origin + oauth, origin + oidc}
	}
	return []string{origin + oauth + path, origin + oidc + path, origin + path + oidc}
}

// parseKeySet parses a JWK set. It omits unusable keys, such as private ones. A set without a
// usable key is an error.
func parseKeySet(text []byte) ([]publicKey, error) {
	doc, ok := parseObject(text)
	if !ok {
		return nil, errors.New("the key set is not a JSON object")
	}
	var members []josejson.RawMessage
	if err := josejson.Unmarshal(doc["keys"], &members); err != nil {
		return nil, errors.New("the key set has no array of keys")
	}
	if len(members) > maxKeys {
		return nil, fmt.Errorf("the key set has more than %d keys", maxKeys)
	}
	var keys []publicKey
	for _, m := range members {
		if k, ok := parseKey(json.RawMessage(m)); ok {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no usable key")
	}
	return keys, nil
}

// parseKey parses a JWK that is a public signature key.
func parseKey(text []byte) (publicKey, bool) {
	jwk, ok := parseObject(text)
	if !ok {
		return publicKey{}, false
	}
	for _, private := range []string{"d", "k", "p", "q", "dp", "dq", "qi", "oth", "priv"} {
		if jwk.has(private) {
			return publicKey{}, false
		}
	}
	if use, _ := jwk.str("use"); jwk.has("use") && use != "sig" {
		return publicKey{}, false
	}
	if ops, _ := jwk.strs("key_ops"); jwk.has("key_ops") && !slices.Contains(ops, "verify") {
		return publicKey{}, false
	}
	var k publicKey
	k.id, _ = jwk.str("kid")
	alg, _ := jwk.str("alg")
	k.alg = jose.SignatureAlgorithm(alg)
	// Ignore certificates and URLs.
	maps.DeleteFunc(jwk, func(name string, _ json.RawMessage) bool {
		return !slices.Contains([]string{"kty", "crv", "x", "y", "n", "e"}, name)
	})
	bare, err := json.Marshal(jwk)
	if err != nil {
		return publicKey{}, false
	}
	var parsed jose.JSONWebKey
	if err := parsed.UnmarshalJSON(bare); err != nil || !parsed.Valid() {
		return publicKey{}, false
	}
	k.key = parsed.Key
	return k, true
}

// suitsAlgorithm reports whether a key fits an algorithm and is strong enough.
func suitsAlgorithm(key any, alg jose.SignatureAlgorithm) bool {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		return alg == jose.ES256 && k.Curve == elliptic.P256() || alg == jose.ES384 && k.Curve == elliptic.P384() ||
			alg == jose.ES512 && k.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return alg == jose.EdDSA && len(k) == ed25519.PublicKeySize
	case *rsa.PublicKey:
		bits := k.N.BitLen()
		return strings.HasPrefix(string(alg), "RS") && bits >= minRSA && bits <= maxRSA ||
			strings.HasPrefix(string(alg), "PS") && bits >= minRSA && bits <= maxRSA
	}
	return false
}

// rawBase64 is the encoding of tokens and proofs. It is strict: each value has one text.
var rawBase64 = base64.RawURLEncoding.Strict()

// decodeSegment decodes a part of a compact serialization. It rejects line breaks, which
// encoding/base64 ignores.
func decodeSegment(part string) ([]byte, bool) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	b, err := rawBase64.DecodeString(part)
	return b, err == nil
}

// A claimSet is a JSON object by member names.
type claimSet map[string]json.RawMessage

// parseObject parses a JSON object. Names are case-sensitive, and a duplicate is an error: what is
// checked must be what is used later. It uses the JSON decoder of the signature library, so that
// both read the same.
func parseObject(text []byte) (claimSet, bool) {
	if !utf8.Valid(text) {
		return nil, false
	}
	var members map[string]josejson.RawMessage
	if err := josejson.Unmarshal(text, &members); err != nil || members == nil {
		return nil, false
	}
	set := make(claimSet, len(members))
	for name, value := range members {
		set[name] = json.RawMessage(value)
	}
	return set, true
}

// has reports whether the member exists, including null.
func (c claimSet) has(name string) bool { _, ok := c[name]; return ok }

// str returns a string member. ok is false if it is missing or not a string.
func (c claimSet) str(name string) (s string, ok bool) {
	raw := c[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// strs returns a member that is a string or an array of strings.
func (c claimSet) strs(name string) (list []string, ok bool) {
	if s, ok := c.str(name); ok {
		return []string{s}, true
	}
	raw := c[name]
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	var elements []*string // pointers distinguish null from ""
	if err := json.Unmarshal(raw, &elements); err != nil {
		return nil, false
	}
	for _, e := range elements {
		if e == nil {
			return nil, false
		}
		list = append(list, *e)
	}
	return list, true
}

// maxDate is the last second of the year 9999.
const maxDate = 253402300799

// date returns a NumericDate member (https://www.rfc-editor.org/rfc/rfc7519#section-2). If it is
// missing, the date is zero and ok is true.
func (c claimSet) date(name string) (t time.Time, ok bool) {
	raw, found := c[name]
	if !found {
		return time.Time{}, true
	}
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return time.Time{}, false
	}
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err != nil || !(seconds >= 0 && seconds <= maxDate) {
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

// checkDates returns the reason why a token is not valid now, or "". exp is exact; nbf and iat may
// be in the future by leeway.
func (c claimSet) checkDates(now time.Time, leeway time.Duration) (expires time.Time, reason string) {
	exp, ok := c.date("exp")
	if !ok {
		return exp, "exp is not a date"
	}
	if c.has("exp") && !now.Before(exp) {
		return exp, "token has expired"
	}
	for _, name := range []string{"nbf", "iat"} {
		if t, ok := c.date(name); !ok || t.After(now.Add(leeway)) {
			return exp, name + " is in the future, or not a date"
		}
	}
	return exp, ""
}

// scopes returns the granted scopes, from scope
// (https://www.rfc-editor.org/rfc/rfc9068#section-2.2.3) or scp, which some issuers use. Both may
// be a text of several scopes or an array.
func (c claimSet) scopes() []string {
	list, ok := c.strs("scope")
	if !ok {
		list, _ = c.strs("scp")
	}
	var scopes []string
	for _, s := range list {
		for scope := range strings.SplitSeq(s, " ") {
			if validScope(scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	return unique(scopes)
}

// confirmation returns the thumbprint of the key that the token is bound to, or "" for an unbound
// token. A token that is bound in another way, or in two ways, is invalid, since nothing would
// check that.
func (c claimSet) confirmation() (jkt string, ok bool) {
	raw, found := c["cnf"]
	if !found {
		return "", true
	}
	cnf, ok := parseObject(raw)
	if !ok || len(cnf) != 1 {
		return "", false
	}
	jkt, _ = cnf.str("jkt")
	hash, ok := decodeSegment(jkt)
	return jkt, ok && len(hash) == sha256.Size
}
