package streamable_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/internal/net/sse"
	"mcpwire/server"
	"mcpwire/streamable"
)

// greeting returns a server with one tool.
func greeting() *server.Server {
	srv := server.MustNew("greeter", "1.0.0", nil)
	err := server.AddTool(srv, "greet", "Say hello.", func(_ context.Context, in struct {
		Name string `json:"name"`
	}) (string, error) {
		return "Hello, " + in.Name + "!", nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return srv
}

func ExampleNewHandler() {
	h := streamable.MustHandler(greeting(), nil)
	defer h.Shutdown(context.Background())
	web := httptest.NewServer(h) // a real program calls streamable.ListenAndServe
	defer web.Close()

	ctx := context.Background()
	c, err := client.Dial(ctx, streamable.NewTransport(web.URL, nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	text, err := client.CallTool[string](ctx, c, "greet", map[string]string{"name": "Ann"})
	fmt.Println(text, err)
	// Output: Hello, Ann! <nil>
}

type tenantKey struct{}

// Values of the HTTP request reach handlers, in the context.
func ExampleHandler() {
	srv := server.MustNew("tenants", "1.0.0", nil)
	err := server.AddTool(srv, "tenant", "Tell the tenant.", func(ctx context.Context, _ struct{}) (string, error) {
		return fmt.Sprintf("%v asks", ctx.Value(tenantKey{})), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	h := streamable.MustHandler(srv, nil)
	defer h.Shutdown(context.Background())
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), tenantKey{}, r.Header.Get("X-Tenant"))
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer web.Close()

	ctx := context.Background()
	c, err := client.Dial(ctx, streamable.NewTransport(web.URL, &streamable.TransportOptions{Header: http.Header{"X-Tenant": {"blue"}}}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	text, err := client.CallTool[string](ctx, c, "tenant", nil)
	fmt.Println(text, err)
	// Output: blue asks <nil>
}

// A server that requires a token, and a scope for tool calls.
func ExampleNewHandler_auth() {
	tokens, err := auth.NewStatic(auth.StaticToken{Token: "a-long-and-random-text", Subject: "ann", Scopes: []string{"read"}})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		log.Fatal(err)
	}
	h := streamable.MustHandler(greeting(), &streamable.Options{
		Guard: guard,
		Scopes: func(method, name string) []string {
			if method == "tools/call" {
				return []string{"write"}
			}
			return nil
		},
	})
	defer h.Shutdown(context.Background())

	body, headers := callPost(1, "greet", `{"name":"Ann"}`)
	for _, token := range []string{"", "a-long-and-random-text"} {
		r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("WWW-Authenticate"))
	}
	// Output:
	// 401 Bearer
	// 403 Bearer error="insufficient_scope", error_description="The operation needs more scopes.", scope="write"
}

// Clients of revision 2024-11-05 open a stream, whose first event has the URL for their requests.
func ExampleHandler_SSE() {
	h := streamable.MustHandler(greeting(), nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	old := h.SSE("/messages")
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	web := httptest.NewServer(mux)
	defer web.Close()
	defer h.Shutdown(context.Background()) // before the server's, because it ends the streams

	resp, err := http.Get(web.URL + "/sse")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	e, err := sse.NewReader(resp.Body, 0).Read()
	if err != nil && err != io.EOF {
		log.Fatal(err)
	}
	address, _, _ := strings.Cut(string(e.Data), "=")
	fmt.Println(e.Name, address)
	// Output: endpoint /messages?sessionId
}
