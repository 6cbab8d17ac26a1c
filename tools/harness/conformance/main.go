// Command conformance is a node, as mcpwire-node is, with the server that the MCP conformance suite
// visits. The harness runs three of them:
//
//	go run ./harness -serve -program conformance
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/streamable"
	"mcpwire/tools/conformance/fixtures"
)

// gracePeriod is how long requests in flight may continue after a termination signal.
const gracePeriod = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "conformance node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stderr io.Writer) (err error) {
	embed := new(natscluster.Embed)
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&embed.Name, "name", "", "`NAME` of the node")
	listen := fs.String("listen", "127.0.0.1:0", "serve at `HOST:PORT`")
	fs.StringVar(&embed.Dir, "dir", "", "`DIR` for the files of the NATS server")
	fs.Func("core", "addresses of all core nodes: `NAME=HOST:PORT,...`", func(s string) error {
		for entry := range strings.SplitSeq(s, ",") {
			_, address, _ := strings.Cut(entry, "=")
			embed.Routes = append(embed.Routes, address)
		}
		return nil
	})
	fs.StringVar(&embed.Listen, "core-listen", "", "accept the other core nodes at `HOST:PORT`")
	for _, name := range []string{"admin", "client-listen", "token", "log-format"} {
		fs.String(name, "", "ignored: mcpwire-node has it")
	}
	fs.Bool("test-tools", false, "ignored: mcpwire-node has it")
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	backend, err := natscluster.Open(ctx, natscluster.Options{Embed: embed, Logger: log})
	if err != nil {
		return err
	}
	defer backend.Close()
	node, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Name: embed.Name, InsecureKeys: true, Logger: log})
	if err != nil {
		return err
	}
	defer node.Close()
	so, ho := fixtures.Options(log, nil), &streamable.Options{Logger: log}
	if err := node.Share(ctx, "conformance", so, ho); err != nil {
		return err
	}
	srv, err := fixtures.New(so)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gracePeriod)
		defer cancel()
		err = errors.Join(err, srv.Close(ctx))
	}()
	h, err := streamable.NewHandler(srv, ho)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	return streamable.ListenAndServe(ctx, *listen, mux, &streamable.ServeOptions{
		ShutdownTimeout: gracePeriod,
		OnListen:        func(a net.Addr) { fmt.Fprintf(stderr, "listening on http://%s/mcp\n", a) },
		OnShutdown:      h.Shutdown,
		Logger:          log,
	})
}
