package gatewayd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
)

// TestSharingOf checks what gateway check says about who shares an upstream.
func TestSharingOf(t *testing.T) {
	const (
		issuers = "auth: {resource: 'https://g.example.com/mcp', issuers: [{url: https://idp.example.com}]}\n"
		token   = "auth: {token: 'env:TOKEN'}\n"
		socket  = "listen: unix:/run/gateway.sock\n"
		each    = "each session of a legacy client has its own; modern clients have no sessions: "
	)
	t.Setenv("TOKEN", strings.Repeat("x", 40))
	for _, tt := range []struct{ name, config, upstream, want string }{
		{"default", "", "{command: [x]}", "shared by all clients: without auth.issuers, the gateway cannot tell users apart"},
		{"one token", token, "{command: [x]}", "shared by all clients: without auth.issuers, the gateway cannot tell users apart"},
		{"socket", socket, "{command: [x]}", "shared by all clients: without auth.issuers, the gateway cannot tell users apart"},
		{"users", issuers, "{command: [x]}", "shared by the clients of each user, and by no two users"},
		{"users, written", issuers, "{command: [x], isolation: principal}", "shared by the clients of each user, and by no two users"},
		{"shared", issuers, "{command: [x], isolation: shared}", "shared by all clients (isolation: shared)"},
		{"shared, tokens of users", issuers, "{url: 'https://x.example.com/mcp', isolation: shared, credentials: {exchange: {issuer: 'https://idp.example.com', id: a, secret: 'env:TOKEN'}}}", "shared by the clients of each user, and by no two users"},
		{"client", "", "{command: [x], isolation: client}", each + "those at one network address share one"},
		{"client, one token", token, "{command: [x], isolation: client}", each + "they all share one, since the gateway cannot tell users apart"},
		{"client, socket", socket, "{command: [x], isolation: client}", each + "they all share one, since the gateway cannot tell users apart"},
		{"client, users", issuers, "{command: [x], isolation: client}", each + "those of one user share one"},
		{"stdio", "listen: stdio\n", "{command: [x], isolation: client}", "used by the one client of the gateway"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gateway.yaml")
			if err := os.WriteFile(path, []byte(tt.config+"upstreams:\n  u: "+tt.upstream+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := gatewayconfig.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := Sharing(c, c.Upstreams[0]); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
