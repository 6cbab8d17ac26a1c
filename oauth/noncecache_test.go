package oauth

import (
	"fmt"
	"net/http"
	"testing"
)

// TestNonceCache shows that a full cache evicts the nonce that was set first, and no other.
func TestNonceCache(t *testing.T) {
	var c nonceCache
	store := func(owner, nonce string) bool {
		return c.store(owner, http.Header{"Dpop-Nonce": {nonce}})
	}
	for i := range maxNonces {
		if owner := fmt.Sprint(i); !store(owner, "n"+owner) {
			t.Errorf("nonce %d is not new", i)
		}
	}
	if store("0", "n0") {
		t.Error("the same nonce is new")
	}
	if !store("1", "m1") {
		t.Error("another nonce is not new")
	}
	for i := range maxNonces {
		want := fmt.Sprintf("n%d", i)
		if i == 1 {
			want = "m1"
		}
		if got := c.get(fmt.Sprint(i)); got != want {
			t.Errorf("nonce of %d: got %q, want %q", i, got, want)
		}
	}
	store("new", "n")
	if c.get("2") != "" || c.get("0") != "n0" || c.get("1") != "m1" || c.get("3") != "n3" || c.get("new") != "n" || len(c.byKey) != maxNonces || len(c.keys) != maxNonces {
		t.Errorf("after one more: %v, in the order %v", c.byKey, c.keys)
	}
}
