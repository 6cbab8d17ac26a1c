package matrix

import (
	"context"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
)

// contents are the kinds of content, and their replacements in revisions that lack the kind.
var contents = []struct {
	name    string
	block   mcp.ContentBlock
	since   mcp.Revision
	instead string
}{
	{"text", mcp.TextContent{Text: "x\n\u2028"}, mcp.Revision20241105, ""},
	{"image", mcp.ImageContent{Data: []byte{0, 255}, MIMEType: "image/png"}, mcp.Revision20241105, ""},
	{"audio", mcp.AudioContent{Data: []byte{1, 2, 3}, MIMEType: "audio/wav"}, mcp.Revision20250326, "[audio/wav, 3 bytes: revision 2024-11-05 has no audio content]"},
	{"embedded text", mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "lib://a", MIMEType: "text/plain", Text: "A"}}, mcp.Revision20241105, ""},
	{"embedded data", mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "lib://b", MIMEType: "image/png", Blob: []byte{7}}}, mcp.Revision20241105, ""},
	{"link", mcp.ResourceLink{URI: "lib://c", Name: "c", MIMEType: "text/plain"}, mcp.Revision20250618, "[resource c: lib://c]"},
}

// newContentServer returns a server whose tools and prompts return each kind of content.
func newContentServer(func()) *server.Server {
	srv := server.MustNew("content", "1", nil)
	for _, c := range contents {
		must(
			server.AddTool(srv, c.name, "", func(context.Context, struct{}) (mcp.ContentBlock, error) { return c.block, nil }),
			server.AddPrompt(srv, mcp.Prompt{Name: c.name}, func(context.Context, struct{}) ([]mcp.PromptMessage, error) {
				return []mcp.PromptMessage{{Role: mcp.RoleAssistant, Content: c.block}}, nil
			}),
		)
	}
	must(server.AddTool(srv, "all", "", func(context.Context, struct{}) (all []mcp.ContentBlock, err error) {
		for _, c := range contents {
			all = append(all, c.block)
		}
		return all, nil
	}))
	return srv
}

func TestContent(t *testing.T) {
	var rows []behavior
	for _, c := range contents {
		expect := func(want mcp.ContentBlock) func(s *subtest) {
			return func(s *subtest) {
				res, err := s.client().CallTool(s.Context(), c.name, nil)
				ok(s, "tool", err)
				same(s, "from a tool", res.Content, []mcp.ContentBlock{want})
				p, err := s.client().GetPrompt(s.Context(), c.name, nil)
				ok(s, "prompt", err)
				same(s, "from a prompt", p.Messages, []mcp.PromptMessage{{Role: mcp.RoleAssistant, Content: want}})
			}
		}
		rows = append(rows, behavior{name: c.name, when: since(c.since), test: expect(c.block), instead: expect(mcp.TextContent{Text: c.instead})})
	}
	// Spec: S150 S151 S152
	rows = append(rows, behavior{name: "several", test: func(s *subtest) {
		var want []mcp.ContentBlock
		for _, c := range contents {
			if s.revision < c.since {
				want = append(want, mcp.TextContent{Text: c.instead})
			} else {
				want = append(want, c.block)
			}
		}
		res, err := s.client().CallTool(s.Context(), "all", nil)
		ok(s, "tool", err)
		same(s, "content", res.Content, want)
	}})
	testBehaviors(t, "content", rows)
}
