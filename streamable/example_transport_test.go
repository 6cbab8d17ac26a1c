package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/oauth"
	"mcpwire/server"
	"mcpwire/streamable"
)

// greeter returns a server with one tool.
func greeter() *streamable.Handler {
	s := server.MustNew("greeter", "1", nil)
	server.AddTool(s, "greet", "greets", func(ctx context.Context, in struct {
		Name string `json:"name"`
	}) (string, error) {
		return "hello " + in.Name, nil
	})
	return streamable.MustHandler(s, nil)
}

// A client detects which era the server supports.
func ExampleNewTransport() {
	web := httptest.NewServer(greeter())
	defer web.Close()

	ctx := context.Background()
	c, err := client.Dial(ctx, streamable.NewTransport(web.URL+"/mcp", nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	text, err := client.CallTool[string](ctx, c, "greet", map[string]string{"name": "you"})
	fmt.Println(text, err)
	// Output: hello you <nil>
}

// behindLogin returns a greeter that requires a token, and the authorization server that issues it.
func behindLogin() *httptest.Server {
	mux, greet := http.NewServeMux(), greeter()
	web := httptest.NewServer(mux)
	tell := func(pattern, format string, args ...any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, format, args...)
		})
	}
	tell("/.well-known/oauth-protected-resource/mcp", `{"resource":"%[1]s/mcp","authorization_servers":["%[1]s"]}`, web.URL)
	tell("/.well-known/oauth-authorization-server", `{"issuer":"%[1]s","authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token","response_types_supported":["code"],
		"grant_types_supported":["client_credentials"],"token_endpoint_auth_methods_supported":["client_secret_basic"],"code_challenge_methods_supported":["S256"]}`, web.URL)
	tell("/token", `{"access_token":"sesame","token_type":"Bearer","expires_in":3600}`)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+web.URL+`/.well-known/oauth-protected-resource/mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		greet.ServeHTTP(w, r)
	})
	return web
}

// A server that requires OAuth: the transport logs in when the server asks for a token.
func ExampleNewTransport_oauth() {
	web := behindLogin()
	defer web.Close()

	oauth, err := oauth.NewClient(&oauth.ClientOptions{
		Grant:    oauth.ClientCredentials{},
		ClientID: "robot", ClientSecret: auth.NewSecret("open"), ClientIssuer: web.URL,
		AllowLoopbackHTTP: true, // only for this example
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	transport, err := oauth.Transport(web.URL+"/mcp", base)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	c, err := client.Dial(ctx, streamable.NewTransport(web.URL+"/mcp", &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: transport},
	}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	text, err := client.CallTool[string](ctx, c, "greet", map[string]string{"name": "robot"})
	fmt.Println(text, err)
	// Output: hello robot <nil>
}

// The error of a call says whether the request was carried out and how the server responded.
func ExampleStatusError() {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "who are you?", http.StatusForbidden)
	}))
	defer web.Close()
	_, err := client.Dial(context.Background(), streamable.NewTransport(web.URL, nil), nil)
	_, what, _ := strings.Cut(err.Error(), "denied: ")
	fmt.Println(what)
	// Output: HTTP status 403 Forbidden: "who are you?"
}
