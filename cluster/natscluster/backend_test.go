package natscluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/test/buffer"
)

var quiet = slog.New(slog.DiscardHandler)

// openTest opens a backend that is closed at the end of the test.
func openTest(t testing.TB, o natscluster.Options) *natscluster.Backend {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	b, err := natscluster.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// freePorts returns addresses with unused ports.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	addresses, err := loopback.FreeAddresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

// core returns the options of one of several core nodes.
func core(t testing.TB, dir string, routes []string, i int) natscluster.Options {
	return natscluster.Options{Logger: quiet, Embed: &natscluster.Embed{
		Name: fmt.Sprint("n", i), Dir: filepath.Join(dir, fmt.Sprint("n", i)), Routes: routes, Listen: routes[i],
	}}
}

// openThree opens three core nodes.
func openThree(t testing.TB, dir string) (all []*natscluster.Backend, routes []string) {
	t.Helper()
	routes = freePorts(t, 3)
	all = make([]*natscluster.Backend, 3)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			var err error
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			if all[i], err = natscluster.Open(ctx, core(t, dir, routes, i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, b := range all {
			if b != nil {
				wg.Go(b.Close)
			}
		}
		wg.Wait()
	})
	if t.Failed() {
		t.FailNow()
	}
	return all, routes
}

func TestAlone(t *testing.T) {
	t.Parallel()
	clustertest.Run(t, func(t *testing.T) (a, b cluster.Backend) {
		n := openTest(t, natscluster.Options{Embed: &natscluster.Embed{Dir: t.TempDir()}})
		return n, n
	})
}

func TestThree(t *testing.T) {
	t.Parallel()
	clustertest.Run(t, func(t *testing.T) (a, b cluster.Backend) {
		all, _ := openThree(t, t.TempDir())
		return all[0], all[1]
	})
}

// TestExternal runs against a server that this package did not start.
func TestExternal(t *testing.T) {
	t.Parallel()
	clustertest.Run(t, func(t *testing.T) (a, b cluster.Backend) {
		url := external(t)
		return openTest(t, natscluster.Options{URL: url}), openTest(t, natscluster.Options{URL: url})
	})
}

// A logText is a log whose text tests read.
type logText struct{ buffer.Buffer }

func (l *logText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logText) has(text string) bool { return strings.Contains(l.String(), text) }
