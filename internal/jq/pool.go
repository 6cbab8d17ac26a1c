package jq

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// maxWorkers is how many workers there are at once.
	maxWorkers = 4
	// maxIdle is how long a worker that nobody uses lives.
	maxIdle = 30 * time.Second
)

// The workers of this process.
var (
	slots = make(chan struct{}, maxWorkers) // one for each worker that is in use

	mu   sync.Mutex
	idle []*worker // those that nobody uses, the last used at the end
)

// acquire returns a worker that nobody else uses, or nil if ctx ends before there is one or none can
// be started. release must be called afterwards, and says whether the worker can be used again.
func acquire(ctx context.Context) (w *worker, release func(reusable bool)) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}
	if ctx.Err() != nil {
		<-slots
		return nil, nil
	}
	if w = getIdle(); w == nil {
		var err error
		if w, err = start(); err != nil {
			<-slots
			return nil, nil
		}
	}
	return w, func(reusable bool) {
		if reusable {
			putIdle(w)
		} else {
			w.kill()
		}
		<-slots
	}
}

// checkStartable returns an error if there is no worker and none can be started.
func checkStartable() error {
	w := getIdle()
	if w == nil {
		var err error
		if w, err = start(); err != nil {
			return fmt.Errorf("the process that runs jq programs does not start: %w", err)
		}
	}
	putIdle(w)
	return nil
}

func getIdle() *worker {
	mu.Lock()
	defer mu.Unlock()
	for len(idle) > 0 {
		w := idle[len(idle)-1]
		idle = idle[:len(idle)-1]
		if w.idle.Stop() {
			return w
		}
		// Its time is up: the timer's function ends it.
	}
	return nil
}

func putIdle(w *worker) {
	mu.Lock()
	defer mu.Unlock()
	w.idle = time.AfterFunc(maxIdle, func() { expire(w) })
	idle = append(idle, w)
}

// expire ends a worker that nobody uses.
func expire(w *worker) {
	mu.Lock()
	idle = slices.DeleteFunc(idle, func(other *worker) bool { return other == w })
	mu.Unlock()
	w.kill()
}
