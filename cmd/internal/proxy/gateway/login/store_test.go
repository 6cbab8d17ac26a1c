package login

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/base/seal"
	"mcpwire/oauth"
)

func newRing(t *testing.T, b byte) *seal.Ring {
	r := &seal.Ring{}
	secret := sha256.Sum256([]byte{b})
	must(t, r.Replace(secret[:]))
	return r
}

// saveTokens stores a token of a user, as an oauth.Client does.
func saveTokens(t *testing.T, f *folder, user, token string) *store {
	t.Helper()
	s, err := f.store("up", "https://up.example.com/mcp", user)
	must(t, err)
	ctx := t.Context()
	must(t, s.Save(ctx, oauth.RecordKey{Issuer: "https://as.example.com", Resource: "https://up.example.com/mcp", ClientID: "c", Account: s.account}, &oauth.Record{Tokens: &oauth.Tokens{Access: auth.NewSecret(token), Type: "Bearer"}}))
	must(t, s.Save(ctx, oauth.RecordKey{Resource: "https://up.example.com/mcp", Account: s.account}, &oauth.Record{Issuer: "https://as.example.com", ClientID: "c"}))
	return s
}

func accessOf(t *testing.T, s *store) string {
	t.Helper()
	tokens, err := s.tokens(t.Context())
	must(t, err)
	if tokens == nil {
		return ""
	}
	return tokens.Access.Reveal()
}

// TestStore checks that tokens belong to one user at one upstream, and that sealed tokens cannot be
// read or moved.
func TestStore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sealed bool
	}{{"private", false}, {"sealed", true}} {
		t.Run(tt.name, func(t *testing.T) {
			var ring *seal.Ring
			if tt.sealed {
				ring = newRing(t, 1)
			}
			dir := filepath.Join(t.TempDir(), "logins")
			f, err := openFolder(dir, ring)
			must(t, err)
			alice, bob := saveTokens(t, f, "idp alice", "token-of-alice"), saveTokens(t, f, "idp bob", "token-of-bob")
			if a, b := accessOf(t, alice), accessOf(t, bob); a != "token-of-alice" || b != "token-of-bob" {
				t.Errorf("got %q and %q", a, b)
			}
			for _, other := range []struct{ upstream, server, user string }{
				{"up", "https://up.example.com/mcp", "idp carol"}, {"up", "https://evil.example.com/mcp", "idp alice"}, {"other", "https://up.example.com/mcp", "idp alice"},
			} {
				s, err := f.store(other.upstream, other.server, other.user)
				must(t, err)
				if got := accessOf(t, s); got != "" {
					t.Errorf("%+v: got %q, want no token", other, got)
				}
			}
			if tt.sealed {
				checkSealed(t, dir, alice, bob)
			}
			list, err := List(t.Context(), dir)
			must(t, err)
			var users []string
			for _, l := range list {
				users = append(users, l.User+" at "+l.Upstream+" "+l.Server)
			}
			if diff := cmp.Diff([]string{"idp alice at up https://up.example.com/mcp", "idp bob at up https://up.example.com/mcp"}, users); diff != "" {
				t.Errorf("logins (-want +got):\n%s", diff)
			}
			must(t, list[0].Revoke(t.Context()))
			if list, err = List(t.Context(), dir); err != nil || len(list) != 1 || list[0].User != "idp bob" {
				t.Errorf("after a revocation: got %v, %v", list, err)
			}
		})
	}
	if list, err := List(t.Context(), filepath.Join(t.TempDir(), "nothing")); err != nil || list != nil {
		t.Errorf("a folder that does not exist: got %v, %v", list, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if list, err := List(t.Context(), file); err == nil {
		t.Errorf("a file: got %v, want an error", list)
	}
}

// checkSealed checks that the files of alice and bob contain no token, and that one file cannot
// replace the other.
func checkSealed(t *testing.T, dir string, alice, bob *store) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+loginSuffix))
	must(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		must(t, err)
		if bytes.Contains(text, []byte("token-of")) {
			t.Errorf("%s contains a token", path)
		}
	}
	other, err := openFolder(dir, newRing(t, 2))
	must(t, err)
	s, err := other.store("up", "https://up.example.com/mcp", "idp alice")
	must(t, err)
	if got := accessOf(t, s); got != "" {
		t.Errorf("with another key: got %q, want no token", got)
	}
	// An attacker copies bob's sealed record to alice.
	key := func(s *store) oauth.RecordKey {
		return oauth.RecordKey{Issuer: "https://as.example.com", Resource: s.server, ClientID: "c", Account: s.account}
	}
	own, err := alice.own.Load(t.Context(), key(alice))
	must(t, err)
	stolen, err := bob.own.Load(t.Context(), key(bob))
	must(t, err)
	must(t, alice.own.Save(t.Context(), key(alice), stolen))
	if got := accessOf(t, alice); got != "" {
		t.Errorf("with bob's record: got %q for alice, want no token", got)
	}
	must(t, alice.own.Save(t.Context(), key(alice), own))
}

// TestSharedFolder checks that a login at one gateway is valid at another one with the same folder,
// and that a revocation ends it at both, with a record.
func TestSharedFolder(t *testing.T) {
	dir, ring := t.TempDir(), newRing(t, 1)
	synctest.Test(t, func(t *testing.T) {
		var upstreams []*Upstream
		var records, changes atomic.Int32
		for range 2 {
			l, err := New(&Options{URL: "http://127.0.0.1:1", Identity: &config.LoginIdentity{Issuer: "https://idp.example.com", ID: "a"}, Folder: dir, Ring: ring})
			must(t, err)
			defer l.Close()
			l.Notify(func(r *gateway.CallRecord) {
				if r.Method == "logout" && r.Outcome == gateway.OutcomeOK && r.Upstream == "up" {
					records.Add(1)
				}
			}, func(_ string, _ time.Time, of func(context.Context) bool) {
				if of(as("alice")) && !of(as("bob")) {
					changes.Add(1)
				}
			})
			u, err := l.Upstream(UpstreamOptions{Name: "up", Server: "https://up.example.com/mcp"})
			must(t, err)
			upstreams = append(upstreams, u)
		}
		check := func(when string, want bool) {
			t.Helper()
			time.Sleep(loginTTL + time.Millisecond)
			for i, u := range upstreams {
				if got := u.LoggedIn(as("alice")); got != want {
					t.Errorf("%s: gateway %d: LoggedIn = %v, want %v", when, i, got, want)
				}
			}
			if upstreams[0].LoggedIn(as("bob")) {
				t.Errorf("%s: bob is logged in", when)
			}
			synctest.Wait()
		}
		check("before the login", false)
		saveTokens(t, upstreams[0].l.folder, "https://idp.example.com alice", "token-of-alice")
		check("after the login", true)
		list, err := List(t.Context(), dir)
		must(t, err)
		for _, l := range list {
			must(t, l.Revoke(t.Context()))
		}
		check("after the revocation", false)
		if records.Load() != 2 || changes.Load() != 4 {
			t.Errorf("got %d records of a logout, want 2; got %d changes, want 4", records.Load(), changes.Load())
		}
	})
}
