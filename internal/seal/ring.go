package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
)

const (
	// MinSecret is how many bytes a secret has at least.
	MinSecret = 32
	maxKeys   = 16
	idLen     = 8
)

// A Ring holds the secrets that texts are sealed and opened with: the first one seals, all of them open. A text can be opened by every ring that
// holds its secret, in another process too. The zero Ring makes a secret of its own when it is first used, which no other has.
type Ring struct {
	keys atomic.Pointer[[]key]
}

// A key is a secret with the name it has on sealed texts, which is derived from it: rings that share a secret agree on it by themselves.
type key struct {
	id     [idLen]byte
	secret []byte
}

// Replace takes these secrets instead of those before, and copies them. They must be random, of at least [MinSecret] bytes each, and all different.
//
// To rotate, put a new one first and leave the old ones behind it until what they have sealed has expired; if other processes share them, put it last in
// all of them before it is the first in any. If Replace fails, the ring stays as it was.
func (r *Ring) Replace(secrets ...[]byte) error {
	if len(secrets) == 0 || len(secrets) > maxKeys {
		return fmt.Errorf("seal: %d secrets: a ring has 1 to %d", len(secrets), maxKeys)
	}
	keys := make([]key, 0, len(secrets))
	for i, secret := range secrets {
		k, err := newKey(secret)
		if err != nil {
			return fmt.Errorf("seal: secret %d: %w", i, err)
		}
		if findKey(keys, k.id[:]) != nil {
			return fmt.Errorf("seal: secret %d: it is in the ring twice", i)
		}
		keys = append(keys, k)
	}
	r.keys.Store(&keys)
	return nil
}

var errNotRandom = errors.New("all its bytes are the same: use random ones")

func newKey(secret []byte) (key, error) {
	if len(secret) < MinSecret {
		return key{}, fmt.Errorf("%d bytes: it needs %d random ones", len(secret), MinSecret)
	}
	if len(bytes.Trim(secret, string(secret[:1]))) == 0 {
		return key{}, errNotRandom
	}
	k := key{secret: bytes.Clone(secret)}
	id, err := hkdf.Key(sha256.New, k.secret, nil, "mcpwire seal: name of a secret", idLen)
	copy(k.id[:], id)
	return k, err
}

// KeyID returns the name of the secret that seals, which tells it from others and nothing else. It
// is derived from the secret, and the same in every process.
func (r *Ring) KeyID() (id [idLen]byte) {
	if keys, err := r.current(); err == nil {
		id = keys[0].id
	}
	return id
}

// current returns the keys, after making one if there is none.
func (r *Ring) current() ([]key, error) {
	if keys := r.keys.Load(); keys != nil {
		return *keys, nil
	}
	secret := make([]byte, MinSecret)
	rand.Read(secret) // never fails
	k, err := newKey(secret)
	if err != nil {
		return nil, err
	}
	r.keys.CompareAndSwap(nil, &[]key{k}) // or another goroutine was first
	return *r.keys.Load(), nil
}

// findKey returns the key of that name, or nil.
func findKey(keys []key, id []byte) *key {
	for i := range keys {
		if bytes.Equal(keys[i].id[:], id) {
			return &keys[i]
		}
	}
	return nil
}
