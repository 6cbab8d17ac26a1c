package mcptest

import (
	"testing"

	"mcpwire/client"
)

// Connect runs a server in memory, as [Serve] does, and dials it. opts may be nil; with the zero value, the newest revision is spoken that both have.
// Options.Revisions is how to test the others. The client is closed when the test ends, and the test fails at once if it cannot be dialed.
func Connect(t testing.TB, srv Server, opts *client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Over(Serve(t, srv)), opts)
	if err != nil {
		t.Fatalf("dial the server under test: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}
