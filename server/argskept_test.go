package server

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A shortText decodes into memory of its own.
type shortText struct {
	text []byte
	buf  [8]byte
}

func (s *shortText) UnmarshalJSON(b []byte) error {
	s.text = append(s.buf[:0], b[1:len(b)-1]...)
	return nil
}

func TestPlain(t *testing.T) {
	type tree struct {
		Name string
		Kids []*tree
		By   map[string]any
	}
	for _, tt := range []struct {
		of   any
		want bool
	}{
		{"", true}, {tree{}, true}, {struct{ arg tree }{}, true},
		{shortText{}, false}, {[]shortText{}, false}, {map[string]*shortText{}, false}, {struct{ T time.Time }{}, false}, {mcp.CallToolResult{}, false},
	} {
		if got := methodFree(reflect.TypeOf(tt.of)); got != tt.want {
			t.Errorf("%T: %v", tt.of, got)
		}
	}
}

// What a handler keeps of its arguments stays what it is when others are called.
func TestArgumentsKept(t *testing.T) {
	type args struct {
		Text shortText `json:"text"`
	}
	var kept []shortText
	srv := New("test", "1", nil)
	def := mcp.Tool{Name: "keep", InputSchema: json.RawMessage(`{"type":"object"}`)}
	if err := AddToolWith(srv, def, func(_ context.Context, in args) (string, error) {
		kept = append(kept, in.Text)
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	c := srv.OpenStateless()
	defer c.Close()
	for _, text := range []string{"first", "other"} {
		d := jsonrpc.Delivery{Untracked: true}
		params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"keep","arguments":{"text":"` + text + `"}}`
		if err := d.Parse(jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), mcp.MethodToolsCall, []byte(params)), 0); err != nil {
			t.Fatal(err)
		}
		if answer, err := c.Deliver(t.Context(), &d, nil); err != nil {
			t.Fatalf("%s %v", answer, err)
		}
	}
	if len(kept) != 2 || string(kept[0].text) != "first" || string(kept[1].text) != "other" {
		t.Errorf("kept %q", kept)
	}
}
