package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

const (
	nonceSlot   = 60 * time.Second
	minNonceKey = 32 // bytes
)

// nonces makes and checks nonces for proofs (https://www.rfc-editor.org/rfc/rfc9449#section-9). A nonce is the MAC of the slot of time that it was made
// in, and good in that slot and the next. So nothing has to be stored, and processes with the same keys take each other's.
type nonces struct{ keys [][]byte }

func newNonces(keys [][]byte) (*nonces, error) {
	n := &nonces{}
	for _, k := range keys {
		if len(k) < minNonceKey {
			return nil, errors.New("a key for nonces has less than 32 bytes")
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

// check tells whether a nonce is good, and whether it will be for a while yet.
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
