package shape_test

import (
	"fmt"

	"mcpwire/internal/era/shape"
	"mcpwire/mcp"
)

func ExampleCheck() {
	for _, p := range shape.Check(mcp.Revision20250618, shape.Message{
		Kind: shape.Result, Method: "tools/list", Body: []byte(`{"tools":[{"name":"add","inputSchema":{"type":"string"}},{"title":5}]}`),
	}) {
		fmt.Printf("%s: %s\n", p.Pointer, p.Message)
	}
	// Output:
	// /tools/0/inputSchema/type: "type" is "string", but must be "object"
	// /tools/1/title: "title" is a number, but must be a string
	// /tools/1: "name" is missing: Tool requires it
	// /tools/1: "inputSchema" is missing: Tool requires it
}

func ExampleTypeOf() {
	tool, _ := shape.TypeOf(mcp.Revision20241105, "Tool")
	for _, f := range tool.Fields() {
		fmt.Println(f.Name, f.Required, f.Type)
	}
	// Output:
	// name true string
	// description false string
	// inputSchema true Tool.inputSchema
}

func ExampleCheckType() {
	problems, ok := shape.CheckType(mcp.Revision20260728, "ClientCapabilities", []byte(`{"sampling":true}`))
	fmt.Println(ok, problems[0].Message)
	// Output: true "sampling" is a boolean, but must be an object: ClientCapabilities.sampling
}
