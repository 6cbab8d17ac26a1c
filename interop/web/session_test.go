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

// TestSessionOwner has sessions of one user with ids that others know: another user of the same
// client, and a client that acts for itself. All of the owner's tokens are accepted. For the others
// the session does not exist, and it continues.
func TestSessionOwner(t *testing.T) {
	for _, format := range []string{formatJWT, formatOpaque} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), format, withoutCache)
			native := func(_ *visitor, o *oauth.ClientOptions) { o.ClientID, o.ClientIssuer = nativeID, s.issuer.url }
			alice, bob := newVisitor(t, s, "alice", native), newVisitor(t, s, "bob", native)
			ours := alice.mustDial(mcp.LatestLegacyRevision)
			theirs := bob.mustDial(mcp.LatestLegacyRevision)
			if a, b := alice.whoami(ours), bob.whoami(theirs); a.Subject != "alice" || b.Subject != "bob" || a.ClientID != b.ClientID {
				t.Fatalf("the site takes the callers for %+v and %+v", a, b)
			}
			session := alice.last().header.Get(headerSession)
			if session == "" || session == bob.last().header.Get(headerSession) {
				t.Fatalf("the sessions are %q and %q", session, bob.last().header.Get(headerSession))
			}
			for name, token := range map[string]string{"bob": bob.token(), "a machine": s.issuer.token(t, s.url, scopeRead)} {
				before := s.calls.Load()
				if r := s.inSession(t, session, token); r.status != http.StatusNotFound || s.calls.Load() != before {
					t.Errorf("%s in alice's session: status %d, %s", name, r.status, r.body)
				}
				if status := s.endSession(t, session, token); status != http.StatusNotFound {
					t.Errorf("%s ends alice's session: status %d", name, status)
				}
			}
			before := s.calls.Load()
			if r := s.post(t, legacyCall, headerSession, session, "MCP-Protocol-Version", mcp.LatestLegacyRevision.String()); r.status != http.StatusUnauthorized || s.calls.Load() != before {
				t.Errorf("without a token in alice's session: status %d, %s", r.status, r.body)
			}
			if r := s.inSession(t, session, alice.token()); r.status != http.StatusOK {
				t.Errorf("alice in her session: status %d, %s", r.status, r.body)
			}
			if got := alice.whoami(ours); got.Subject != "alice" {
				t.Errorf("the site takes alice for %+v", got)
			}
		})
	}
}

// inSession calls the tool whoami in a session.
func (s *site) inSession(t *testing.T, session, token string) reply {
	t.Helper()
	return s.post(t, legacyCall, "Authorization", "Bearer "+token, headerSession, session, "MCP-Protocol-Version", mcp.LatestLegacyRevision.String())
}

// endSession requests the end of a session and returns the status.
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
