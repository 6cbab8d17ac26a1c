package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
)

// A cursorKey signs cursors, so that a client can only come back with one it was given. It lasts as long as the server.
type cursorKey struct {
	once sync.Once
	key  [32]byte
}

const (
	macLen    = 12
	maxCursor = (binary.MaxVarintLen64+macLen)*4/3 + 1
)

// seal makes the cursor of the page behind the item with that sequence number.
func (k *cursorKey) seal(kind Kind, after uint64) string {
	b := binary.AppendUvarint(nil, after)
	return base64.RawURLEncoding.EncodeToString(append(b, k.mac(kind, b)...))
}

// open is the reverse of seal.
func (k *cursorKey) open(kind Kind, cursor string) (after uint64, ok bool) {
	if len(cursor) > maxCursor || strings.ContainsAny(cursor, "\r\n") { // line breaks, which base64 would pass over
		return 0, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= macLen {
		return 0, false
	}
	value, mac := b[:len(b)-macLen], b[len(b)-macLen:]
	after, n := binary.Uvarint(value)
	return after, n == len(value) && hmac.Equal(mac, k.mac(kind, value))
}

func (k *cursorKey) mac(kind Kind, b []byte) []byte {
	k.once.Do(func() { rand.Read(k.key[:]) }) // never fails
	h := hmac.New(sha256.New, k.key[:])
	h.Write([]byte("list cursor "))
	h.Write([]byte{byte(kind)})
	h.Write(b)
	return h.Sum(nil)[:macLen]
}
