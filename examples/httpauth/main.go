// Httpauth is a server over Streamable HTTP that requires a token, and a client that has one.
//
//	export MCP_TOKEN=$(openssl rand -hex 32)
//	go run ./examples/httpauth serve 127.0.0.1:8080
//	go run ./examples/httpauth call http://127.0.0.1:8080/mcp
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/server"
	"mcpwire/streamable"
)

// serve runs the server until ctx ends. It calls listening with its address.
func serve(ctx context.Context, addr, token string, listening func(net.Addr)) error {
	srv, err := server.New("private", "1.0.0", nil)
	if err != nil {
		return err
	}
	err = server.AddTool(srv, "whoami", "Tell who calls.", func(ctx context.Context, _ struct{}) (string, error) {
		return auth.PrincipalOf(ctx).Subject, nil
	})
	if err != nil {
		return err
	}
	// For tokens of an authorization server, use auth.NewJWT or auth.NewIntrospection instead.
	tokens, err := auth.NewStatic(auth.StaticToken{Token: token, Subject: "ada"})
	if err != nil {
		return err
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		return err
	}
	h, err := streamable.NewHandler(srv, &streamable.Options{Guard: guard})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	// To serve other machines, set AllowRemote, CertFile and KeyFile here, and Hosts above.
	return streamable.ListenAndServe(ctx, addr, mux, &streamable.ServeOptions{
		OnListen:   listening,
		OnShutdown: h.Shutdown, // because mux wraps h
	})
}

// call calls the tool, with the token unless it is empty.
func call(ctx context.Context, url, token string, stdout io.Writer) error {
	opts := &streamable.DialOptions{Header: http.Header{}}
	if token != "" {
		opts.Header.Set("Authorization", "Bearer "+token)
	}
	c, err := client.Dial(ctx, streamable.Dial(url, opts), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	name, err := client.CallTool[string](ctx, c, "whoami", nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, name)
	return err
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: httpauth serve ADDRESS | call URL")
	}
	// Other users of the machine can read a command line, but not the environment.
	switch token := os.Getenv("MCP_TOKEN"); args[0] {
	case "serve":
		return serve(ctx, args[1], token, func(at net.Addr) { log.Printf("listening at http://%s/mcp", at) })
	case "call":
		return call(ctx, args[1], token, os.Stdout)
	default:
		return fmt.Errorf("unknown command %q: say serve or call", args[0])
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
