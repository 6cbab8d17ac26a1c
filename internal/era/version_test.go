package era

import (
	"testing"

	"mcpwire/mcp"
)

func TestUnsupportedProtocolVersion(t *testing.T) {
	for _, tt := range []struct {
		supported []mcp.Revision
		want      string
	}{
		{[]mcp.Revision{mcp.Revision20260728, mcp.Revision20241105}, `{"supported":["2026-07-28","2024-11-05"],"requested":"19\"00"}`},
		{nil, `{"supported":[],"requested":"19\"00"}`},
	} {
		err := UnsupportedProtocolVersion(tt.supported, `19"00`)
		if err.Code != mcp.CodeUnsupportedProtocolVersion || string(err.Data) != tt.want {
			t.Errorf("%v: code %d, data %s; want %d, %s", tt.supported, err.Code, err.Data, mcp.CodeUnsupportedProtocolVersion, tt.want)
		}
	}
}
