package era

import (
	"testing"

	"mcpwire/mcp"
)

func TestEndAs(t *testing.T) {
	id := NewIdentity(mcp.Implementation{Name: "n", Version: "v"})
	got := string(id.EndAs([]byte(`{"a":1`), Of(mcp.LatestRevision), "input_required"))
	if want := `{"a":1,"resultType":"input_required","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n","version":"v"}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
