package server_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/server"
)

// TestSingleUse uses a state twice.
//
// Spec: S111
func TestSingleUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := respond(t, careful(t, &server.Options{SingleUseState: true}, &runs), modern, everything)
		first, err := c.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%+v, %v", r, err)
		}
		refused(t, "twice", c, &runs, "tools/call", retry(callT, who, first.state()))
		elapse(20 * time.Minute)
		refused(t, "twice, and expired", c, &runs, "tools/call", retry(callT, who, first.state()))
	})
}

// TestSingleUseWithMiddleware has a middleware try twice, which is one use.
func TestSingleUseWithMiddleware(t *testing.T) {
	runs := 0
	srv := careful(t, &server.Options{SingleUseState: true}, &runs)
	srv.Use(func(next server.HandlerFunc) server.HandlerFunc {
		return func(ctx context.Context, m *server.Message) (json.RawMessage, error) {
			if _, err := next(ctx, m); err != nil {
				return nil, err
			}
			return next(ctx, m)
		}
	})
	c := respond(t, srv, modern, everything)
	first, err := c.request(t.Context(), "tools/call", callT)
	if err != nil || first.ResultType != "input_required" {
		t.Fatalf("%+v, %v", first, err)
	}
	if r, err := c.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` || runs != 4 {
		t.Errorf("%+v, %v after %d runs", r, err, runs)
	}
	refused(t, "twice", c, &runs, "tools/call", retry(callT, who, first.state()))
}

// TestSingleUseOfLongLivedState has another process, with the same keys, give states a longer life: they are used up for all of it.
//
// Spec: S111
func TestSingleUseOfLongLivedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		keys := stateKeys(t, secret(1))
		long := respond(t, careful(t, &server.Options{StateKeys: keys, StateTTL: time.Hour}, &runs), modern, everything)
		short := respond(t, careful(t, &server.Options{StateKeys: keys, StateTTL: time.Minute, SingleUseState: true}, &runs), modern, everything)
		first, err := long.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := short.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` {
			t.Fatalf("%+v, %v", r, err)
		}
		for range 59 {
			elapse(time.Minute)
			refused(t, "twice", short, &runs, "tools/call", retry(callT, who, first.state()))
		}
	})
}
