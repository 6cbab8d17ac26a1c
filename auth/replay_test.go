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

	"github.com/google/go-cmp/cmp"

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

// One owner cannot take the room of others.
func TestReplayQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := auth.NewMemoryReplayCache(64)
		var got []string
		once := func(owner, key string) {
			t.Helper()
			first, err := c.OnceForOwner(context.Background(), owner, key, 10*time.Second)
			got = append(got, fmt.Sprint(owner, " ", key, " ", first, " ", err))
		}
		for i := range 4 {
			once("hog", fmt.Sprint(i))
		}
		once("hog", "4")
		once("hog", "0") // known, quota or not
		once("other", "0")
		<-time.After(10 * time.Second)
		once("hog", "4")
		for i := range 62 {
			if first, err := c.Once(context.Background(), fmt.Sprint("nobody ", i), time.Minute); !first || err != nil {
				t.Fatalf("without an owner: %v, %v", first, err)
			}
		}
		once("other", "1")
		once("third", "1")
		<-time.After(time.Minute)
		once("third", "1")
		want := []string{
			"hog 0 true <nil>", "hog 1 true <nil>", "hog 2 true <nil>", "hog 3 true <nil>", "hog 4 false too many proofs of one key",
			"hog 0 false <nil>", "other 0 true <nil>", "hog 4 true <nil>", "other 1 true <nil>", "third 1 false replay cache is full", "third 1 true <nil>",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
