package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

const (
	// MinSecret is the minimum length of a secret, in bytes.
	MinSecret = 32
	maxKeys   = 16
	idLen     = 8
)

// A Ring holds the secrets that seal and open texts: the first one seals, all of them open. Every
// ring that holds the secret of a text can open it, also in another process. The zero Ring
// generates its own random secret on first use.
type Ring struct {
	keys atomic.Pointer[[]key]
}

// A key is a secret with its name on sealed texts. The name is derived from the secret, so rings
// that share a secret have the same name for it.
type key struct {
	id     [idLen]byte
	secret []byte
}

// Replace replaces the ring's secrets by copies of the given ones. They must be random, at least
// [MinSecret] bytes long, and all different.
//
// To rotate, put a new secret first and keep the old ones after it until their texts have expired.
// If several processes share the secrets, put the new one last in all of them before it is first in
// any. If Replace fails, the ring does not change.
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
			return fmt.Errorf("seal: secret %d: duplicate", i)
		}
		keys = append(keys, k)
	}
	r.keys.Store(&keys)
	return nil
}

var errNotRandom = errors.New("all its bytes are the same: use random bytes")

func newKey(secret []byte) (key, error) {
	if len(secret) < MinSecret {
		return key{}, fmt.Errorf("%d bytes: use %d random bytes", len(secret), MinSecret)
	}
	if len(bytes.Trim(secret, string(secret[:1]))) == 0 {
		return key{}, errNotRandom
	}
	k := key{secret: bytes.Clone(secret)}
	id, err := hkdf.Key(sha256.New, k.secret, nil, "mcpwire seal: name of a secret", idLen)
	copy(k.id[:], id)
	return k, err
}

// KeyID returns the name of the sealing secret, which only identifies it. It is derived from the
// secret, and equal in every process.
func (r *Ring) KeyID() (id [idLen]byte) {
	if keys, err := r.current(); err == nil {
		id = keys[0].id
	}
	return id
}

// current returns the keys. It generates one if the ring is empty.
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

// findKey returns the key with the given name, or nil.
func findKey(keys []key, id []byte) *key {
	for i := range keys {
		if bytes.Equal(keys[i].id[:], id) {
			return &keys[i]
		}
	}
	return nil
}

// A sealed text is the base64 of a format byte, the name of the secret, a salt, the ciphertext and
// its tag.
const (
	format   = 1
	saltLen  = 24
	headLen  = 1 + idLen + saltLen
	overhead = headLen + 16
)

// A Stamp identifies a sealed text. No two texts have the same.
type Stamp [saltLen]byte

// ErrOpen is the error of Open.
var ErrOpen = errors.New("sealed text cannot be opened")

var encoding = base64.RawURLEncoding.Strict()

// Len returns the length of a sealed text of n bytes.
func Len(n int) int { return encoding.EncodedLen(n + overhead) }

// Seal appends the sealed text of plain to dst, and also returns its stamp. Only Open with the same
// purpose, which must be a constant of the program, and the same associated data can open it. The
// associated data says what the text is valid for and is not part of it.
func (r *Ring) Seal(dst []byte, purpose string, plain, associated []byte) ([]byte, Stamp, error) {
	keys, err := r.current()
	if err != nil {
		return dst, Stamp{}, err
	}
	k := &keys[0]
	box := make([]byte, headLen, len(plain)+overhead)
	box[0] = format
	copy(box[1:], k.id[:])
	salt := box[1+idLen : headLen]
	rand.Read(salt) // never fails
	aead, err := k.aead(purpose, salt)
	if err != nil {
		return dst, Stamp{}, err
	}
	box = aead.Seal(box, zeroNonce[:], plain, additionalData(box[:headLen], associated))
	return encoding.AppendEncode(dst, box), Stamp(salt), nil
}

// Open returns the content of text, if it was sealed with one of the ring's secrets for the same
// purpose and the same associated data. Every error is [ErrOpen]. It rejects a text of more than
// maxLen bytes unread.
func (r *Ring) Open(text string, maxLen int, purpose string, associated []byte) ([]byte, Stamp, error) {
	if len(text) > maxLen || strings.ContainsAny(text, "\r\n") { // base64 would skip line breaks
		return nil, Stamp{}, ErrOpen
	}
	box, err := encoding.DecodeString(text)
	if err != nil || len(box) < overhead || box[0] != format {
		return nil, Stamp{}, ErrOpen
	}
	keys, err := r.current()
	if err != nil {
		return nil, Stamp{}, ErrOpen
	}
	k := findKey(keys, box[1:1+idLen])
	if k == nil {
		return nil, Stamp{}, ErrOpen
	}
	salt := box[1+idLen : headLen]
	aead, err := k.aead(purpose, salt)
	if err != nil {
		return nil, Stamp{}, ErrOpen
	}
	plain, err := aead.Open(nil, zeroNonce[:], box[headLen:], additionalData(box[:headLen], associated))
	if err != nil {
		return nil, Stamp{}, ErrOpen
	}
	return plain, Stamp(salt), nil
}

// zeroNonce is the nonce of every text, since each text has its own key.
var zeroNonce [12]byte

// aead returns the cipher for the text with this salt.
func (k *key) aead(purpose string, salt []byte) (cipher.AEAD, error) {
	secret, err := hkdf.Key(sha256.New, k.secret, salt, "mcpwire seal: "+purpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// additionalData returns the additional data of the tag. The head has a fixed length, so the
// boundary between the two parts is fixed.
func additionalData(head, associated []byte) []byte {
	return append(append(make([]byte, 0, headLen+len(associated)), head...), associated...)
}
