package health_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"mcpwire/health"
)

func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	probes := health.New(ctx, health.Check{Name: "cache", Optional: true, Run: func(context.Context) error {
		return errors.New("no connection")
	}})
	probes.Start()
	w := httptest.NewRecorder()
	probes.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// 200 degraded
	// cache: no connection
}
