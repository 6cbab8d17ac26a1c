package policy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/internal/rpc/relay"
)

func as(ctx context.Context, subject string) context.Context {
	return auth.WithPrincipal(ctx, &auth.Principal{Issuer: "i", Subject: subject})
}

// admit returns the release of an admitted call, or the error.
func admit(t *testing.T, l *Limits, ctx context.Context, upstream string) (func(), *relay.RejectedError) {
	t.Helper()
	release, err := l.Admit(ctx, upstream)
	if err == nil {
		return release, nil
	}
	rejected, ok := errors.AsType[*relay.RejectedError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return nil, rejected
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(LimitOptions{Caller: Limit{Rate: 2, Burst: 3}})
		alice, bob := as(t.Context(), "alice"), as(t.Context(), "bob")
		for range 3 {
			if release, err := admit(t, l, alice, "a"); err != nil {
				t.Fatal(err)
			} else {
				release()
			}
		}
		_, err := admit(t, l, alice, "b")
		want := &relay.RejectedError{Status: 429, RetryAfter: time.Second / 2, Reason: "too many calls: the limit is 2 a second"}
		if diff := cmp.Diff(want, err); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		if _, err := admit(t, l, bob, "a"); err != nil {
			t.Errorf("another caller: %v", err)
		}
		time.Sleep(err.RetryAfter)
		if _, err := admit(t, l, alice, "a"); err != nil {
			t.Errorf("after the delay: %v", err)
		}
		if _, err := admit(t, l, alice, "a"); err == nil {
			t.Error("second call after the delay: got no error")
		}
	})
}

func TestConcurrency(t *testing.T) {
	l := NewLimits(LimitOptions{Caller: Limit{Concurrent: 2}, Upstreams: map[string]Limit{"a": {Concurrent: 3}}})
	alice, bob := as(t.Context(), "alice"), as(t.Context(), "bob")
	var releases []func()
	for _, ctx := range []context.Context{alice, alice, bob} {
		release, err := admit(t, l, ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	_, err := admit(t, l, alice, "big")
	if diff := cmp.Diff(&relay.RejectedError{Status: 429, RetryAfter: time.Second, Reason: "too many calls: 2 are in flight"}, err); diff != "" {
		t.Errorf("caller (-want +got):\n%s", diff)
	}
	_, err = admit(t, l, bob, "a")
	if diff := cmp.Diff(&relay.RejectedError{Status: 503, RetryAfter: time.Second, Reason: "too many calls to a by all clients: 3 are in flight"}, err); diff != "" {
		t.Errorf("upstream (-want +got):\n%s", diff)
	}
	if release, err := admit(t, l, bob, "big"); err != nil {
		t.Errorf("another upstream: %v", err)
	} else {
		release()
	}
	releases[0]()
	if _, err := admit(t, l, bob, "a"); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

// TestRejectedCallsAreFree checks that a call that the upstream's limit rejects does not count
// against its caller's limit.
func TestRejectedCallsAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(LimitOptions{Caller: Limit{Rate: 1, Burst: 2}, Upstreams: map[string]Limit{"a": {Rate: 1}}})
		ctx := as(t.Context(), "alice")
		if _, err := admit(t, l, ctx, "a"); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := admit(t, l, ctx, "a"); err == nil || err.Status != 503 {
				t.Fatalf("got %v", err)
			}
		}
		if _, err := admit(t, l, ctx, "b"); err != nil {
			t.Errorf("the caller's second call: got %v", err)
		}
	})
}

// TestManyCallers checks that idle callers are evicted, that callers with calls in flight are not,
// and that callers above the maximum share one limit.
func TestManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(LimitOptions{Caller: Limit{Rate: 1, Burst: 1}})
		for i := range maxCallers + 10 {
			_, err := admit(t, l, as(t.Context(), fmt.Sprint(i)), "a")
			if rejected := err != nil; rejected != (i > maxCallers) { // the shared limit admits one call
				t.Fatalf("caller %d: %v", i, err)
			}
		}
		if n := len(l.callers); n != maxCallers {
			t.Errorf("%d tracked callers, want %d", n, maxCallers)
		}
		// All calls are still in flight, so no caller is idle.
		time.Sleep(time.Hour)
		if admit(t, l, as(t.Context(), "new"), "a"); len(l.callers) != maxCallers {
			t.Errorf("%d tracked callers, want %d", len(l.callers), maxCallers)
		}
		for _, e := range l.callers {
			e.Value.(*limited).inFlight = 0
		}
		for i := range 100 {
			if _, err := admit(t, l, as(t.Context(), fmt.Sprint("later ", i)), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(l.callers); n != maxCallers-100 {
			t.Errorf("%d tracked callers, want %d", n, maxCallers-100)
		}
	})
}

func TestAddressIsCaller(t *testing.T) {
	l := NewLimits(LimitOptions{Caller: Limit{Concurrent: 1}})
	var srv relay.Server
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		if _, err := admit(t, l, srv.WithIdentity(t.Context(), "", address), "a"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := admit(t, l, srv.WithIdentity(t.Context(), "", "192.0.2.1"), "a"); err == nil {
		t.Error("second call of one address: got no error")
	}
}
