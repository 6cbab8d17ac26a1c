package streamable

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/base/seal"
	"mcpwire/mcp"
)

func newIDSealer(server string) *idSealer {
	return &idSealer{ring: new(seal.Ring), server: server, lifetime: time.Hour}
}

// TestSealedID shows that a sealed id can be opened only for its principal, by its server and
// before it expires.
func TestSealedID(t *testing.T) {
	sealer, key := newIDSealer("test"), newSessionKey()
	expires := time.Unix(1_800_000_000, 0)
	before := expires.Add(-time.Second)
	for _, tt := range []struct {
		name   string
		params string
		fits   bool
	}{
		{"short", `{"protocolVersion":"2025-11-25"}`, true},
		{"empty", ``, true},
		{"long, but compressible", `{"a":"` + strings.Repeat("ab", 2000) + `"}`, true},
		{"too long inflated", strings.Repeat(" ", maxSealedParams+1), false},
		{"too long", newNoise(2000), false},
	} {
		want := &sealedSession{expires: expires, revision: mcp.Revision20250618, params: []byte(tt.params)}
		id, ok := sealer.seal(key, "alice", want)
		if ok != tt.fits {
			t.Errorf("%s: sealed %v, want %v", tt.name, ok, tt.fits)
		}
		if !ok {
			continue
		}
		if len(id) > maxSessionID || sessionKey(id) != key {
			t.Errorf("%s: id of %d bytes, key %q", tt.name, len(id), sessionKey(id))
		}
		got := sealer.open(id, "alice", before)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(sealedSession{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		other := *sealer
		other.server = "other"
		for what, got := range map[string]*sealedSession{
			"another principal": sealer.open(id, "bob", before),
			"nobody":            sealer.open(id, "", before),
			"expired":           sealer.open(id, "alice", expires),
			"another server":    other.open(id, "alice", before),
			"other keys":        newIDSealer("test").open(id, "alice", before),
			"another key":       sealer.open(newSessionKey()+id[keyLength:], "alice", before),
			"cut":               sealer.open(id[:len(id)-1], "alice", before),
			"empty content":     sealer.open(key+".", "alice", before),
			"no dot":            sealer.open(key, "alice", before),
		} {
			if got != nil {
				t.Errorf("%s: %s opens", tt.name, what)
			}
		}
	}
}

// newNoise returns a text that cannot be compressed.
func newNoise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(newSessionKey())
	}
	return b.String()
}

func TestSessionKey(t *testing.T) {
	key := strings.Repeat("A", keyLength-1) + "7"
	for id, want := range map[string]string{
		key:            key,
		key + ".x":     key,
		key + ".":      key,
		key + "x":      "",
		key[1:]:        "",
		"":             "",
		"a" + key[1:]:  "",
		"." + key[1:]:  "",
		key[1:] + ".A": "",
		key + ".\x00":  key,
		key + "." + strings.Repeat("x", maxSessionID-keyLength-1): key,
		key + "." + strings.Repeat("x", maxSessionID-keyLength):   "",
	} {
		if got := sessionKey(id); got != want {
			t.Errorf("sessionKey(%.60q) = %q, want %q", id, got, want)
		}
	}
}

// FuzzReadSealedSession shows that reading the content of an id is safe: it may come from a process
// of another version with the same keys.
func FuzzReadSealedSession(f *testing.F) {
	sealer, key := newIDSealer("test"), newSessionKey()
	for _, params := range []string{`{"protocolVersion":"2025-11-25"}`, `{"a":"` + strings.Repeat("ab", 2000) + `"}`} {
		id, _ := sealer.seal(key, "", &sealedSession{expires: time.Unix(1<<33, 0), revision: mcp.Revision20251125, params: []byte(params)})
		plain, _, err := sealer.ring.Open(id[keyLength+1:], maxSessionID, sessionPurpose, sealer.binding(key, ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	f.Add([]byte(nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	now := time.Unix(0, 0)
	f.Fuzz(func(t *testing.T, plain []byte) {
		s := readSealedSession(plain, now)
		if s == nil {
			return
		}
		if !now.Before(s.expires) || s.revision == mcp.RevisionNone || len(s.params) > maxSealedParams {
			t.Errorf("content %+v", s)
		}
	})
}
