package wait

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !Sleep(t.Context(), time.Second) || time.Since(start) != time.Second {
			t.Errorf("slept %v, want a second", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if Sleep(ctx, time.Hour) || time.Since(start) != time.Second {
			t.Errorf("slept %v of a context that ended after a second", time.Since(start))
		}
	})
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		for _, d := range []time.Duration{time.Second, 0, -1} {
			start := time.Now()
			if Closed(done, d) || time.Since(start) != max(d, 0) {
				t.Errorf("Closed(open, %v) is true or took %v", d, time.Since(start))
			}
		}
		start := time.Now()
		time.AfterFunc(time.Second, func() { close(done) })
		if !Closed(done, time.Minute) || time.Since(start) != time.Second {
			t.Errorf("it is false or took %v", time.Since(start))
		}
		for _, d := range []time.Duration{time.Second, 0, -1} {
			if !Closed(done, d) {
				t.Errorf("Closed(closed, %v) is false", d)
			}
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		wg.Go(func() { time.Sleep(time.Second) })
		start := time.Now()
		if Timeout(time.Millisecond, wg.Wait) || time.Since(start) != time.Millisecond {
			t.Errorf("waited %v, want a millisecond and false", time.Since(start))
		}
		if !Timeout(time.Minute, wg.Wait) || time.Since(start) != time.Second {
			t.Errorf("waited %v, want a second and true", time.Since(start))
		}
	})
}

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		begin, ended := make(chan struct{}), make(chan struct{})
		if !g.Start(func() { <-begin }) {
			t.Error("Start before Wait: got false, want true")
		}
		go func() {
			g.Wait()
			close(ended)
		}()
		synctest.Wait()
		if g.Start(func() { t.Error("a goroutine started after Wait") }) {
			t.Error("Start after Wait: got true, want false")
		}
		select {
		case <-ended:
			t.Error("Wait returned before the goroutine")
		default:
		}
		close(begin)
		<-ended
	})
}

func TestBackoff(t *testing.T) {
	const least, most = 100 * time.Millisecond, 3 * time.Second
	var got []string
	for _, failures := range []int{0, 1, 2, 3, 5, 6, 7, 1 << 30} {
		got = append(got, fmt.Sprint(Backoff(least, most, failures, 0)))
	}
	want := []string{"100ms", "100ms", "200ms", "400ms", "1.6s", "3s", "3s", "3s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Backoff(least, most, 2, 0.5); got != 150*time.Millisecond {
		t.Errorf("with half the jitter: %v", got)
	}
	if got := Backoff(time.Hour, time.Second, 1, 0); got != time.Second {
		t.Errorf("least above most: %v", got)
	}
}

func TestSignal(t *testing.T) {
	c := make(chan struct{}, 1)
	for range 3 {
		Signal(c)
	}
	if len(c) != 1 {
		t.Errorf("%d elements, want 1", len(c))
	}
	Signal(nil) // does not block
}
