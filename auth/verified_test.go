package auth

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// TestVerifiedTokensAreBounded checks that a token in use stays in the cache, and that others are
// evicted by number or length.
func TestVerifiedTokensAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name          string
		size, tokens  int
		maxRemembered int
	}{
		{"many", 100, 3 * maxVerified, 2 * maxVerified},
		{"long", maxToken, 3 * maxVerifiedBytes / maxToken, 2 * maxVerifiedBytes / maxToken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tokens verifiedTokens
			hashOf := func(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }
			add := func(name string) { tokens.add(hashOf(name), verifiedToken{size: tt.size}) }
			known := func(name string) bool {
				_, ok := tokens.get(hashOf(name))
				return ok
			}
			add("busy")
			add("rare")
			for i := range tt.tokens {
				add(fmt.Sprint(i))
				if !known("busy") {
					t.Fatalf("a token in use is evicted after %d others", i)
				}
			}
			if known("rare") {
				t.Error("a token is never evicted")
			}
			if n := len(tokens.recent) + len(tokens.older); n > tt.maxRemembered {
				t.Errorf("%d tokens are stored, want at most %d", n, tt.maxRemembered)
			}
		})
	}
}
