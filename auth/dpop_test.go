package auth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

// replayFunc is a ReplayCache.
type replayFunc func(ctx context.Context, key string, ttl time.Duration) (bool, error)

func (f replayFunc) Once(ctx context.Context, _, key string, ttl time.Duration) (bool, error) {
	return f(ctx, key, ttl)
}

// bound returns a verifier that knows one token, bound to a key.
func bound(t testing.TB, token string, key rsKey) auth.Verifier {
	thumbprint := key.thumbprint(t)
	return verifierFunc(func(_ context.Context, got string) (*auth.Principal, error) {
		if got != token {
			return nil, auth.ErrInvalidToken
		}
		return &auth.Principal{Issuer: rsIssuer, Subject: "alice", ClientID: "app", KeyThumbprint: thumbprint}, nil
	})
}

// firstChallenge returns the first value of WWW-Authenticate, or "".
func firstChallenge(w *httptest.ResponseRecorder) string {
	if v := w.Header().Values("WWW-Authenticate"); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Spec: S208
func TestDPoP(t *testing.T) {
	key, other := newRSKey(t, ""), newRSKey(t, "")
	const token = "the-token-of-alice"
	now := time.Now().Unix()
	private := jose.JSONWebKey{Key: key.private}
	for _, tt := range []struct {
		name         string
		head, claims map[string]any
		key          *rsKey
		ok           bool
	}{
		{name: "good", ok: true},
		{name: "query and fragment", claims: map[string]any{"htu": rsResource + "?a=b#c"}, ok: true},
		{name: "normalized", claims: map[string]any{"htu": "HTTPS://API.example.com:443/%6dcp"}, ok: true},
		{name: "issued before", claims: map[string]any{"iat": now - 50}, ok: true},
		{name: "clock ahead", claims: map[string]any{"iat": now + 50}, ok: true},
		{name: "type", head: map[string]any{"typ": "JWT"}},
		{name: "no type", head: map[string]any{"typ": nil}},
		{name: "no key", head: map[string]any{"jwk": nil}},
		{name: "private key", head: map[string]any{"jwk": private}},
		{name: "another key in it", head: map[string]any{"jwk": other.jwk()}},
		{name: "critical", head: map[string]any{"crit": []string{"jti"}}},
		{name: "another key", key: &other},
		{name: "method", claims: map[string]any{"htm": "GET"}},
		{name: "method in lower case", claims: map[string]any{"htm": "post"}},
		{name: "no method", claims: map[string]any{"htm": nil}},
		{name: "another path", claims: map[string]any{"htu": rsResource + "/"}},
		{name: "another host", claims: map[string]any{"htu": "https://evil.example/mcp"}},
		{name: "another port", claims: map[string]any{"htu": "https://api.example.com:8443/mcp"}},
		{name: "another scheme", claims: map[string]any{"htu": "http://api.example.com/mcp"}},
		{name: "user", claims: map[string]any{"htu": "https://a@api.example.com/mcp"}},
		{name: "relative", claims: map[string]any{"htu": "/mcp"}},
		{name: "no URL", claims: map[string]any{"htu": nil}},
		{name: "another token", claims: map[string]any{"ath": "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"}},
		{name: "no token", claims: map[string]any{"ath": nil}},
		{name: "old", claims: map[string]any{"iat": now - 70}},
		{name: "future", claims: map[string]any{"iat": now + 70}},
		{name: "no time", claims: map[string]any{"iat": nil}},
		{name: "time is a text", claims: map[string]any{"iat": "now"}},
		{name: "no id", claims: map[string]any{"jti": nil}},
		{name: "empty id", claims: map[string]any{"jti": ""}},
		{name: "long id", claims: map[string]any{"jti": strings.Repeat("x", 1025)}},
		{name: "nonce is a number", claims: map[string]any{"nonce": 5}},
		{name: "too long", claims: map[string]any{"x": strings.Repeat("x", 8<<10)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noted := 0
			cache := replayFunc(func(_ context.Context, _ string, ttl time.Duration) (bool, error) {
				if noted++; ttl < 130*time.Second {
					t.Errorf("a proof is stored for %v", ttl)
				}
				return true, nil
			})
			g := rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{Replay: cache}})
			signer := key
			if tt.key != nil {
				signer = *tt.key
			}
			p := signer.proof(t, "POST", rsResource, token, tt.head, tt.claims)
			w := serve(g.Protect(hello), "POST", "http://internal:8080/mcp?q=1", "Authorization", "DPoP "+token, "DPoP", p)
			if tt.ok {
				if w.Code != 200 || noted != 1 {
					t.Errorf("status %d %s, %d proofs noted, want 200 and 1", w.Code, w.Body, noted)
				}
				return
			}
			if w.Code != 401 || !strings.HasPrefix(firstChallenge(w), `DPoP error="invalid_dpop_proof"`) || noted != 0 {
				t.Errorf("status %d, challenge %s, %d proofs noted, want 401, invalid_dpop_proof and 0", w.Code, firstChallenge(w), noted)
			}
		})
	}
}

func TestDPoPHeaders(t *testing.T) {
	key := newRSKey(t, "")
	const token = "the-token-of-alice"
	g := rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{}})
	proof := func() string { return key.proof(t, "POST", rsResource, token, nil, nil) }
	hs, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("k", 32))},
		(&jose.SignerOptions{}).WithType("dpop+jwt").WithHeader("jwk", json.RawMessage(`{"kty":"oct","k":"`+strings.Repeat("a", 43)+`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := hs.Sign([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	symmetric, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, code string
		headers    []string
	}{
		{"no proof", "invalid_dpop_proof", []string{"Authorization", "DPoP " + token}},
		{"two proofs", "invalid_dpop_proof", []string{"Authorization", "DPoP " + token, "DPoP", proof(), "DPoP", proof()}},
		{"two in one", "invalid_dpop_proof", []string{"Authorization", "DPoP " + token, "DPoP", proof() + ", " + proof()}},
		{"no JWT", "invalid_dpop_proof", []string{"Authorization", "DPoP " + token, "DPoP", "x"}},
		{"symmetric", "invalid_dpop_proof", []string{"Authorization", "DPoP " + token, "DPoP", symmetric}},
		{"as bearer", "invalid_token", []string{"Authorization", "Bearer " + token}},
		{"as bearer with proof", "invalid_token", []string{"Authorization", "Bearer " + token, "DPoP", proof()}},
		{"unknown token", "invalid_token", []string{"Authorization", "DPoP x", "DPoP", proof()}},
	} {
		w := serve(g.Protect(hello), "POST", "/mcp", tt.headers...)
		if w.Code != 401 || !strings.Contains(firstChallenge(w), `error="`+tt.code+`"`) {
			t.Errorf("%s: status %d, challenge %s, want 401 and %s", tt.name, w.Code, firstChallenge(w), tt.code)
		}
	}
}

func TestDPoPReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := newRSKey(t, "")
		const token = "the-token-of-alice"
		h := rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{}}).Protect(hello)
		send := func(p string) int {
			return serve(h, "POST", "/mcp", "Authorization", "dpop "+token, "DPoP", p).Code
		}
		// The proof of a client whose clock is ahead is valid for two minutes.
		p := key.proof(t, "POST", rsResource, token, nil, map[string]any{"iat": time.Now().Unix() + 60})
		if got := send(p); got != 200 {
			t.Errorf("first: status %d", got)
		}
		for i := range 12 {
			if got := send(p); got != 401 {
				t.Errorf("again after %d s: status %d, want 401", 11*i, got)
			}
			<-time.After(11 * time.Second)
		}
		if got := send(key.proof(t, "POST", rsResource, token, nil, map[string]any{"jti": "1"})); got != 200 {
			t.Errorf("another: status %d", got)
		}
	})
}

func TestDPoPReplayUnavailable(t *testing.T) {
	key := newRSKey(t, "")
	const token = "the-token-of-alice"
	cache := replayFunc(func(context.Context, string, time.Duration) (bool, error) {
		return true, errors.New("the cluster is down")
	})
	g := rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{Replay: cache}})
	w := serve(g.Protect(hello), "POST", "/mcp", "Authorization", "DPoP "+token, "DPoP", key.proof(t, "POST", rsResource, token, nil, nil))
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("status %d, %v, want 503 with Retry-After and no challenge", w.Code, w.Header())
	}
}

func TestDPoPNonces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := newRSKey(t, "")
		const token = "the-token-of-alice"
		keys := [][]byte{[]byte(strings.Repeat("1", 32)), []byte(strings.Repeat("2", 32))}
		node := func(keys ...[]byte) http.Handler {
			return rsGuard(t, bound(t, token, key), auth.GuardOptions{DPoP: &auth.DPoPOptions{Nonces: true, NonceKeys: keys}}).Protect(hello)
		}
		one, two, otherKeys := node(keys[0]), node(keys[1], keys[0]), node()
		send := func(h http.Handler, changes map[string]any) *httptest.ResponseRecorder {
			return serve(h, "POST", "/mcp", "Authorization", "DPoP "+token, "DPoP", key.proof(t, "POST", rsResource, token, nil, changes))
		}
		w := send(one, nil)
		nonce := w.Header().Get("DPoP-Nonce")
		if w.Code != 401 || nonce == "" || !strings.HasPrefix(firstChallenge(w), `DPoP error="use_dpop_nonce"`) {
			t.Fatalf("status %d, %v, want 401 with use_dpop_nonce and a nonce", w.Code, w.Header())
		}
		// With a nonce the client's clock does not matter.
		if w := send(one, map[string]any{"nonce": nonce, "iat": 1}); w.Code != 200 || w.Header().Get("DPoP-Nonce") != "" {
			t.Errorf("with the nonce: status %d, %v", w.Code, w.Header())
		}
		if w := send(two, map[string]any{"nonce": nonce}); w.Code != 200 || w.Header().Get("DPoP-Nonce") == "" {
			t.Errorf("at a node with a newer key: status %d, %v, want 200 and a nonce of its own", w.Code, w.Header())
		}
		if w := send(otherKeys, map[string]any{"nonce": nonce}); w.Code != 401 {
			t.Errorf("at a node with other keys: status %d", w.Code)
		}
		<-time.After(time.Minute)
		if w := send(one, map[string]any{"nonce": nonce}); w.Code != 200 || w.Header().Get("DPoP-Nonce") == "" {
			t.Errorf("in the next slot: status %d, %v, want 200 and a new nonce", w.Code, w.Header())
		}
		<-time.After(time.Minute)
		if w := send(one, map[string]any{"nonce": nonce}); w.Code != 401 || w.Header().Get("DPoP-Nonce") == "" {
			t.Errorf("in the slot after: status %d, %v, want 401 and a new nonce", w.Code, w.Header())
		}
		for _, bad := range []any{"", nonce[1:], nonce + "A"} {
			if w := send(one, map[string]any{"nonce": bad}); w.Code != 401 {
				t.Errorf("nonce %q: status %d", bad, w.Code)
			}
		}
	})
}

func TestDPoPOptional(t *testing.T) {
	key := newRSKey(t, "")
	v, err := auth.NewStatic(auth.StaticToken{Token: rsSecret, Subject: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	const token = "the-token-of-alice"
	both := auth.AnyOf(v, bound(t, token, key))
	for _, tt := range []struct {
		name   string
		dpop   *auth.DPoPOptions
		scheme string
		token  string
		want   int
		first  string // scheme of the first challenge
		count  int    // of challenges
	}{
		{"off", nil, "Bearer", rsSecret, 200, "", 0},
		{"off, bound token", nil, "Bearer", token, 401, "Bearer", 1},
		{"off, proof", nil, "DPoP", token, 401, "Bearer", 1},
		{"on, bearer", &auth.DPoPOptions{}, "Bearer", rsSecret, 200, "", 0},
		{"on, bound", &auth.DPoPOptions{}, "DPoP", token, 200, "", 0},
		{"on, bound as bearer", &auth.DPoPOptions{}, "Bearer", token, 401, "Bearer", 2},
		{"on, not bound, with proof", &auth.DPoPOptions{}, "DPoP", rsSecret, 401, "DPoP", 2},
		{"required, bound", &auth.DPoPOptions{Required: true}, "DPoP", token, 200, "", 0},
		{"required, bearer", &auth.DPoPOptions{Required: true}, "Bearer", rsSecret, 401, "DPoP", 1},
	} {
		g := rsGuard(t, both, auth.GuardOptions{DPoP: tt.dpop})
		w := serve(g.Protect(hello), "POST", "/mcp", "Authorization", tt.scheme+" "+tt.token, "DPoP", key.proof(t, "POST", rsResource, tt.token, nil, nil))
		first, _, _ := strings.Cut(firstChallenge(w), " ")
		if w.Code != tt.want || first != tt.first || len(w.Header().Values("WWW-Authenticate")) != tt.count {
			t.Errorf("%s: status %d, challenges %q, want %d, %d of them, %s first", tt.name, w.Code, w.Header().Values("WWW-Authenticate"), tt.want, tt.count, tt.first)
		}
	}
}

func TestDPoPPublicURL(t *testing.T) {
	key := newRSKey(t, "")
	const token = "the-token-of-alice"
	g := rsGuard(t, bound(t, token, key), auth.GuardOptions{
		DPoP:      &auth.DPoPOptions{},
		PublicURL: func(r *http.Request) string { return "https://api.example.com/public" + r.URL.Path },
	})
	for url, want := range map[string]int{"https://api.example.com/public/x": 200, "https://api.example.com/x": 401} {
		w := serve(g.Protect(hello), "POST", "/x", "Authorization", "DPoP "+token, "DPoP", key.proof(t, "POST", url, token, nil, nil))
		if w.Code != want {
			t.Errorf("proof for %s: status %d, want %d", url, w.Code, want)
		}
	}
}

// FuzzDPoP shows that a proof is rejected unless its key signed exactly this text.
func FuzzDPoP(f *testing.F) {
	key := fixedRSKey("")
	const token = "the-token-of-alice"
	good := key.proof(f, "POST", rsResource, token, nil, nil)
	f.Add(good)
	f.Add(good + ".")
	always := replayFunc(func(context.Context, string, time.Duration) (bool, error) { return true, nil })
	h := rsGuard(f, bound(f, token, key), auth.GuardOptions{
		DPoP: &auth.DPoPOptions{Replay: always}, FailureLimit: &auth.FailureLimit{PerAddress: -1, PerToken: -1},
	}).Protect(hello)
	f.Fuzz(func(t *testing.T, proof string) {
		w := serve(h, "POST", "/mcp", "Authorization", "DPoP "+token, "DPoP", proof)
		switch w.Code {
		case 401:
		case 200: // a valid proof of this run or of another one
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(proof, ".")[1])
			if err != nil {
				t.Fatal(err)
			}
			head := map[string]any{"typ": "dpop+jwt", "jwk": jose.JSONWebKey{Key: key.private.Public()}}
			if key.sign(t, head, payload) != proof { // signatures are deterministic
				t.Errorf("%q is accepted", proof)
			}
		default:
			t.Errorf("%q: status %d", proof, w.Code)
		}
	})
}

// TestDPoPReplayQuota shows that a principal that has used its share of the replay cache gets 429, and
// that others are admitted. Another key of the principal has no share of its own.
func TestDPoPReplayQuota(t *testing.T) {
	hog, hog2, other := newRSKey(t, ""), newRSKey(t, ""), newRSKey(t, "")
	type owner struct{ subject, thumbprint string }
	owners := map[string]owner{
		"token-of-hog": {"hog", hog.thumbprint(t)}, "token2-of-hog": {"hog", hog2.thumbprint(t)}, "token-of-other": {"other", other.thumbprint(t)},
	}
	v := verifierFunc(func(_ context.Context, token string) (*auth.Principal, error) {
		return &auth.Principal{Issuer: rsIssuer, Subject: owners[token].subject, KeyThumbprint: owners[token].thumbprint}, nil
	})
	g := rsGuard(t, v, auth.GuardOptions{DPoP: &auth.DPoPOptions{Replay: auth.NewMemoryReplayCache(32)}})
	send := func(key rsKey, token string) *httptest.ResponseRecorder {
		return serve(g.Protect(hello), "POST", "/mcp", "Authorization", "DPoP "+token, "DPoP", key.proof(t, "POST", rsResource, token, nil, nil))
	}
	var got []int
	for range 3 {
		got = append(got, send(hog, "token-of-hog").Code)
	}
	got = append(got, send(hog2, "token2-of-hog").Code, send(other, "token-of-other").Code)
	if diff := cmp.Diff([]int{200, 200, 429, 429, 200}, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if w := send(hog, "token-of-hog"); w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("headers %v, want Retry-After and no challenge", w.Header())
	}
}

func TestMemoryReplayCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := auth.NewMemoryReplayCache(3)
		const ttl = 10 * time.Second
		once := func(key string, want, full bool) {
			t.Helper()
			if got, err := c.Once(context.Background(), "", key, ttl); got != want || (err != nil) != full {
				t.Errorf("Once(%q) = %v, %v, want %v, full %v", key, got, err, want, full)
			}
		}
		once("b", true, false)
		<-time.After(ttl / 2)
		once("a", true, false)
		<-time.After(ttl/2 - time.Nanosecond)
		once("c", true, false)
		once("a", false, false)
		once("d", false, true)
		once("b", false, false) // known, full or not
		<-time.After(time.Nanosecond)
		once("d", true, false)
		once("b", false, true)
		<-time.After(ttl/2 - time.Nanosecond)
		once("a", false, false)
		<-time.After(time.Nanosecond)
		once("a", true, false)
		once("c", false, false)
	})
}

func TestMemoryReplayCacheRace(t *testing.T) {
	c := auth.NewMemoryReplayCache(1000)
	var wins atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				if first, err := c.Once(context.Background(), "", fmt.Sprint(i), time.Hour); err != nil {
					t.Error(err)
				} else if first {
					wins.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if wins.Load() != 100 {
		t.Errorf("%d were the first, want 100", wins.Load())
	}
}

// TestReplayQuotaOfMany shows that many owners that use all they can leave room for another one.
func TestReplayQuotaOfMany(t *testing.T) {
	c := auth.NewMemoryReplayCache(3200)
	for owner := range 100 {
		for i := 0; ; i++ {
			if _, err := c.Once(t.Context(), fmt.Sprint(owner), fmt.Sprint(i), time.Hour); err != nil {
				if !errors.Is(err, auth.ErrReplayQuota) {
					t.Fatalf("owner %d: after %d keys: %v", owner, i, err)
				}
				break
			}
		}
	}
	if first, err := c.Once(t.Context(), "victim", "0", time.Hour); !first || err != nil {
		t.Errorf("an owner without keys: got %v, %v", first, err)
	}
}

// TestReplayQuota shows that one owner cannot use the capacity of others.
func TestReplayQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := auth.NewMemoryReplayCache(64)
		var got []string
		once := func(owner, key string) {
			t.Helper()
			first, err := c.Once(context.Background(), owner, key, 10*time.Second)
			got = append(got, fmt.Sprint(owner, " ", key, " ", first, " ", err))
		}
		for i := range 4 {
			once("hog", fmt.Sprint(i))
		}
		once("hog", "4")
		once("hog", "0") // known, quota or not
		once("other", "0")
		<-time.After(10 * time.Second)
		once("hog", "4")
		for i := range 62 {
			if first, err := c.Once(context.Background(), "", fmt.Sprint("nobody ", i), time.Minute); !first || err != nil {
				t.Fatalf("without an owner: %v, %v", first, err)
			}
		}
		once("other", "1")
		once("third", "1")
		<-time.After(time.Minute)
		once("third", "1")
		want := []string{
			"hog 0 true <nil>", "hog 1 true <nil>", "hog 2 true <nil>", "hog 3 true <nil>", "hog 4 false too many proofs of one principal",
			"hog 0 false <nil>", "other 0 true <nil>", "hog 4 true <nil>", "other 1 true <nil>", "third 1 false replay cache is full", "third 1 true <nil>",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
