// Bridge is a program with an MCP server that it does not contain: it runs a command, and serves it
// over HTTP to clients of both eras. The same program says at another port when it is ready.
//
//	go run ./examples/bridge 127.0.0.1:8080 127.0.0.1:9090 go run ./examples/hello
//	mcpwire call http://127.0.0.1:8080/mcp greet name=Ada
//	curl http://127.0.0.1:9090/readyz
package main

import (
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"mcpwire/bridge"
	"mcpwire/client"
	"mcpwire/health"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// run serves upstream at addr and the probes at probesAddr until ctx ends. It calls listening with
// both addresses.
func run(ctx context.Context, addr, probesAddr string, upstream client.Transport, listening func(name string, at net.Addr)) error {
	b, err := bridge.New(upstream, &bridge.Options{
		Name:       "the program's server",
		ShowStderr: true, // all clients are on this machine
		Limits:     bridge.Limits{MaxServers: 20},
		Logger:     slog.Default(),
	})
	if err != nil {
		return err
	}
	defer b.Close() // and with it the processes
	h, err := b.Handler(nil)
	if err != nil {
		return err
	}

	// The probes respond until the other port is closed.
	probesCtx, stopProbes := context.WithCancel(context.WithoutCancel(ctx))
	probesEnded := make(chan error, 1)
	probes := health.New(ctx, health.Check{Name: "server", Run: b.Ready})
	go func() {
		probesEnded <- streamable.ListenAndServe(probesCtx, probesAddr, probes, &streamable.ServeOptions{
			OnListen: func(at net.Addr) { listening("probes", at) },
		})
	}()
	probes.Start()

	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	err = streamable.ListenAndServe(ctx, addr, mux, &streamable.ServeOptions{
		OnListen:        func(at net.Addr) { listening("server", at) },
		OnShutdown:      h.Shutdown, // because mux wraps h
		ShutdownTimeout: 5 * time.Second,
	})
	stopProbes()
	if probesErr := <-probesEnded; err == nil {
		err = probesErr
	}
	return err
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: bridge ADDRESS PROBES-ADDRESS COMMAND [ARGUMENTS]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	upstream := stdio.Command(os.Args[3], os.Args[4:]...)
	err := run(ctx, os.Args[1], os.Args[2], upstream, func(name string, at net.Addr) { log.Printf("%s at http://%s", name, at) })
	if err != nil {
		log.Fatal(err)
	}
}
