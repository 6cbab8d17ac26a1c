package streamable

import (
	"bytes"
	"compress/flate"
	"crypto/rand"
	"encoding/binary"
	"io"
	"strings"
	"time"

	"mcpwire/internal/seal"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The id of a session is its key, or, if the server has StateKeys, the key, a dot and a sealed
// text: what another process with the keys needs to take over the session. The key is random. It
// names the session in stores.
//
// The sealed text is bound to the key, the principal and the server's name. It consists of the time
// at which the id expires, the negotiated revision, and the params of initialize.

const (
	// keyLength is the length of a session's key: rand.Text has 128 bits in Base32.
	keyLength = 26
	// maxSessionID limits the length of a session's id.
	maxSessionID = 1024
	// maxSealedParams limits the inflated params of initialize.
	maxSealedParams = 64 << 10

	sessionPurpose = "session 1" // increment for each format of sealedSession
)

// newSessionKey returns a random key.
func newSessionKey() string { return rand.Text() }

// sessionKey returns the key of the session with the id, or "" if no session has such an id.
func sessionKey(id string) string {
	if len(id) > maxSessionID || len(id) < keyLength || len(id) > keyLength && id[keyLength] != '.' {
		return ""
	}
	for i := range keyLength {
		if c := id[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return ""
		}
	}
	return id[:keyLength]
}

// A sealedSession is the content of a sealed id.
type sealedSession struct {
	expires  time.Time
	revision mcp.Revision
	// params are those of initialize.
	params []byte
}

// An idSealer seals the ids of a handler's sessions.
type idSealer struct {
	ring *seal.Ring
	// server is the server's name.
	server   string
	lifetime time.Duration
}

// binding returns what the sealed text is valid for.
func (sealer *idSealer) binding(key, principalID string) []byte {
	var binding []byte
	for _, text := range []string{sealer.server, principalID, key} {
		binding = append(binary.AppendUvarint(binding, uint64(len(text))), text...)
	}
	return binding
}

// Forms of the params in a sealed id.
const (
	paramsPlain    = 0
	paramsDeflated = 1
)

// seal returns the id of a session. ok is false if it would be too long.
func (sealer *idSealer) seal(key, principalID string, s *sealedSession) (id string, ok bool) {
	head := binary.AppendUvarint(nil, uint64(s.expires.Unix()))
	revision := s.revision.String()
	head = append(binary.AppendUvarint(head, uint64(len(revision))), revision...)
	plain := append(append(bytes.Clone(head), paramsPlain), s.params...)
	room := maxSessionID - keyLength - 1
	if seal.Len(len(plain)) > room {
		if len(s.params) > maxSealedParams {
			return "", false
		}
		if plain = deflate(append(head, paramsDeflated), s.params); seal.Len(len(plain)) > room {
			return "", false
		}
	}
	text, _, err := sealer.ring.Seal(append([]byte(key), '.'), sessionPurpose, plain, sealer.binding(key, principalID))
	return string(text), err == nil
}

// open returns the content of a sealed id, or nil if the id is not valid for the principal now.
func (sealer *idSealer) open(id, principalID string, now time.Time) *sealedSession {
	key, text, ok := strings.Cut(id, ".")
	if !ok {
		return nil
	}
	plain, _, err := sealer.ring.Open(text, maxSessionID, sessionPurpose, sealer.binding(key, principalID))
	if err != nil {
		return nil
	}
	return readSealedSession(plain, now)
}

// readSealedSession reads the content of a sealed id. It returns nil if that has expired, or has
// another format.
func readSealedSession(plain []byte, now time.Time) *sealedSession {
	seconds, n := binary.Uvarint(plain)
	if n <= 0 || seconds > 1<<40 {
		return nil
	}
	s := &sealedSession{expires: time.Unix(int64(seconds), 0)}
	plain = plain[n:]
	length, n := binary.Uvarint(plain)
	if n <= 0 || length >= uint64(len(plain)-n) || !now.Before(s.expires) {
		return nil
	}
	plain = plain[n:]
	var ok bool
	if s.revision, ok = mcp.ParseRevision(string(plain[:length])); !ok {
		return nil
	}
	form, params := plain[length], plain[length+1:]
	switch form {
	case paramsPlain:
		s.params = params
	case paramsDeflated:
		var err error
		if s.params, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(params)), maxSealedParams+1)); err != nil || len(s.params) > maxSealedParams {
			return nil
		}
	default:
		return nil
	}
	return s
}

// deflate appends the deflated text to dst.
func deflate(dst, text []byte) []byte {
	b := bytes.NewBuffer(dst)
	w, err := flate.NewWriter(b, flate.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	w.Write(text) // a bytes.Buffer does not fail
	w.Close()
	return b.Bytes()
}

// initialize returns the initialize request that opens the session again.
func (s *sealedSession) initialize() []byte {
	return jsonrpc.AppendRequest(nil, jsonrpc.ID("0"), mcp.MethodInitialize, s.params)
}
