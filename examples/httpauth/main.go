// Httpauth is a server over Streamable HTTP that requires a token of an authorization server, and a
// client whose user logs in there. The client needs no configuration: it finds the authorization
// server through the server's metadata, and registers itself.
//
// ISSUER is the URL of an authorization server that issues JWTs as access tokens and lets clients
// register.
//
//	go run ./examples/httpauth serve 127.0.0.1:8080 ISSUER
//	go run ./examples/httpauth call http://127.0.0.1:8080/mcp
//
// The test of this program has such a server. For fixed tokens, without a login, see
// auth.NewStatic.
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
	"strings"
	"time"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/oauth"
	"mcpwire/server"
	"mcpwire/streamable"
)

// scope is what a token must permit.
const scope = "notes"

// loginTimeout is how long a user may take to log in.
const loginTimeout = 3 * time.Minute

// newHandler returns the server's endpoint for the public URL resource, and the metadata that names
// its authorization server. shutdown ends it.
func newHandler(resource, issuer string) (h http.Handler, shutdown func(context.Context) error, err error) {
	srv, err := server.New("private", "1.0.0", nil)
	if err != nil {
		return nil, nil, err
	}
	err = server.AddTool(srv, "whoami", "Tell who calls.", func(ctx context.Context, _ struct{}) (string, error) {
		return auth.PrincipalOf(ctx).Subject, nil
	})
	if err != nil {
		return nil, nil, err
	}
	// The verifier fetches the issuer's keys. A token for another server of the issuer has another
	// audience and is rejected.
	tokens, err := auth.NewJWT(&auth.JWTOptions{Issuer: issuer, Audiences: []string{resource}})
	if err != nil {
		return nil, nil, err
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{
		Resource:             resource,
		Verifier:             tokens,
		AuthorizationServers: []string{issuer},
		RequiredScopes:       []string{scope},
	})
	if err != nil {
		return nil, nil, err
	}
	endpoint, err := streamable.NewHandler(srv, &streamable.Options{Guard: guard})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	for _, path := range guard.MetadataPaths() {
		mux.Handle(path, guard.Metadata())
	}
	return mux, endpoint.Shutdown, nil
}

// serve runs the server until ctx ends.
func serve(ctx context.Context, addr, issuer string) error {
	h, shutdown, err := newHandler("http://"+addr+"/mcp", issuer)
	if err != nil {
		return err
	}
	// To serve other machines, set AllowRemote, CertFile and KeyFile here, Hosts in newHandler, and
	// the public URL as the resource.
	return streamable.ListenAndServe(ctx, addr, h, &streamable.ServeOptions{
		OnListen:   func(at net.Addr) { log.Printf("listening at http://%s/mcp", at) },
		OnShutdown: shutdown,
	})
}

// call calls the tool. show is called with the URL at which the user must log in.
func call(ctx context.Context, url string, show func(loginURL string), stdout io.Writer) error {
	// Without a Store, the token is forgotten at the end. oauth.NewFileStore keeps it.
	login, err := oauth.NewClient(&oauth.ClientOptions{
		Grant:             oauth.AuthorizationCode{Prompter: oauth.LoopbackPrompter{Show: show, Timeout: loginTimeout}},
		Registration:      oauth.Registration{ClientName: "httpauth example"},
		AllowLoopbackHTTP: strings.HasPrefix(url, "http:"), // for a server on this machine
	})
	if err != nil {
		return err
	}
	transport, err := login.Transport(url, nil)
	if err != nil {
		return err
	}
	dial := &streamable.TransportOptions{HTTPClient: &http.Client{Transport: transport}}
	// The user logs in meanwhile.
	c, err := client.Dial(ctx, streamable.NewTransport(url, dial), nil)
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
	switch {
	case len(args) == 3 && args[0] == "serve":
		return serve(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "call":
		return call(ctx, args[1], func(loginURL string) { log.Printf("open %s", loginURL) }, os.Stdout)
	}
	return errors.New("usage: httpauth serve ADDRESS ISSUER | call URL")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
