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
	"syscall"
	"time"

	"mcpwire/mcp"
	"mcpwire/stdio"
	"mcpwire/streamable"
	"mcpwire/tools/conformance/fixtures"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "conformance server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("server", flag.ContinueOnError)
	fs.SetOutput(stderr)
	address := fs.String("http", "", "serve at `HOST:PORT`; with port 0 at a free one; without this flag on standard input and output")
	var revisions []mcp.Revision
	fs.Func("era", "speak only this `ERA`, legacy or modern; without this flag both", func(era string) (err error) {
		revisions, err = revisionsOf(era)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	srv, err := fixtures.New(fixtures.Options(log, revisions))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), gracePeriod)
		defer cancel()
		if err := srv.Close(ctx); err != nil {
			log.Warn("tasks are still running", "error", err)
		}
	}()
	if *address == "" {
		return (&stdio.Config{Logger: log}).Serve(ctx, srv)
	}
	return serveHTTP(ctx, *address, streamable.MustHandler(srv, &streamable.Options{Logger: log}), stdout)
}

// revisionsOf returns the revisions of an era.
func revisionsOf(era string) (of []mcp.Revision, err error) {
	if era != "legacy" && era != "modern" {
		return nil, errors.New("want legacy or modern")
	}
	for _, r := range mcp.Revisions() {
		if r.Modern() == (era == "modern") {
			of = append(of, r)
		}
	}
	return of, nil
}

// gracePeriod is how long requests in flight may continue after a termination signal.
const gracePeriod = time.Second

// serveHTTP serves at /mcp until ctx ends.
func serveHTTP(ctx context.Context, address string, handler *streamable.Handler, stdout io.Writer) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	fmt.Fprintf(stdout, "http://%s/mcp\n", net.JoinHostPort(host, port))
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), gracePeriod)
	defer cancel()
	// The suite leaves sessions and streams open, so close what doesn't end in time.
	if handler.Shutdown(end) != nil || server.Shutdown(end) != nil {
		if err := server.Close(); err != nil {
			return err
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
