package client

import (
	"testing"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// FuzzResult reads what a server may answer, which is JSON but may be any JSON: nothing panics, and what comes out is within bounds.
func FuzzResult(f *testing.F) {
	for _, text := range []string{
		done, taskText(modernDate, "working"), taskText(legacyDate, "completed"), `{"task":` + taskText(legacyDate, "working") + `}`,
		resource("a", `,"ttlMs":1e3,"cacheScope":"public"`), tools(tool("a", "")), `{"content":[{"type":"text","text":"\ud800"},{"type":1},7,null]}`,
		`{"structuredContent":null}`, `{"toolsListChanged":true,"taskIds":["a",1,null],"resourceSubscriptions":{}}`, `[]`, `""`, `{"uri":7}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if jsonwire.Valid(text, 0) != nil {
			return
		}
		if ttl, _ := cacheHints(text); ttl < 0 || ttl > maxTTL {
			t.Errorf("ttl: %v", ttl)
		}
		if s, ok := parseTask(text); ok && (s.ID == "" || s.Status == "") || s.TTL < -1 || s.TTL > maxTTL || s.PollInterval < 0 || s.PollInterval > maxTTL {
			t.Errorf("task: %+v", s)
		}
		filter := parseFilter(text)
		if both := intersectFilters(&filter, &filter); len(missedEvents(&both)) > filterSize(&filter) {
			t.Errorf("filter: %+v", filter)
		}
		parseURIParam(text)
		subscriptionID(text)
		a, err := parseToolResult(text)
		if err != nil {
			return
		}
		data, err := a.jsonOutput()
		if err == nil && jsonwire.Valid(data, 0) != nil {
			t.Errorf("data: %q", data)
		}
		a.text()
		if result, err := a.decode(); err == nil && jsonwire.Valid((*mcp.CallToolResult).AppendJSON(result, nil), 0) != nil {
			t.Errorf("result: %+v", result)
		}
	})
}
