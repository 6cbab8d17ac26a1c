package auth_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

func TestMemoryReplayCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := auth.NewMemoryReplayCache(3)
		once := func(key string, ttl time.Duration, want bool, wantErr error) {
			t.Helper()
			if got, err := c.Once(context.Background(), key, ttl); got != want || !errors.Is(err, wantErr) {
				t.Errorf("Once(%q) = %v, %v, want %v, %v", key, got, err, want, wantErr)
			}
		}
		once("a", 10*time.Second, true, nil)
		once("b", 5*time.Second, true, nil)
		once("c", 20*time.Second, true, nil)
		once("a", time.Second, false, nil)
		once("d", time.Second, false, auth.ErrReplayCacheFull)
		once("b", time.Second, false, nil) // known, full or not
		<-time.After(5 * time.Second)
		once("d", time.Second, true, nil)
		once("b", time.Second, false, auth.ErrReplayCacheFull)
		<-time.After(5*time.Second - time.Nanosecond)
		once("a", time.Second, false, nil)
		<-time.After(time.Nanosecond)
		once("a", time.Second, true, nil)
		once("c", time.Second, false, nil)
	})
}

func TestMemoryReplayCacheRace(t *testing.T) {
	c := auth.NewMemoryReplayCache(0)
	var wins atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				if first, err := c.Once(context.Background(), fmt.Sprint(i), time.Hour); err != nil {
					t.Error(err)
				} else if first {
					wins.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if wins.Load() != 100 {
		t.Errorf("%d were the first, want 100", wins.Load())
	}
}
