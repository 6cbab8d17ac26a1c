package auth

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

// A ReplayCache remembers what was used, so that nothing is used twice. Several processes that serve one resource must share one, or a proof that was
// used at one can be used again at another.
//
// Once notes key, which must be remembered for at least ttl, and returns whether it is the first to note it in that time. Of several calls at
// once with the same key exactly one gets true. An error means that it is not known; then the request is refused. It may be called by many goroutines
// at once.
type ReplayCache interface {
	Once(ctx context.Context, key string, ttl time.Duration) (bool, error)
}

// ErrReplayCacheFull is what [MemoryReplayCache.Once] returns when it cannot note any more.
var ErrReplayCacheFull = errors.New("replay cache is full")

// A MemoryReplayCache is a [ReplayCache] for one process. What it has noted it never forgets too early: when it is full, it takes nothing more until
// something has run out.
type MemoryReplayCache struct {
	max  int
	mu   sync.Mutex
	seen map[[sha256.Size]byte]struct{}
	ends replayHeap
}

// NewMemoryReplayCache returns a cache for max keys, of about 150 bytes each; 0 means 262,144, which is enough for 2000 proofs a second.
func NewMemoryReplayCache(max int) *MemoryReplayCache {
	if max <= 0 {
		max = 1 << 18
	}
	return &MemoryReplayCache{max: max, seen: make(map[[sha256.Size]byte]struct{})}
}

// Once implements [ReplayCache]. Its error is [ErrReplayCacheFull].
func (c *MemoryReplayCache) Once(_ context.Context, key string, ttl time.Duration) (bool, error) {
	now, digest := time.Now(), sha256.Sum256([]byte(key))
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ends) > 0 && !now.Before(c.ends[0].at) {
		delete(c.seen, heap.Pop(&c.ends).(replayEnd).key)
	}
	if _, ok := c.seen[digest]; ok {
		return false, nil
	}
	if len(c.seen) >= c.max {
		return false, ErrReplayCacheFull
	}
	c.seen[digest] = struct{}{}
	heap.Push(&c.ends, replayEnd{digest, now.Add(ttl)})
	return true, nil
}

type replayEnd struct {
	key [sha256.Size]byte
	at  time.Time
}

// replayHeap has what ends next at its root.
type replayHeap []replayEnd

func (h replayHeap) Len() int           { return len(h) }
func (h replayHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h replayHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *replayHeap) Push(x any)        { *h = append(*h, x.(replayEnd)) }
func (h *replayHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
