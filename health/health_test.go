package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mcpwire/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get returns the status and the body of a response.
func get(p *health.Probes, path string) string {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return fmt.Sprint(w.Code, " ", w.Body)
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var database, cluster error
		runs := 0
		p := health.New(ctx,
			health.Check{Name: "database", Run: func(context.Context) error { runs++; return database }},
			health.Check{Name: "cluster", Run: func(context.Context) error { return cluster }, Optional: true})
		check := func(what string, live, ready, startup string) {
			t.Helper()
			for path, want := range map[string]string{"/livez": live, "/readyz": ready, "/startupz": startup} {
				if diff := cmp.Diff(want+"\n", get(p, path)); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", what, path, diff)
				}
			}
			<-time.After(time.Second)
		}
		check("at first", "200 ok", "503 starting", "503 starting")
		if runs > 0 {
			t.Error("the checks run before the start")
		}
		p.Start()
		check("started", "200 ok", "200 ok", "200 ok")
		cluster = errors.New("no quorum")
		check("optional check", "200 ok", "200 degraded\ncluster: no quorum", "200 ok")
		database = errors.Join(errors.New("a"), errors.New("b"))
		check("check", "200 ok", "503 not ready\ndatabase: a; b\ncluster: no quorum", "200 ok")
		database, cluster = nil, nil
		check("again", "200 ok", "200 ok", "200 ok")
		stop()
		check("shutdown", "200 ok", "503 shutting down", "200 ok")
		if got := get(p, "/metrics"); got != "404 404 page not found\n" {
			t.Errorf("another path: got %s", got)
		}
	})
}

// TestChecksAreLimited checks that requests share the result of a check for a second, and that a
// blocked check fails.
func TestChecksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		p := health.New(t.Context(), health.Check{Name: "slow", Run: func(ctx context.Context) error {
			runs++
			<-ctx.Done()
			return ctx.Err()
		}})
		p.Start()
		start := time.Now()
		for range 10 {
			if got, want := get(p, "/readyz"), "503 not ready\nslow: context deadline exceeded\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if took := time.Since(start); runs != 1 || took != 800*time.Millisecond {
			t.Errorf("the check ran %d times in %v, want once in 800ms", runs, took)
		}
	})
}
