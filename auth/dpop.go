package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxProof    = 8 << 10 // bytes
	maxProofAge = 60 * time.Second
	// replayTTL exceeds the validity of any proof: iat may be one window before or after the clock,
	// and a nonce is valid for two slots.
	replayTTL = 2*max(maxProofAge, nonceSlot) + 10*time.Second
)

// DPoPOptions configure proofs of possession (https://www.rfc-editor.org/rfc/rfc9449), which make a
// stolen token useless without its client's key. The zero DPoPOptions accept proofs but do not
// require them.
type DPoPOptions struct {
	// Required rejects tokens that are not bound to a key.
	Required bool
	// Algorithms lists the accepted algorithms of proofs, named as in [JWTOptions.Algorithms]. Nil
	// means ES256, ES384, EdDSA, PS256 and RS256.
	Algorithms []string
	// Replay remembers used proofs for 130 seconds. Nil means a cache of this process. Processes
	// that serve one resource must share one cache.
	Replay ReplayCache
	// Nonces requires a nonce of the server in each proof, so that no proof can be made in advance.
	// It sometimes costs clients an extra request. With nonces the clients' clocks do not matter.
	Nonces bool
	// NonceKeys are random keys of at least 32 bytes, shared by processes that serve one resource.
	// The first key makes nonces; all keys check them. Nil means a random key.
	NonceKeys [][]byte
}

// A dpopChecker checks proofs.
type dpopChecker struct {
	required   bool
	algorithms []string
	replay     ReplayCache
	// nonces is nil if nonces are not required.
	nonces *nonces
}

func newDPoPChecker(o *DPoPOptions) (*dpopChecker, error) {
	c := &dpopChecker{required: o.Required, replay: o.Replay}
	var err error
	if c.algorithms, err = checkAlgorithms(o.Algorithms); err != nil {
		return nil, err
	}
	if c.replay == nil {
		c.replay = newMemoryReplayCache(maxReplayKeys)
	}
	if o.Nonces {
		c.nonces, err = newNonces(o.NonceKeys)
	} else if o.NonceKeys != nil {
		err = errors.New("nonce keys are set, but nonces are off")
	}
	return c, err
}

// Errors of dpopChecker.check. It also returns ErrUnavailable and ErrReplayQuota.
var (
	errProof = errors.New("invalid DPoP proof")
	errNonce = errors.New("the proof needs another nonce")
)

func invalidProof(reason string) error { return fmt.Errorf("%w: %s", errProof, reason) }

// A dpopProof holds the content of a DPoP header with a verified signature.
type dpopProof struct {
	thumbprint               string
	method, address, ath, id string
	nonce                    string
	issued                   time.Time
}

// check checks the proof in a request of address for a token of principal, which is bound to the
// key with the principal's thumbprint. Because of the order of the checks, only the holder of both
// the token and the key can write to the replay cache. staleNonce says that the client should get a
// new nonce.
func (c *dpopChecker) check(r *http.Request, address, token string, principal *Principal) (staleNonce bool, err error) {
	headers := r.Header.Values("DPoP")
	if len(headers) != 1 {
		return false, invalidProof("not exactly one header")
	}
	p, err := c.parse(headers[0])
	if err != nil {
		return false, err
	}
	if p.method != r.Method {
		return false, invalidProof("htm is not the request's method")
	}
	if !sameURL(p.address, address) {
		return false, invalidProof("htu is not the request's URL")
	}
	hash := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare([]byte(p.ath), []byte(base64.RawURLEncoding.EncodeToString(hash[:]))) != 1 {
		return false, invalidProof("ath is not the token's hash")
	}
	if subtle.ConstantTimeCompare([]byte(p.thumbprint), []byte(principal.KeyThumbprint)) != 1 {
		return false, invalidProof("the key is not the token's")
	}
	now := time.Now()
	if c.nonces != nil {
		good, fresh := c.nonces.check(p.nonce, now)
		if !good {
			return false, errNonce
		}
		staleNonce = !fresh
	} else if d := now.Sub(p.issued); d > maxProofAge || d < -maxProofAge {
		return false, invalidProof("iat is too far from the current time")
	}
	return staleNonce, c.checkReplay(r.Context(), p, principal)
}

// checkReplay records the proof as used, and returns an error if it was used before. The owner is
// the principal, since a client can have as many keys as it wants.
func (c *dpopChecker) checkReplay(ctx context.Context, p *dpopProof, principal *Principal) error {
	key := sha256.Sum256([]byte(p.thumbprint + "\x00" + p.id)) // a thumbprint has no NUL
	text := base64.RawURLEncoding.EncodeToString(key[:])
	first, err := c.replay.Once(ctx, principal.ID(), text, replayTTL)
	if err != nil {
		return unavailable("replay cache", err)
	}
	if !first {
		return invalidProof("already used")
	}
	return nil
}

// parse parses a proof and verifies its signature with the key that it contains.
func (c *dpopChecker) parse(text string) (*dpopProof, error) {
	if len(text) > maxProof {
		return nil, invalidProof("it is too long")
	}
	head, claims, ok := parseJWT(text)
	if !ok {
		return nil, invalidProof("not a signed JWT")
	}
	if typ, _ := head.str("typ"); typ != "dpop+jwt" {
		return nil, invalidProof("typ is not dpop+jwt")
	}
	if head.has("crit") || head.has("b64") {
		return nil, invalidProof("its header has extensions")
	}
	name, _ := head.str("alg")
	if !slices.Contains(c.algorithms, name) {
		return nil, invalidProof("algorithm not accepted")
	}
	alg := jose.SignatureAlgorithm(name)
	key, ok := parseKey(head["jwk"])
	if !ok || key.alg != "" && key.alg != alg || !suitsAlgorithm(key.key, alg) {
		return nil, invalidProof("no public key for its algorithm")
	}
	p, err := parseProof(claims)
	if err != nil {
		return nil, err
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return nil, invalidProof("malformed")
	}
	if _, err := signed.Verify(key.key); err != nil {
		return nil, invalidProof("invalid signature")
	}
	thumbprint, err := (&jose.JSONWebKey{Key: key.key}).Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, invalidProof("no thumbprint for its key")
	}
	p.thumbprint = base64.RawURLEncoding.EncodeToString(thumbprint)
	return p, nil
}

// parseProof reads the claims of a proof.
func parseProof(claims claimSet) (*dpopProof, error) {
	var p dpopProof
	for _, m := range []struct {
		name string
		to   *string
	}{{"htm", &p.method}, {"htu", &p.address}, {"ath", &p.ath}, {"jti", &p.id}} {
		if *m.to, _ = claims.str(m.name); *m.to == "" {
			return nil, invalidProof("it has no " + m.name)
		}
	}
	if len(p.id) > 1024 {
		return nil, invalidProof("jti is too long")
	}
	var ok bool
	if p.issued, ok = claims.date("iat"); !ok || !claims.has("iat") {
		return nil, invalidProof("iat is missing")
	}
	if p.nonce, ok = claims.str("nonce"); claims.has("nonce") && !ok {
		return nil, invalidProof("nonce is not a string")
	}
	return &p, nil
}

// sameURL reports whether two URLs are equal except for query and fragment. See
// https://www.rfc-editor.org/rfc/rfc9449#section-4.3.
func sameURL(a, b string) bool {
	normalized := normalizeURL(a)
	return normalized != "" && normalized == normalizeURL(b)
}

// normalizeURL returns the normalized URL without query and fragment, or "" if it is invalid.
func normalizeURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" {
		return ""
	}
	return canonicalOrigin(u) + normalizePath(cmp.Or(u.EscapedPath(), "/"))
}

// normalizePath returns an escaped path with upper-case escapes, and without unnecessary ones.
func normalizePath(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			b.WriteByte(path[i])
			continue
		}
		escape := strings.ToUpper(path[i : i+3])
		if s, err := url.PathUnescape(escape); err == nil && strings.Contains(unreserved, s) {
			escape = s
		}
		b.WriteString(escape)
		i += 2
	}
	return b.String()
}

const (
	nonceSlot   = 60 * time.Second
	minNonceKey = 32 // bytes
)

// nonces makes and checks nonces for proofs (https://www.rfc-editor.org/rfc/rfc9449#section-9). A
// nonce is the MAC of a time slot, and valid in that slot and the next. So no state is needed, and
// processes with the same keys accept each other's nonces.
type nonces struct{ keys [][]byte }

func newNonces(keys [][]byte) (*nonces, error) {
	n := &nonces{}
	for _, k := range keys {
		if len(k) < minNonceKey {
			return nil, errors.New("a nonce key has less than 32 bytes")
		}
		n.keys = append(n.keys, slices.Clone(k))
	}
	if len(n.keys) == 0 {
		k := make([]byte, minNonceKey)
		rand.Read(k) // never fails
		n.keys = [][]byte{k}
	}
	return n, nil
}

func slotOf(t time.Time) int64 { return t.Unix() / int64(nonceSlot/time.Second) }

// nonceAt returns the nonce of a slot.
func (n *nonces) nonceAt(key []byte, slot int64) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("mcpwire DPoP nonce 1\x00"))
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(slot))
	mac.Write(b[:])
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// current returns the nonce that clients should use now.
func (n *nonces) current(now time.Time) string { return n.nonceAt(n.keys[0], slotOf(now)) }

// check reports whether a nonce is valid, and whether it stays valid for a while.
func (n *nonces) check(nonce string, now time.Time) (good, fresh bool) {
	slot := slotOf(now)
	for i, key := range n.keys {
		if hmac.Equal([]byte(nonce), []byte(n.nonceAt(key, slot))) {
			return true, i == 0
		}
		if hmac.Equal([]byte(nonce), []byte(n.nonceAt(key, slot-1))) {
			return true, false
		}
	}
	return false, false
}

// A ReplayCache remembers used keys, so that each is used only once. Processes that serve one
// resource must share one, or a proof can be used again at another process.
//
// Once records key for at least ttl, and reports whether it was not recorded before. Of several
// concurrent calls with the same owner and key, exactly one returns true. An error means that the
// result is unknown; then the request is rejected. Many goroutines may call Once at once.
//
// The owner of a key is the [Principal.ID] of the caller. A cache that counts by owner can keep one
// owner from filling it: it returns [ErrReplayQuota] if an owner has too many keys. Others may
// ignore it, since no key has two owners.
type ReplayCache interface {
	Once(ctx context.Context, owner, key string, ttl time.Duration) (bool, error)
}

// ErrReplayQuota is the error of a [ReplayCache] if the owner has too many keys. A [Guard] answers
// it with status 429.
var ErrReplayQuota = errors.New("too many proofs of one principal")

// A memoryReplayCache is a ReplayCache for one process.
type memoryReplayCache struct {
	max  int
	mu   sync.Mutex
	seen map[[sha256.Size]byte]struct{}
	// owners counts the keys of each owner.
	owners map[[sha256.Size]byte]int
	// expirations has the keys in the order of their use, which is that of their expiry: all have
	// the same ttl. A key with a shorter one stays until those before it expire.
	expirations []replayExpiration
}

var errReplayCacheFull = errors.New("replay cache is full")

// freeShare is the inverse of the part of the free room that an owner's keys may equal. An owner
// alone gets a sixteenth of the cache. The more owners there are, the less each gets, so that there
// is room for an owner without keys however many others use all they can.
const freeShare = 15

// maxReplayKeys is enough for 2000 proofs a second, and for 126 a second of one principal.
const maxReplayKeys = 1 << 18

// newMemoryReplayCache returns a [ReplayCache] for one process. It has room for max keys of about
// 200 bytes each.
//
// The cache never drops a key early: when it is full, Once returns an error until a key expires.
// One owner can use a sixteenth of it, and less when others use it too; then Once returns
// [ErrReplayQuota]. Keys whose owner is empty can fill it.
func newMemoryReplayCache(max int) ReplayCache {
	return &memoryReplayCache{max: max, seen: make(map[[sha256.Size]byte]struct{}), owners: make(map[[sha256.Size]byte]int)}
}

// Once implements ReplayCache. Its error is ErrReplayQuota or errReplayCacheFull.
func (c *memoryReplayCache) Once(_ context.Context, owner, key string, ttl time.Duration) (bool, error) {
	now, digest := time.Now(), sha256.Sum256([]byte(owner+"\x00"+key))
	var ownerKey [sha256.Size]byte
	if owner != "" {
		ownerKey = sha256.Sum256([]byte(owner))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.expirations) > 0 && !now.Before(c.expirations[0].at) {
		e := c.expirations[0]
		c.expirations = c.expirations[1:]
		delete(c.seen, e.key)
		if c.owners[e.owner]--; c.owners[e.owner] <= 0 {
			delete(c.owners, e.owner)
		}
	}
	if _, ok := c.seen[digest]; ok {
		return false, nil
	}
	if owner != "" && c.owners[ownerKey] >= max((c.max-len(c.seen))/freeShare, 1) {
		return false, ErrReplayQuota
	}
	if len(c.seen) >= c.max {
		return false, errReplayCacheFull
	}
	c.seen[digest] = struct{}{}
	if owner != "" {
		c.owners[ownerKey]++
	}
	c.expirations = append(c.expirations, replayExpiration{digest, ownerKey, now.Add(ttl)})
	return true, nil
}

type replayExpiration struct {
	key [sha256.Size]byte
	// owner is zero if the key has no owner.
	owner [sha256.Size]byte
	at    time.Time
}
