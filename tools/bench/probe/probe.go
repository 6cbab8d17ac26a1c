//go:build unix

// Package probe is what the HTTP servers of the benchmark let the outside do
// with them: end them by SIGTERM, have them collect their garbage by SIGUSR1, and
// profile them, with the flag -cpuprofile.
package probe

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"
)

var profile = flag.String("cpuprofile", "", "write a CPU profile to this `file`")

// Run calls serve with a context that ends when the process is to end. The
// flags must have been parsed.
func Run(serve func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	collect := make(chan os.Signal, 1)
	signal.Notify(collect, syscall.SIGUSR1)
	defer signal.Stop(collect)
	go func() {
		for {
			select {
			case <-collect:
				runtime.GC() // what is in a sync.Pool lasts for two collections
				debug.FreeOSMemory()
			case <-ctx.Done():
				return
			}
		}
	}()
	if *profile == "" {
		return serve(ctx)
	}
	f, err := os.Create(*profile)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = serve(ctx)
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// Serve serves h at /mcp with an unmodified net/http server until ctx ends.
func Serve(ctx context.Context, addr string, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	srv := &http.Server{Addr: addr, Handler: mux}
	done := make(chan error, 1)
	go func() { done <- srv.ListenAndServe() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if srv.Shutdown(wait) != nil { // streams do not end by themselves
		return srv.Close()
	}
	return nil
}
