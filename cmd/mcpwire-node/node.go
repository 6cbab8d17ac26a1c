package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/demo"
	"mcpwire/health"
	"mcpwire/server"
	"mcpwire/streamable"
)

const (
	// endpointName names the endpoint in the cluster.
	endpointName = "mcp"
	endpointPath = "/mcp"
	// listening begins the line that the program prints when it serves.
	listening = "listening on http://"
	// catchUpTimeout limits the wait for what the other core nodes have stored.
	catchUpTimeout = 30 * time.Second
	// leaveTimeout limits what follows after the last request: tasks, and the cluster.
	leaveTimeout = 5 * time.Second
)

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
	m, err := newMetrics()
	if err != nil {
		return err
	}
	var node *cluster.Node // set before the probes run the check
	probes := health.New(ctx, health.Check{Name: "cluster", Optional: true, Run: func(ctx context.Context) error { return node.Check(ctx) }})
	if f.admin != "" {
		stop, err := serveAdmin(f.admin, probes, m, log)
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
	if len(f.secrets) == 0 {
		log.Warn("whoever can read what the nodes store can open all sessions: give all nodes the same secrets with --keys")
	}
	node, err = cluster.Join(ctx, backend, &cluster.NodeOptions{
		Name: f.name, Secrets: f.secrets, InsecureKeys: len(f.secrets) == 0, OnAppend: m.recordAppend, Logger: log,
	})
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
	if f.gateway != "" {
		return f.serveGateway(ctx, node, backend, m, probes, stderr, log)
	}
	h, srv, err := f.newHandler(ctx, node, m, log)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if e := srv.Close(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("canceled tasks have not ended: %w", e))
		}
	}()
	m.observe(node, h)
	catchUp(ctx, backend, log)
	return f.serveHTTP(ctx, h, func(ctx context.Context) error {
		err := h.Shutdown(ctx)
		if e := srv.WaitForTasks(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("tasks were cut off: %w", e))
		}
		return err
	}, func(a net.Addr) {
		probes.Start()
		fmt.Fprintf(stderr, listening+"%s%s\n", a, endpointPath)
	}, log)
}

// catchUp waits for what the other core nodes have stored.
func catchUp(ctx context.Context, backend *natscluster.Backend, log *slog.Logger) {
	ctx, stop := context.WithTimeout(ctx, catchUpTimeout)
	defer stop()
	if err := backend.WaitCurrent(ctx); err != nil {
		log.Warn("if another core node stops now, events may be lost", "error", err)
	}
}

// newHandler returns the server, and its handler, joined to the node.
func (f *nodeFlags) newHandler(ctx context.Context, node *cluster.Node, m *metrics, log *slog.Logger) (*streamable.Handler, *server.Server, error) {
	so := &server.Options{Tasks: new(server.TaskOptions), Input: server.InputOptions{SingleUseState: true}, Logger: log}
	ho := &streamable.Options{Hosts: f.hosts, Limits: streamable.Limits{MaxSessions: f.maxSessions}, Logger: log}
	if err := node.Share(ctx, endpointName, so, ho); err != nil {
		return nil, nil, err
	}
	srv, err := demo.New(build.Version(), so)
	if err != nil {
		return nil, nil, err
	}
	srv.Use(m.telemetry.Middleware)
	if f.testTools {
		if err := demo.AddTestTools(srv, f.name); err != nil {
			return nil, nil, err
		}
	}
	h, err := streamable.NewHandler(srv, ho)
	return h, srv, err
}

// serveHTTP serves h until ctx ends, and then as long as the flags say.
func (f *nodeFlags) serveHTTP(ctx context.Context, h http.Handler, onShutdown func(context.Context) error, onListen func(net.Addr), log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle(endpointPath, h)
	o := &streamable.ServeOptions{
		AllowRemote:   f.insecure,
		ShutdownDelay: f.drainDelay, ShutdownTimeout: f.drain, OnShutdown: onShutdown,
		OnListen: onListen, Logger: log,
	}
	if f.watch {
		return f.serveWatched(ctx, mux, o, onListen, log)
	}
	return streamable.ListenAndServe(ctx, f.listen, mux, o)
}
