package era

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

// TestWithoutMalformed checks that a malformed element costs itself only, and that a well-formed
// result keeps its bytes.
func TestWithoutMalformed(t *testing.T) {
	const good = `{"name":"good","inputSchema":{"type":"object"}}`
	list := func(items string) string { return `{"tools":[` + items + `],"nextCursor":"n"}` }
	tool := func(member string) string { return list(good + `,{"name":"bad","inputSchema":{},` + member + `}`) }
	for _, tt := range []struct{ name, method, result, want, left string }{
		{"well-formed", mcp.MethodToolsList, `{ "tools" : [ ` + good + ` ] }`, `{ "tools" : [ ` + good + ` ] }`, ""},
		{"no schema", mcp.MethodToolsList, list(`{"name":"bad"},` + good), list(good), `tools[0] "bad": inputSchema: missing`},
		{"null schema", mcp.MethodToolsList, list(good + `,{"name":"bad","inputSchema":null}`), list(good), `tools[1] "bad": inputSchema: expected an object`},
		{"array schema", mcp.MethodToolsList, list(`{"name":"bad","inputSchema":[]}`), list(""), `tools[0] "bad": inputSchema: expected an object`},
		{"no name", mcp.MethodToolsList, list(`{"inputSchema":{}},` + good), list(good), `tools[0] "": name: missing`},
		{"name", mcp.MethodToolsList, list(`{"name":7,"inputSchema":{}},` + good), list(good), `tools[0] "": name: expected a string`},
		{"description", mcp.MethodToolsList, tool(`"description":7`), list(good), `tools[1] "bad": description: expected a string`},
		{"output schema", mcp.MethodToolsList, tool(`"outputSchema":"string"`), list(good), `tools[1] "bad": outputSchema: expected an object`},
		{"hint", mcp.MethodToolsList, tool(`"annotations":{"readOnlyHint":"yes"}`), list(good), `tools[1] "bad": annotations.readOnlyHint: expected a boolean`},
		{"icon", mcp.MethodToolsList, tool(`"icons":[{}]`), list(good), `tools[1] "bad": icons[0].src: missing`},
		{"null", mcp.MethodToolsList, list(`null,` + good), list(good), `tools[0] "": expected an object`},
		{"two", mcp.MethodToolsList, list(`1,` + good + `,"x"`), list(good), "tools[0] \"\": expected an object\ntools[2] \"\": expected an object"},
		{"no array", mcp.MethodToolsList, `{"tools":{"a":1}}`, `{"tools":{"a":1}}`, ""},
		{"prompt", mcp.MethodPromptsList, `{"prompts":[{"name":"a"},{"name":"b","arguments":{}}]}`, `{"prompts":[{"name":"a"}]}`, `prompts[1] "b": arguments: expected an array`},
		{"resource", mcp.MethodResourcesList, `{"resources":[{"uri":"a:b"},{"uri":"a:c","name":"c"}]}`, `{"resources":[{"uri":"a:c","name":"c"}]}`, `resources[0] "a:b": name: missing`},
		{"template", mcp.MethodResourceTemplatesList, `{"resourceTemplates":[{"name":"x"}]}`, `{"resourceTemplates":[]}`, `resourceTemplates[0] "": uriTemplate: missing`},
		{"block", mcp.MethodToolsCall, `{"content":[{"type":"image","mimeType":"image/png","data":"data:,x"},{"type":"text","text":"t"}]}`, `{"content":[{"type":"text","text":"t"}]}`, `content[0] "image": data: expected base64`},
		{"link", mcp.MethodToolsCall, `{"content":[{"type":"text","text":"t"},{"type":"resource_link","uri":"a:b"},{"type":"video"}]}`, `{"content":[{"type":"text","text":"t"},{"type":"video"}]}`, `content[1] "resource_link": name: missing`},
		{"only blocks", mcp.MethodToolsCall, `{"content":[{"type":"text","text":4}]}`, `{"content":[{"type":"text","text":4}]}`, `content[0] "text": text: expected a string`},
		{"structured", mcp.MethodToolsCall, `{"content":[{"type":"text","text":4}],"structuredContent":{}}`, `{"content":[],"structuredContent":{}}`, `content[0] "text": text: expected a string`},
		{"message", mcp.MethodPromptsGet, `{"messages":[{"role":"user"},{"role":"user","content":{"type":"text","text":"t"}}]}`, `{"messages":[{"role":"user","content":{"type":"text","text":"t"}}]}`, `messages[0] "": content: missing`},
		{"contents", mcp.MethodResourcesRead, `{"contents":[{"uri":"a:b","text":"t"},{"uri":"a:c"}]}`, `{"contents":[{"uri":"a:b","text":"t"}]}`, `contents[1] "a:c": text: missing, like blob`},
		{"another method", "tasks/list", `{"tasks":[1]}`, `{"tasks":[1]}`, ""},
		{"no object", mcp.MethodToolsList, `[]`, `[]`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rest, left := WithoutMalformed(tt.method, []byte(tt.result))
			text := ""
			if err := errors.Join(left...); err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff([2]string{tt.want, tt.left}, [2]string{string(rest), text}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
