package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// A sealed text is, in base64: a byte for the format, the name of the secret, a salt, the ciphertext and its tag.
const (
	format   = 1
	saltLen  = 24
	headLen  = 1 + idLen + saltLen
	overhead = headLen + 16
)

// A Stamp tells one sealed text from every other: no two have the same.
type Stamp [saltLen]byte

// ErrOpen is what Open fails with.
var ErrOpen = errors.New("sealed text cannot be opened")

var encoding = base64.RawURLEncoding.Strict()

// Len returns the length of the text that n bytes become.
func Len(n int) int { return encoding.EncodedLen(n + overhead) }

// Seal appends the sealed text of plain to dst, and returns its stamp too. It can be opened only for the same purpose, which must be a constant of the
// program, and with the same bound data, which says what the text is good for and is not part of it.
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

// Open returns what was sealed in text, if it was sealed with one of the ring's secrets for the same purpose and with the same bound data. Every
// failure is [ErrOpen]. A text longer than maxLen bytes is not looked at.
func (r *Ring) Open(text string, maxLen int, purpose string, associated []byte) ([]byte, Stamp, error) {
	if len(text) > maxLen || strings.ContainsAny(text, "\r\n") { // line breaks, which base64 would pass over
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

// zeroNonce is the nonce of every text, as each has a key of its own.
var zeroNonce [12]byte

// aead returns the cipher for the one text with this salt.
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

// additionalData is what the tag covers besides the ciphertext. The head has a fixed length, so nothing can move between the two.
func additionalData(head, associated []byte) []byte {
	return append(append(make([]byte, 0, headLen+len(associated)), head...), associated...)
}
