package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"mcpwire/auth"
)

// dpopAlgorithm is the signature algorithm of all proofs.
const dpopAlgorithm = "ES256"

// A proofKey makes proofs of possession. See https://www.rfc-editor.org/rfc/rfc9449. Many
// goroutines may use it at once.
type proofKey struct {
	private *ecdsa.PrivateKey
	signer  jose.Signer
	// thumbprint is the thumbprint of the public key, as in dpop_jkt.
	thumbprint string
}

// newProofKey generates a key.
func newProofKey() (*proofKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return proofKeyOf(key)
}

// parseProofKey is the inverse of proofKey.seal.
func parseProofKey(stored auth.Secret) (*proofKey, error) {
	der, err := base64.StdEncoding.DecodeString(stored.Reveal())
	if err != nil {
		return nil, fmt.Errorf("the stored key is not base64")
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("the stored key is malformed")
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the stored key has another type")
	}
	return proofKeyOf(private)
}

func proofKeyOf(key *ecdsa.PrivateKey) (*proofKey, error) {
	public := jose.JSONWebKey{Key: key.Public()}
	sum, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("the key's thumbprint: %w", err)
	}
	opts := (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, opts)
	if err != nil {
		return nil, fmt.Errorf("a signer for the key: %w", err)
	}
	return &proofKey{key, signer, base64.RawURLEncoding.EncodeToString(sum)}, nil
}

// seal returns the key in its stored form.
func (k *proofKey) seal() (auth.Secret, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return auth.Secret{}, fmt.Errorf("store the key: %w", err)
	}
	return auth.NewSecret(base64.StdEncoding.EncodeToString(der)), nil
}

// chooseProofKey returns the key that choose returns for key. Both keys may be nil.
func chooseProofKey(key *proofKey, choose func(auth.Secret) auth.Secret) (*proofKey, error) {
	var sealed auth.Secret
	if key != nil {
		var err error
		if sealed, err = key.seal(); err != nil {
			return nil, err
		}
	}
	chosen := choose(sealed)
	switch chosen.Reveal() {
	case "":
		return nil, nil
	case sealed.Reveal():
		return key, nil
	}
	return parseProofKey(chosen)
}

type proofClaims struct {
	ID       string `json:"jti"`
	Method   string `json:"htm"`
	URL      string `json:"htu"`
	IssuedAt int64  `json:"iat"`
	Nonce    string `json:"nonce,omitempty"`
	// TokenHash is set if the proof belongs to an access token.
	TokenHash string `json:"ath,omitempty"`
}

// proof returns a proof for one request. It has a random id, so it can be used once. token is the
// access token of the request, or empty.
func (k *proofKey) proof(method string, u *url.URL, token auth.Secret, nonce string) (string, error) {
	bare := *u
	bare.RawQuery, bare.ForceQuery, bare.Fragment, bare.RawFragment, bare.User = "", false, "", "", nil
	claims := proofClaims{
		ID:       rand.Text(),
		Method:   method,
		URL:      bare.String(),
		IssuedAt: time.Now().Unix(),
		Nonce:    nonce,
	}
	if !token.IsZero() {
		sum := sha256.Sum256([]byte(token.Reveal()))
		claims.TokenHash = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return signClaims(k.signer, claims)
}

// signClaims returns the compact form of signed claims.
func signClaims(signer jose.Signer, claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return signed.CompactSerialize()
}

// A nonceCache holds the last nonce of each origin. Nonces of an authorization server differ from
// those of the resource, which may be elsewhere. At one origin both are accepted, and a wrong one
// costs a round trip.
type nonceCache struct {
	mu sync.Mutex
	// byKey has one entry for each server in use.
	byKey map[string]string
	// keys are the keys of byKey, in the order of the age of their nonces, the oldest first.
	keys []string
}

// maxNonces is far above the number of servers of one resource.
const maxNonces = 32

func (c *nonceCache) get(owner string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[owner]
}

// store stores the nonce of a response, if it has one, and reports whether it is new.
func (c *nonceCache) store(owner string, h http.Header) bool {
	nonce := h.Get("DPoP-Nonce")
	if nonce == "" || len(nonce) > 1024 || !isVisible(nonce) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.byKey[owner] != nonce
	if i := slices.Index(c.keys, owner); i >= 0 {
		c.keys = slices.Delete(c.keys, i, i+1)
	} else if len(c.keys) >= maxNonces {
		delete(c.byKey, c.keys[0])
		c.keys = slices.Delete(c.keys, 0, 1)
	}
	if c.byKey == nil {
		c.byKey = map[string]string{}
	}
	c.byKey[owner], c.keys = nonce, append(c.keys, owner)
	return changed
}

// isVisible reports whether s is printable ASCII without spaces, as tokens and nonces are.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return s != ""
}
