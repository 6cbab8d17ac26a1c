package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/demo"
	"mcpwire/server"
	"mcpwire/streamable"
)

const (
	// endpointName names the endpoint in the cluster.
	endpointName = "mcp"
	// leaveTimeout limits what follows after the last request: tasks, and the cluster.
	leaveTimeout = 5 * time.Second
)

func tokenOption(token string) nats.Option { return nats.Token(token) }

// newLogger returns the program's log.
func (f *nodeFlags) newLogger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.level}
	if f.logJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// serve runs the node until ctx ends. It returns an error if something was cut off.
func (f *nodeFlags) serve(ctx context.Context, stderr io.Writer) (err error) {
	log := f.newLogger(stderr)
	p := new(probes)
	if f.admin != "" {
		stop, err := p.listen(f.admin, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	backend, err := natscluster.Open(ctx, f.backendOptions(log))
	if err != nil {
		return err
	}
	defer backend.Close()
	node, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Name: f.name, Secrets: f.secrets, Logger: log})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if e := node.Leave(ctx); e != nil {
			log.Warn("the other nodes will notice only after some seconds that this one has stopped", "error", e)
		}
	}()
	h, srv, err := f.newHandler(ctx, node, log)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if e := srv.Close(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("tasks were cut off: %w", e))
		}
	}()
	p.serving(node)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	return streamable.ListenAndServe(ctx, f.listen, mux, &streamable.ServeOptions{
		ShutdownTimeout: f.drain,
		OnListen:        func(a net.Addr) { fmt.Fprintf(stderr, "listening on http://%s/mcp\n", a) },
		OnShutdown: func(ctx context.Context) error {
			p.drain()
			return h.Shutdown(ctx)
		},
		Logger: log,
	})
}

// newHandler returns the server's handler, joined to the node. If it fails, there is no server.
func (f *nodeFlags) newHandler(ctx context.Context, node *cluster.Node, log *slog.Logger) (*streamable.Handler, *server.Server, error) {
	so := &server.Options{Tasks: new(server.TaskOptions), Input: server.InputOptions{SingleUseState: true}, Logger: log}
	ho := &streamable.Options{Logger: log}
	if err := node.Share(ctx, endpointName, so, ho); err != nil {
		return nil, nil, err
	}
	srv, err := demo.New(version(), so)
	if err != nil {
		return nil, nil, err
	}
	if f.testTools {
		if err := demo.AddTestTools(srv, f.name); err != nil {
			return nil, nil, err
		}
	}
	h, err := streamable.NewHandler(srv, ho)
	return h, srv, err
}

// version returns the version of this program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
