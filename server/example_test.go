package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// A complete server. Here its standard input is a pipe that holds one request; a main function
// calls stdio.Serve.
func Example() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	err := server.AddTool(srv, "word_count", "Count words in the input string.",
		func(_ context.Context, in struct {
			Text string `json:"text" jsonschema:"text to count"`
		}) (int, error) {
			return len(strings.Fields(in.Text)), nil
		})
	if err != nil {
		log.Fatal(err)
	}
	stdin := pipeWith(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"word_count","arguments":{"text":"a b c"}}}` + "\n")
	if err := (&stdio.Config{Stdin: stdin, Stdout: os.Stdout}).Serve(context.Background(), srv); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}
}

// pipeWith returns a file that holds a text and then ends.
func pipeWith(text string) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if _, err := io.WriteString(w, text); err != nil {
		log.Fatal(err)
	}
	return r
}

// requestState is a stream whose input is a text and whose output is standard output.
type requestState struct{ *strings.Reader }

func (requestState) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (requestState) Close() error                { return nil }

// serve has srv respond to the requests, one per line, on standard output.
func serve(srv *server.Server, requests ...string) {
	for _, r := range requests {
		if err := srv.Serve(context.Background(), jsonrpc.NewFramer(requestState{strings.NewReader(r)}, nil)); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleAddTool() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	type query struct {
		Text  string `json:"text" jsonschema:"what to look for" schema:"minLength=1"`
		Limit int    `json:"limit,omitempty" schema:"minimum=1,maximum=50,default=10"`
	}
	type hit struct {
		Title string  `json:"title"`
		Score float64 `json:"score"`
	}
	type hits struct {
		Hits []hit `json:"hits"`
	}
	err := server.AddTool(srv, "search", "Search the library.", func(_ context.Context, in query) (hits, error) {
		if in.Text == "nothing" {
			return hits{}, errors.New("nothing matches: try a shorter text")
		}
		return hits{[]hit{{fmt.Sprintf("%s, the best of %d", in.Text, in.Limit), 0.9}}}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"text":"moss"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"limit":99}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"search","arguments":{"text":"nothing"}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"hits":[{"title":"moss, the best of 10","score":0.9}]},"content":[{"type":"text","text":"{\"hits\":[{\"title\":\"moss, the best of 10\",\"score\":0.9}]}"}]}}
	// {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"arguments.limit: expected integer between 1 and 50, got 99; arguments: missing required property \"text\""}],"isError":true}}
	// {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"nothing matches: try a shorter text"}],"isError":true}}
}

func ExampleAddToolWith() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	no := false
	def := mcp.Tool{
		Name:        "erase",
		Title:       "Erase a note",
		Description: "Erase a note for good.",
		Annotations: &mcp.ToolAnnotations{IdempotentHint: &no},
	}
	err := server.AddToolWith(srv, def, func(_ context.Context, in struct {
		ID int64 `json:"id"`
	}) ([]mcp.ContentBlock, error) {
		return []mcp.ContentBlock{
			mcp.TextContent{Text: fmt.Sprintf("note %d is gone", in.ID)},
			mcp.ResourceLink{URI: "note://trash", Name: "trash"},
		}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"erase","arguments":{"id":7}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"erase","title":"Erase a note","description":"Erase a note for good.","inputSchema":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":false},"annotations":{"idempotentHint":false}}]}}
	// {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"note 7 is gone"},{"type":"resource_link","uri":"note://trash","name":"trash"}]}}
}

func ExampleServer_AddRawTool() {
	srv := server.MustNew("proxy", "1.0.0", &server.Options{Lenient: true})
	err := srv.AddRawTool(mcp.Tool{
		Name:        "forward",
		InputSchema: json.RawMessage(`{"type": "object", "properties": {"to": {"enum": ["north", "south"]}}, "required": ["to"]}`),
	}, func(call *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: args}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"forward","arguments":{"to":"north","n":1e400}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"forward","arguments":{"to":"west"}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"to\":\"north\",\"n\":1e400}"}],"structuredContent":{"to":"north","n":1e400}}}
	// {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"arguments.to: expected one of \"north\", \"south\", got string \"west\""}],"isError":true}}
}

func ExampleCall_Progress() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	err := server.AddTool(srv, "copy", "Copy files.", func(ctx context.Context, in struct {
		Files []string `json:"files"`
	}) (string, error) {
		call := server.CallOf(ctx)
		for i, file := range in.Files {
			if err := ctx.Err(); err != nil {
				return "", err // the client has canceled the call
			}
			if err := call.Progress(float64(i+1), float64(len(in.Files)), file); err != nil {
				return "", err
			}
		}
		return "copied", nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"copy","arguments":{"files":["a","b"]},"_meta":{"progressToken":"p"}}}`)
	// Output:
	// {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2,"message":"a"}}
	// {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2,"total":2,"message":"b"}}
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"copied"}]}}
}
