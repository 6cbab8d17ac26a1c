package auth_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

// from sends a token from an address and returns the status.
func from(h http.Handler, addr, token string) int {
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.RemoteAddr = addr
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func wantStatus(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: status %d, want %d", what, got, want)
	}
}

func TestFailuresOfAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := rsGuard(t, rsUsers, auth.GuardOptions{FailureLimit: &auth.FailureLimit{PerAddress: 5, Window: 50 * time.Second}}).Protect(hello)
		wantStatus(t, "a friend", from(h, "192.0.2.1:1000", "user-old"), 200)
		for i := range 20 {
			wantStatus(t, "no token", from(h, "192.0.2.1:1000", ""), 401) // does not count
			want := 401
			if i >= 5 {
				want = 429
			} else {
				// does not count either
				wantStatus(t, "unavailable", from(h, "192.0.2.1:1000", "down"), 503)
			}
			wantStatus(t, fmt.Sprintf("failure %d", i), from(h, fmt.Sprintf("192.0.2.1:%d", i), fmt.Sprintf("bad-%d", i)), want)
		}
		wantStatus(t, "a friend who was here before", from(h, "192.0.2.1:1000", "user-old"), 200)
		wantStatus(t, "a new friend", from(h, "192.0.2.1:1000", "user-new"), 429)
		wantStatus(t, "a friend elsewhere", from(h, "192.0.2.2:1000", "user-new"), 200)
		wantStatus(t, "the same, mapped", from(h, "[::ffff:192.0.2.1]:1000", "bad"), 429)
		<-time.After(10*time.Second - time.Millisecond)
		wantStatus(t, "a bit early", from(h, "192.0.2.1:1000", "bad-x"), 429)
		<-time.After(time.Millisecond)
		wantStatus(t, "one is forgiven", from(h, "192.0.2.1:1000", "bad-x"), 401)
		wantStatus(t, "one only", from(h, "192.0.2.1:1000", "bad-x"), 429)

		for i := range 5 {
			wantStatus(t, "IPv6", from(h, fmt.Sprintf("[2001:db8:1:2::%d]:1", i), fmt.Sprintf("bad-v6-%d", i)), 401)
			if i < 4 { // the same guess again
				wantStatus(t, "IPv6, the same again", from(h, fmt.Sprintf("[2001:db8:1:2::%d]:1", i), "bad-v6-0"), 401)
			}
		}
		wantStatus(t, "the same network", from(h, "[2001:db8:1:2:ffff::1]:1", "user-a"), 429)
		wantStatus(t, "another network", from(h, "[2001:db8:1:3::1]:1", "user-a"), 200)
		for range 20 {
			wantStatus(t, "a proxy on this machine", from(h, "127.0.0.1:1", "bad-"+fmt.Sprint(time.Now().UnixNano())), 401)
			<-time.After(time.Hour)
		}
	})
}

func TestFailuresOfToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		v := verifierFunc(func(ctx context.Context, token string) (*auth.Principal, error) {
			asked++
			return rsUsers(ctx, token)
		})
		h := rsGuard(t, v, auth.GuardOptions{FailureLimit: &auth.FailureLimit{PerToken: 3}}).Protect(hello)
		for i := range 10 { // its owner should get a new one instead of waiting
			wantStatus(t, fmt.Sprintf("failure %d", i), from(h, fmt.Sprintf("192.0.2.%d:1", i), "bad"), 401)
		}
		if asked != 3 {
			t.Errorf("the verifier was asked %d times, want 3", asked)
		}
		wantStatus(t, "another token", from(h, "192.0.2.1:1", "bad-2"), 401)
		<-time.After(20 * time.Second)
		for range 2 {
			wantStatus(t, "later", from(h, "192.0.2.1:1", "bad"), 401)
		}
		if asked != 5 { // one of them for bad-2
			t.Errorf("the verifier was asked %d times, want 5", asked)
		}
	})
}

// TestFailuresOfProof shows that an attacker with a token, but without its key, cannot block its
// owner.
func TestFailuresOfProof(t *testing.T) {
	key := newRSKey(t, "")
	const token = "the-token-of-alice"
	h := rsGuard(t, bound(t, token, key), auth.GuardOptions{
		DPoP: &auth.DPoPOptions{}, FailureLimit: &auth.FailureLimit{PerAddress: 3, PerToken: 3, Window: time.Hour},
	}).Protect(hello)
	send := func(addr, proof string) int {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.RemoteAddr = addr
		r.Header.Set("Authorization", "DPoP "+token)
		r.Header.Set("DPoP", proof)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 6 {
		wantStatus(t, "bad proof", send("192.0.2.1:1", "x"), map[bool]int{true: 401, false: 429}[i < 3])
		wantStatus(t, "as bearer", from(h, "192.0.2.3:1", token), map[bool]int{true: 401, false: 429}[i < 3])
	}
	wantStatus(t, "the owner", send("192.0.2.2:1", key.proof(t, "POST", rsResource, token, nil, nil)), 200)
}

func TestFailureLimitOff(t *testing.T) {
	h := rsGuard(t, rsUsers, auth.GuardOptions{FailureLimit: &auth.FailureLimit{PerAddress: -1, PerToken: -1}}).Protect(hello)
	for range 200 {
		wantStatus(t, "failure", from(h, "192.0.2.1:1", "bad"), 401)
	}
}

func TestClientAddr(t *testing.T) {
	h := rsGuard(t, rsUsers, auth.GuardOptions{
		FailureLimit: &auth.FailureLimit{PerAddress: 1, Window: time.Hour},
		ClientAddr: func(r *http.Request) netip.Addr {
			addr, _ := netip.ParseAddr(r.Header.Get("X-Client"))
			return addr
		},
	}).Protect(hello)
	for i, want := range []int{401, 429} {
		wantStatus(t, "known", serve(h, "POST", "/", "X-Client", "192.0.2.9", "Authorization", fmt.Sprintf("Bearer a%d", i)).Code, want)
		wantStatus(t, "unknown", serve(h, "POST", "/", "Authorization", fmt.Sprintf("Bearer b%d", i)).Code, 401)
	}
}

// TestFailuresAreBounded shows that what is stored about failures is bounded, and that addresses
// without recent failures are evicted.
func TestFailuresAreBounded(t *testing.T) {
	h := rsGuard(t, rsUsers, auth.GuardOptions{FailureLimit: &auth.FailureLimit{PerAddress: 1, PerToken: -1, Window: 1000 * time.Hour}}).Protect(hello)
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255) }
	for i := range 10_001 {
		wantStatus(t, "first failure", from(h, address(i), "bad"), 401)
	}
	wantStatus(t, "the last", from(h, address(10_000), "bad"), 429)
	wantStatus(t, "the first", from(h, address(0), "bad"), 401)
}
