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

// An OwnedReplayCache is a [ReplayCache] that knows on whose behalf a key is noted, so that one owner
// cannot take the room of all others. A [Guard] prefers OnceForOwner where a cache has it.
type OwnedReplayCache interface {
	ReplayCache
	// OnceForOwner does what Once does, for an owner. Keys of different owners are different. ErrReplayQuota
	// refuses the request as one too many of its owner.
	OnceForOwner(ctx context.Context, owner, key string, ttl time.Duration) (bool, error)
}

// ErrReplayCacheFull is what a [MemoryReplayCache] returns when it cannot note any more.
var ErrReplayCacheFull = errors.New("replay cache is full")

// ErrReplayQuota is what a [MemoryReplayCache] returns when the owner has noted as much as one may. A
// [Guard] answers it with status 429.
var ErrReplayQuota = errors.New("too many proofs of one key")

// A MemoryReplayCache is an [OwnedReplayCache] for one process. What it has noted it never forgets too early: when it is full, it takes nothing more until
// something has run out. One owner gets a sixteenth of it; keys noted with Once have no owner, and may take all of it.
type MemoryReplayCache struct {
	max         int
	mu          sync.Mutex
	seen        map[[sha256.Size]byte]struct{}
	owners      map[[sha256.Size]byte]int // how many keys each has noted
	expirations replayHeap
}

// ownerShare is which part of the cache one owner may take.
const ownerShare = 16

// NewMemoryReplayCache returns a cache for max keys, of about 200 bytes each; 0 means
// 262,144, which is enough for 2000 proofs a second, and for 126 a second of one key.
func NewMemoryReplayCache(max int) *MemoryReplayCache {
	if max <= 0 {
		max = 1 << 18
	}
	return &MemoryReplayCache{max: max, seen: make(map[[sha256.Size]byte]struct{}), owners: make(map[[sha256.Size]byte]int)}
}

// Once implements [ReplayCache]. Its error is [ErrReplayCacheFull].
func (c *MemoryReplayCache) Once(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	return c.OnceForOwner(ctx, "", key, ttl)
}

// OnceForOwner implements [OwnedReplayCache]. Its error is [ErrReplayQuota] or [ErrReplayCacheFull]. An empty
// owner is none.
func (c *MemoryReplayCache) OnceForOwner(_ context.Context, owner, key string, ttl time.Duration) (bool, error) {
	now, digest := time.Now(), sha256.Sum256([]byte(owner+"\x00"+key))
	var ownerKey [sha256.Size]byte
	if owner != "" {
		ownerKey = sha256.Sum256([]byte(owner))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.expirations) > 0 && !now.Before(c.expirations[0].at) {
		c.evict(heap.Pop(&c.expirations).(replayExpiration))
	}
	if _, ok := c.seen[digest]; ok {
		return false, nil
	}
	if owner != "" && c.owners[ownerKey] >= max(c.max/ownerShare, 1) {
		return false, ErrReplayQuota
	}
	if len(c.seen) >= c.max {
		return false, ErrReplayCacheFull
	}
	c.seen[digest] = struct{}{}
	if owner != "" {
		c.owners[ownerKey]++
	}
	heap.Push(&c.expirations, replayExpiration{digest, ownerKey, now.Add(ttl)})
	return true, nil
}

// evict drops a key that has run out.
func (c *MemoryReplayCache) evict(e replayExpiration) {
	delete(c.seen, e.key)
	if c.owners[e.owner]--; c.owners[e.owner] <= 0 {
		delete(c.owners, e.owner)
	}
}

type replayExpiration struct {
	key   [sha256.Size]byte
	owner [sha256.Size]byte // zero if it has none
	at    time.Time
}

// replayHeap has what ends next at its root.
type replayHeap []replayExpiration

func (h replayHeap) Len() int           { return len(h) }
func (h replayHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h replayHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *replayHeap) Push(x any)        { *h = append(*h, x.(replayExpiration)) }
func (h *replayHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
