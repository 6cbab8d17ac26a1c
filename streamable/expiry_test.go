package streamable

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

func TestWithExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := context.Background()
		ctx, cancel := withExpiry(auth.WithPrincipal(base, &auth.Principal{Expires: time.Now().Add(time.Minute)}))
		defer cancel()
		<-time.After(time.Minute - time.Nanosecond)
		synctest.Wait()
		if err := ctx.Err(); err != nil {
			t.Errorf("ended early: %v", err)
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		if err := context.Cause(ctx); !errors.Is(err, auth.ErrExpired) {
			t.Errorf("cause %v, want ErrExpired", err)
		}
		for _, c := range []context.Context{base, auth.WithPrincipal(base, &auth.Principal{})} {
			ctx, cancel := withExpiry(c)
			<-time.After(1000 * time.Hour)
			if ctx.Err() != nil {
				t.Errorf("ended without an expiry: %v", ctx.Err())
			}
			cancel()
			if ctx.Err() == nil {
				t.Error("cancel does nothing")
			}
		}
	})
}
