package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejson "github.com/go-jose/go-jose/v4/json"
)

const (
	maxKeys               = 100
	defaultRefresh        = 15 * time.Minute
	maxStale              = time.Hour        // beyond the refresh interval
	minRefetch            = 30 * time.Second // between two attempts
	minRefetchWithoutKeys = 5 * time.Second  // between two attempts when there are no keys at all
	staleTimeout          = 2 * time.Second  // of a refresh that a request waits for although it has a key
	minRSA                = 2048             // bits
	maxRSA                = 8192             // bits; larger ones cost the server more than the client
	maxCandidates         = 4                // keys that are tried for one signature
)

// A publicKey is a key of an issuer.
type publicKey struct {
	id  string
	alg jose.SignatureAlgorithm // "" if the key does not say
	key any                     // *ecdsa.PublicKey, *rsa.PublicKey or ed25519.PublicKey
}

// keySet has the keys of an issuer, and fetches them.
type keySet struct {
	issuer, url     string // url may be empty
	client          *http.Client
	refreshInterval time.Duration
	fetchLock       chan struct{} // held by the one who fetches

	mu          sync.Mutex
	keys        []publicKey
	fetchedAt   time.Time // when keys were; zero if never
	attemptedAt time.Time // when the last attempt began
	lastErr     error     // of the last attempt
}

func newKeySet(o *JWTOptions) *keySet {
	s := &keySet{issuer: o.Issuer, url: o.JWKSURL, client: newFetchClient(o.HTTPClient), refreshInterval: o.RefreshInterval, fetchLock: make(chan struct{}, 1)}
	if s.refreshInterval <= 0 {
		s.refreshInterval = defaultRefresh
	}
	return s
}

// keyLookup is what the keys that are there say, at one moment.
type keyLookup struct {
	found    []publicKey
	usable   bool // there are keys, not too old
	stale    bool // they should be fetched again
	mayFetch bool // enough time has passed since the last attempt
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

// candidates returns the keys that may have made a signature. Without a key id it must be clear which key it is.
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

// find returns the keys of an id, at least one. A missing key id is "". If keys have to be fetched, one goroutine does it and the others that need them
// wait.
func (s *keySet) find(ctx context.Context, kid string, alg jose.SignatureAlgorithm) ([]publicKey, error) {
	l := s.lookup(kid, alg)
	if len(l.found) > 0 && l.stale && l.mayFetch && s.tryRefresh(ctx) {
		if l = s.lookup(kid, alg); len(l.found) == 0 && l.usable {
			return nil, invalid("its key has been withdrawn")
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
	case l.err != nil: // it may well be a new key
		return nil, unavailable("keys of the issuer", l.err)
	}
	return nil, invalid("its key is not known")
}

// tryRefresh fetches the keys, unless someone else is at it.
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

// refresh fetches the keys. It goes on when the caller's request is cancelled: whoever can make requests and cancel them could keep the keys from ever
// being fetched.
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

// discover returns where the issuer's metadata says that the keys are.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#authorization-server-metadata-discovery.
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
			return "", errors.New("the issuer's metadata is no JSON object")
		}
		if iss, _ := doc.str("issuer"); iss != s.issuer {
			return "", errors.New("the issuer's metadata is of another issuer")
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

// metadataURLs returns where the metadata of an issuer may be, in order.
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

// parseKeySet reads a JWK set. Keys that are of no use, private ones above all, are left out; a set with none that is of use is an error.
func parseKeySet(text []byte) ([]publicKey, error) {
	doc, ok := parseObject(text)
	if !ok {
		return nil, errors.New("the key set is no JSON object")
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
		return nil, errors.New("the key set has no key that can be used")
	}
	return keys, nil
}

// parseKey reads a JWK that is the public half of a key for signatures.
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
	// The certificates of a key, and where more could be had, are none of our business.
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

// suitsAlgorithm tells whether a key can be one of an algorithm, and is strong enough.
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
