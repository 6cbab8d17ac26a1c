package oauth_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"mcpwire/oauth"
)

func TestDPoPClient(t *testing.T) {
	for _, tt := range []struct {
		name      string
		mode      oauth.DPoPMode
		challenge string
		required  bool
		algs      []string
		downgrade bool
		want      string
		err       error
	}{
		{"auto, not required", oauth.DPoPAuto, "Bearer", false, []string{"ES256"}, false, "Bearer", nil},
		{"auto, wanted", oauth.DPoPAuto, `DPoP algs="ES256"`, false, []string{"ES256"}, false, "DPoP", nil},
		{"auto, one of two", oauth.DPoPAuto, `Bearer, DPoP algs="ES256"`, false, []string{"ES256"}, false, "DPoP", nil},
		{"auto, required by metadata", oauth.DPoPAuto, "Bearer", true, []string{"ES256", "EdDSA"}, false, "DPoP", nil},
		{"auto, not supported", oauth.DPoPAuto, "Bearer, DPoP", false, []string{"EdDSA"}, false, "Bearer", nil},
		{"auto, token not bound", oauth.DPoPAuto, "Bearer, DPoP", false, []string{"ES256"}, true, "", nil},
		{"on", oauth.DPoPOn, "Bearer", false, nil, false, "DPoP", nil},
		{"on, not supported", oauth.DPoPOn, "Bearer", false, []string{"EdDSA"}, false, "", oauth.ErrRefused},
		{"on, token not bound", oauth.DPoPOn, "Bearer", false, nil, true, "", oauth.ErrUntrusted},
		{"off", oauth.DPoPOff, "Bearer, DPoP", false, []string{"ES256"}, false, "Bearer", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.challenge = tt.challenge
			w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)["dpop_bound_access_tokens_required"] = tt.required
			as := w.as[worldAS]
			as.Document()["dpop_signing_alg_values_supported"] = tt.algs
			if tt.downgrade {
				as.EditToken = func(m map[string]any) { m["token_type"] = "Bearer" }
			}
			rt := w.transport(func(o *oauth.ClientOptions) { o.DPoP = tt.mode })
			resp, err := post(t.Context(), rt)
			if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if tt.want == "" {
				return
			}
			sent := w.sent[len(w.sent)-1]
			if scheme, _, _ := strings.Cut(sent.Get("Authorization"), " "); resp.StatusCode != http.StatusOK || scheme != tt.want || (sent.Get("DPoP") != "") != (tt.want == "DPoP") {
				t.Errorf("got status %d, %v", resp.StatusCode, sent)
			}
			if as.Authorized[0].Has("dpop_jkt") != (tt.want == "DPoP") {
				t.Errorf("got %v", as.Authorized[0])
			}
		})
	}
}

func TestDPoPClientNonces(t *testing.T) {
	w := newWorld(t)
	w.challenge, w.rsNonce = `DPoP algs="ES256"`, "of-resource"
	as := w.as[worldAS]
	as.Nonce, as.Refresh = "of-issuer", true
	as.Document()["dpop_signing_alg_values_supported"] = []string{"ES256"}
	store := oauth.NewMemoryStore()
	rt := w.transport(func(o *oauth.ClientOptions) { o.Store = store })
	mustPost(t, rt)
	if w.count("/token") != 2 || w.count(worldServer) != 3 {
		t.Errorf("got %v", w.requests())
	}
	mustPost(t, rt)
	w.rsNonce = "of-resource-2"
	// issuer.CheckProof checks that the query is not in the proof.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, worldServer+"?x=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := rt.RoundTrip(req); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %v, %v", resp, err)
	}
	if w.count("/token") != 2 || w.count(worldServer) != 6 {
		t.Errorf("got %v", w.requests())
	}
	// A new process has the key, and a refreshed token is bound to it.
	again := w.transport(func(o *oauth.ClientOptions) { o.Store = store })
	mustPost(t, again)
	jkt := func() (out []string) {
		for _, v := range w.as[worldAS].Tokens {
			out = append(out, v.Key)
		}
		return out
	}
	before := jkt()
	w.revoke()
	mustPost(t, again)
	if w.count("/authorize") != 1 || !slices.Equal(before, jkt()) {
		t.Errorf("got keys %v and %v after %v", before, jkt(), w.requests())
	}
	var proofs []string
	for _, h := range w.sent {
		if p := h.Get("DPoP"); p != "" {
			proofs = append(proofs, p)
		}
	}
	slices.Sort(proofs)
	if n := len(proofs); len(slices.Compact(proofs)) != n {
		t.Error("a proof was sent twice")
	}
}

// TestDPoPClientNonceAlways shows that a server that requires another nonce each time gets one
// more attempt.
func TestDPoPClientNonceAlways(t *testing.T) {
	w := newWorld(t)
	w.challenge = "DPoP"
	w.as[worldAS].Document()["dpop_signing_alg_values_supported"] = []string{"ES256"}
	rt := w.transport(nil)
	mustPost(t, rt)
	n := 0
	w.odd[worldServer] = func(out http.ResponseWriter, _ *http.Request) {
		n++
		out.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce"`)
		out.Header().Set("DPoP-Nonce", strings.Repeat("n", n))
		out.WriteHeader(http.StatusUnauthorized)
	}
	resp, err := post(t.Context(), rt)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || n != 2 || w.count("/token") != 1 {
		t.Errorf("got %v, %v after %d requests", resp, err, n)
	}
}
