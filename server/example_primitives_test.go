package server_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
)

func ExampleAddResource() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	// A text that never changes.
	err := server.AddResource(srv, mcp.Resource{URI: "config://app", Name: "config", MIMEType: "application/json"}, server.Static(`{"debug":true}`))
	if err != nil {
		log.Fatal(err)
	}
	// A resource that is read each time. A []byte is sent as a blob.
	logo := []byte("\x89PNG")
	err = server.AddResource(srv, mcp.Resource{URI: "logo://small", Name: "logo", MIMEType: "image/png"}, func(context.Context) ([]byte, error) {
		if logo == nil {
			return nil, server.ErrNotFound
		}
		return logo, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Clients may keep this for an hour, and caches may serve it to others.
	err = server.AddResource(srv, mcp.Resource{URI: "motd://today", Name: "motd"}, func(context.Context) (*mcp.ReadResourceResult, error) {
		return server.CacheFor("be kind", time.Hour, mcp.CacheScopePublic), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"config://app"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"logo://small"}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"config://app","mimeType":"application/json","text":"{\"debug\":true}"}]}}
	// {"jsonrpc":"2.0","id":2,"result":{"contents":[{"uri":"logo://small","mimeType":"image/png","blob":"iVBORw=="}]}}
}

func ExampleAddResourceTemplate() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	rows := map[string]string{"users/42": "Ada"}
	def := mcp.ResourceTemplate{URITemplate: "db:///{table}/{id}", Name: "row", MIMEType: "text/plain"}
	err := server.AddResourceTemplate(srv, def, func(_ context.Context, vars server.Vars) (string, error) {
		row, ok := rows[vars.Get("table")+"/"+vars.Get("id")]
		if !ok {
			return "", server.ErrNotFound
		}
		return row, nil
	}, server.CompleteFrom("table", "users", "orders"))
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"db:///users/42"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"db:///users/43"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"db:///{table}/{id}"},"argument":{"name":"table","value":"u"}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"db:///users/42","mimeType":"text/plain","text":"Ada"}]}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"resource not found","data":{"uri":"db:///users/43"}}}
	// {"jsonrpc":"2.0","id":3,"result":{"completion":{"values":["users"],"total":1}}}
}

// Files in a folder. For files on a disk, use the FS of an os.Root, which prevents access outside
// of it.
func ExampleFiles() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	docs := fstest.MapFS{"guide/start.html": {Data: []byte("<h1>Start</h1>")}}
	def := mcp.ResourceTemplate{URITemplate: "file:///srv/docs/{+path}", Name: "docs"}
	if err := server.AddResourceTemplate(srv, def, server.Files(docs)); err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///srv/docs/guide/start.html"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"file:///srv/docs/%2e%2e/secret"}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"file:///srv/docs/guide/start.html","mimeType":"text/html; charset=utf-8","text":"<h1>Start</h1>"}]}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"resource not found","data":{"uri":"file:///srv/docs/%2e%2e/secret"}}}
}

func ExampleServer_ResourceUpdated() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	count := 0
	err := server.AddResource(srv, mcp.Resource{URI: "counter://hits", Name: "hits"}, func(context.Context) (string, error) { return fmt.Sprint(count), nil })
	if err != nil {
		log.Fatal(err)
	}
	count++
	srv.ResourceUpdated("counter://hits") // notifies subscribed clients; this example has none
	serve(srv, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"counter://hits"}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"counter://hits","text":"1"}]}}
}

func ExampleAddPrompt() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	type args struct {
		Language string `json:"language" jsonschema:"the language of the code" schema:"enum=go|rust"`
		Focus    string `json:"focus,omitempty" jsonschema:"what to look at"`
	}
	err := server.AddPrompt(srv, mcp.Prompt{Name: "review", Description: "Review code."}, func(_ context.Context, in args) (string, error) {
		text := "Review this " + in.Language + " code."
		if in.Focus != "" {
			text += " Look at " + in.Focus + "."
		}
		return text, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"review","arguments":{"language":"go","focus":"names"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"review"}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"prompts":[{"name":"review","description":"Review code.","arguments":[{"name":"language","description":"the language of the code","required":true},{"name":"focus","description":"what to look at"}]}]}}
	// {"jsonrpc":"2.0","id":2,"result":{"description":"Review code.","messages":[{"role":"user","content":{"type":"text","text":"Review this go code. Look at names."}}]}}
	// {"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"invalid params: params.arguments: missing required property \"language\""}}
}

// Arguments that are known only at run time, and several messages.
func ExampleAddPrompt_map() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	def := mcp.Prompt{Name: "greet", Arguments: []mcp.PromptArgument{{Name: "name", Required: true}}}
	err := server.AddPrompt(srv, def, func(_ context.Context, args map[string]string) ([]mcp.PromptMessage, error) {
		return []mcp.PromptMessage{
			{Content: mcp.TextContent{Text: "I am " + args["name"] + "."}},
			{Role: mcp.RoleAssistant, Content: mcp.TextContent{Text: "Hello, " + args["name"] + "!"}},
		}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	serve(srv, `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"greet","arguments":{"name":"Ada"}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"messages":[{"role":"user","content":{"type":"text","text":"I am Ada."}},{"role":"assistant","content":{"type":"text","text":"Hello, Ada!"}}]}}
}

// A value that depends on another one that the user has chosen.
func ExampleComplete() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	cities := map[string][]string{"no": {"Bergen", "Oslo"}, "nl": {"Breda"}}
	type args struct {
		Country string `json:"country" schema:"enum=nl|no"`
		City    string `json:"city"`
	}
	err := server.AddPrompt(srv, mcp.Prompt{Name: "weather"}, func(_ context.Context, in args) (string, error) { return "How is " + in.City + "?", nil },
		server.Complete("city", func(_ context.Context, req server.CompleteRequest) ([]string, error) {
			list := slices.Clone(cities[req.Arguments["country"]])
			return slices.DeleteFunc(list, func(city string) bool { return !strings.HasPrefix(city, req.Value) }), nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"weather"},"argument":{"name":"country","value":"n"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"weather"},"argument":{"name":"city","value":"B"},"context":{"arguments":{"country":"no"}}}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"completion":{"values":["nl","no"],"total":2}}}
	// {"jsonrpc":"2.0","id":2,"result":{"completion":{"values":["Bergen"],"total":1}}}
}
