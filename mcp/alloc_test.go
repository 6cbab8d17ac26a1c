package mcp

import "testing"

// TestAllocations shows that encoding allocates only to sort maps, and that decoding allocates what
// the value needs.
func TestAllocations(t *testing.T) {
	dst := make([]byte, 0, 64<<10)
	for typ := range codecs {
		v := filled(t, typ, 0)
		var limit float64
		switch typ {
		case "ClientCapabilities", "ServerCapabilities", "InitializeRequestParams", "InitializeResult", "DiscoverResult", "CallToolRequestParams",
			"GetPromptRequestParams", "ReadResourceRequestParams", "CompleteRequestParams", "CompleteContext", "InputRequiredResult", "DetailedTask",
			"UpdateTaskRequestParams", "MissingRequiredClientCapabilityData":
			limit = 20
		}
		if n := testing.AllocsPerRun(20, func() { v.appendRevision(dst, LatestRevision) }); n > limit {
			t.Errorf("%s: %v allocations", typ, n)
		}
	}
	result := CallToolResult{Content: []ContentBlock{TextContent{Text: "text"}}, StructuredContent: []byte(`{}`)}
	text := result.appendRevision(nil, RevisionNone)
	if n := testing.AllocsPerRun(20, func() {
		var v CallToolResult
		if v.read(text) != nil {
			t.Error("not read")
		}
	}); n > 6 {
		t.Errorf("reading a result: %v allocations", n)
	}
}

func BenchmarkAppendTool(b *testing.B) {
	v := filled(b, "Tool", 0)
	dst := v.appendRevision(nil, RevisionNone)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		dst = v.appendRevision(dst[:0], LatestRevision)
	}
}

func BenchmarkReadTool(b *testing.B) {
	text := filled(b, "Tool", 0).appendRevision(nil, RevisionNone)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var v Tool
		if err := v.read(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadResult(b *testing.B) {
	text := filled(b, "CallToolResult", 0).appendRevision(nil, RevisionNone)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var v CallToolResult
		if err := v.read(text); err != nil {
			b.Fatal(err)
		}
	}
}
