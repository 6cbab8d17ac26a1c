package web

import (
	"net/http"
	"testing"

	"mcpwire/mcp"
	"mcpwire/oauth"
)

const headerSession = "Mcp-Session-Id"

// legacyCall is a call in a session.
const legacyCall = `{"jsonrpc":"2.0","id":"stolen-1","method":"tools/call","params":{"name":"whoami","arguments":{}}}`

// TestSessionOwner uses the session id of one user with the tokens of others: another user of the
// same client, and a client without a user. They get status 404, and the session continues for its
// owner.
func TestSessionOwner(t *testing.T) {
	for _, format := range []string{formatJWT, formatOpaque} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), format, withoutCache)
			native := func(_ *siteUser, o *oauth.ClientOptions) { o.ClientID, o.ClientIssuer = nativeID, s.issuer.url }
			alice, bob := newSiteUser(t, s, "alice", native), newSiteUser(t, s, "bob", native)
			ours := alice.mustDial(mcp.LatestLegacyRevision)
			theirs := bob.mustDial(mcp.LatestLegacyRevision)
			if a, b := alice.whoami(ours), bob.whoami(theirs); a.Subject != "alice" || b.Subject != "bob" || a.ClientID != b.ClientID {
				t.Fatalf("identities = %+v and %+v, want alice and bob with one client id", a, b)
			}
			session := alice.last().header.Get(headerSession)
			if session == "" || session == bob.last().header.Get(headerSession) {
				t.Fatalf("session ids = %q and %q, want different ones", session, bob.last().header.Get(headerSession))
			}
			for name, token := range map[string]string{"bob": bob.token(), "a client without a user": s.issuer.token(t, s.url, scopeRead)} {
				before := s.calls.Load()
				if r := s.inSession(t, session, token); r.status != http.StatusNotFound || s.calls.Load() != before {
					t.Errorf("call of %s in alice's session: status = %d, want %d: %s", name, r.status, http.StatusNotFound, r.body)
				}
				if status := s.endSession(t, session, token); status != http.StatusNotFound {
					t.Errorf("DELETE of %s in alice's session: status = %d, want %d", name, status, http.StatusNotFound)
				}
			}
			before := s.calls.Load()
			if r := s.post(t, legacyCall, headerSession, session, "MCP-Protocol-Version", mcp.LatestLegacyRevision.String()); r.status != http.StatusUnauthorized || s.calls.Load() != before {
				t.Errorf("call without a token in alice's session: status = %d, want %d: %s", r.status, http.StatusUnauthorized, r.body)
			}
			if r := s.inSession(t, session, alice.token()); r.status != http.StatusOK {
				t.Errorf("call of alice in her session: status = %d, want %d: %s", r.status, http.StatusOK, r.body)
			}
			if got := alice.whoami(ours); got.Subject != "alice" {
				t.Errorf("identity = %+v, want alice", got)
			}
		})
	}
}

// inSession calls the tool whoami in a session.
func (s *site) inSession(t *testing.T, session, token string) reply {
	t.Helper()
	return s.post(t, legacyCall, "Authorization", "Bearer "+token, headerSession, session, "MCP-Protocol-Version", mcp.LatestLegacyRevision.String())
}

// endSession sends DELETE for a session and returns the status.
func (s *site) endSession(t *testing.T, session, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set(headerSession, session)
	return send(t, req).status
}
