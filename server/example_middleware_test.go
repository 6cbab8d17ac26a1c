package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/middleware"
	"mcpwire/server"
)

// A middleware that keeps an audit log of tool calls, and allows only administrators to erase data.
func ExampleServer_Use() {
	srv := server.MustNew("demo", "1.0.0", &server.Options{Lenient: true})
	for _, name := range []string{"search", "erase"} {
		if err := server.AddTool(srv, name, "", func(context.Context, struct{}) (string, error) { return "done", nil }); err != nil {
			log.Fatal(err)
		}
	}
	srv.Use(func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
			if m.Direction == jsonrpc.Outgoing || m.Method != "tools/call" {
				return next(ctx, m)
			}
			tool, who := server.CallOf(ctx).Name(), server.PrincipalID(ctx)
			if tool == "erase" && who != "admin" {
				fmt.Printf("audit: %q may not call %s\n", who, tool)
				return nil, jsonrpc.Errorf(403, "not allowed")
			}
			result, err := next(ctx, m)
			fmt.Printf("audit: %q called %s: %v\n", who, tool, err)
			return result, err
		}
	})
	request := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"erase"}}`
	for _, id := range []string{"guest", "admin"} {
		ctx := server.WithPrincipalID(context.Background(), id)
		if err := srv.Serve(ctx, jsonrpc.NewFramer(requestState{strings.NewReader(request)}, nil)); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// audit: "guest" may not call erase
	// {"jsonrpc":"2.0","id":1,"error":{"code":403,"message":"not allowed"}}
	// audit: "admin" called erase: <nil>
	// {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}
}

func ExampleAddMethod() {
	srv := server.MustNew("demo", "1.0.0", nil)
	type move struct {
		Square string `json:"square" jsonschema:"where to put the stone" schema:"pattern=^[A-T][0-9]+$"`
	}
	type position struct {
		Captured int `json:"captured"`
	}
	if err := server.AddMethod(srv, "com.example.go/move", func(_ context.Context, in move) (position, error) {
		return position{Captured: len(in.Square)}, nil
	}); err != nil {
		log.Fatal(err)
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	serve(srv,
		`{"jsonrpc":"2.0","id":1,"method":"com.example.go/move","params":{"square":"K10",`+meta+`}}`,
		`{"jsonrpc":"2.0","id":2,"method":"com.example.go/move","params":{"square":"10",`+meta+`}}`)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{"captured":3,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"demo","version":"1.0.0"}}}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"invalid params: params.square: expected a string matching the pattern ^[A-T][0-9]+$, got \"10\""}}
}

func ExampleServer_OnNotification() {
	srv := server.MustNew("demo", "1.0.0", nil)
	if err := srv.OnNotification("com.example/saved", func(ctx context.Context, params json.RawMessage) {
		fmt.Printf("%s from %q\n", params, server.PrincipalID(ctx))
	}); err != nil {
		log.Fatal(err)
	}
	serve(srv, `{"jsonrpc":"2.0","method":"com.example/saved","params":{"file":"notes.txt"}}`)
	// Output:
	// {"file":"notes.txt"} from ""
}
