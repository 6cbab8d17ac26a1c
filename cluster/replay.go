package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/wait"
)

const (
	// maxReplayBytes limits the records of one replay cache: about 400,000 keys.
	maxReplayBytes = 128 << 20
	// maxReplayKeys limits the keys that a node counts by owner, and the keys of one owner at one
	// node to a sixteenth.
	maxReplayKeys      = 1 << 18
	maxReplayKeysOwner = maxReplayKeys / 16
	// maxAbandoned limits the keys that a node has yet to free after uses that failed.
	maxAbandoned = 1 << 12
)

// A replayCache is an auth.ReplayCache.
type replayCache struct {
	n       *Node
	records *records
	ttl     time.Duration

	mu sync.Mutex
	// owners counts the keys in used.
	owners map[string]int
	used   []usedKey
	// abandoned has the uses that failed and may have been recorded, in order, and tokens has
	// their tokens.
	abandoned []abandonedUse
	tokens    map[string]struct{}
	// wake has room for one. It is sent to when abandoned grows.
	wake chan struct{}
}

// A usedKey is a key that this node has recorded for an owner.
type usedKey struct {
	owner string
	at    time.Time
}

// An abandonedUse is a use that failed although it may have been recorded, or may still be. Its
// caller has not done what it wanted to do once, so the key must become free.
type abandonedUse struct {
	key   string
	token []byte
	// expires is when the record of the use expires by itself.
	expires time.Time
}

// ReplayCache returns a cache that all nodes share. Its Once decides which of several uses of a key
// is the first one in the cluster. It remembers keys for maxTTL, at least a second, and fails for a
// longer time; auth needs 130 seconds, and server.InputOptions its StateTTL. All nodes must use the
// same maxTTL for one name, which consists of lower-case letters, digits and hyphens.
//
// If Once fails, the key has not been used, and its caller may try again: at this node at once, at
// another one as soon as this node reaches the backend. A key remains used if the node stops before
// that.
func (n *Node) ReplayCache(ctx context.Context, name string, maxTTL time.Duration) (auth.ReplayCache, error) {
	r, err := n.records(ctx, "once-"+name, RecordsOptions{TTL: maxTTL, MaxBytes: maxReplayBytes})
	if err != nil {
		return nil, err
	}
	c := &replayCache{n: n, records: r, ttl: maxTTL, owners: make(map[string]int), tokens: make(map[string]struct{}), wake: make(chan struct{}, 1)}
	if !n.start(c.freeAbandoned) {
		return nil, ErrClosed
	}
	return c, nil
}

// Once implements [auth.ReplayCache]. It limits the keys that an owner uses at this node, with
// [auth.ErrReplayQuota].
func (c *replayCache) Once(ctx context.Context, owner, key string, ttl time.Duration) (bool, error) {
	if ttl > c.ttl {
		return false, fmt.Errorf("cluster: the replay cache remembers keys for %v, not %v", c.ttl, ttl)
	}
	if owner != "" {
		if err := c.count(digest(owner)); err != nil {
			return false, err
		}
	}
	use := abandonedUse{key: c.n.key("once", digest(owner, key)), token: append([]byte{format}, rand.Text()...), expires: time.Now().Add(c.ttl)}
	wrote := false
	value, _, err := c.records.update(ctx, use.key, func(old []byte) ([]byte, error) {
		if old != nil && !c.isFree(old) {
			return nil, errUsed
		}
		wrote = true
		return use.token, nil
	})
	switch {
	case err == errUsed:
		return false, nil
	case err != nil && wrote:
		c.abandon(use)
	}
	return bytes.Equal(value, use.token), err
}

// errUsed ends the update of a key that was used before.
var errUsed = fmt.Errorf("cluster: %w", ErrConflict)

// freeKey is the record of a key that an abandoned use may have had.
var freeKey = []byte{format}

// isFree reports whether a record means that nobody has used its key.
func (c *replayCache) isFree(value []byte) bool {
	if bytes.Equal(value, freeKey) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, abandoned := c.tokens[string(value)]
	return abandoned
}

// abandon frees the key of a use that failed, in the background.
func (c *replayCache) abandon(use abandonedUse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.abandoned) >= maxAbandoned {
		return // the key remains used
	}
	c.abandoned = append(c.abandoned, use)
	c.tokens[string(use.token)] = struct{}{}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// freeAbandoned frees the keys of abandoned uses until ctx ends.
func (c *replayCache) freeAbandoned(ctx context.Context) {
	for failures := 0; ; {
		use, ok := c.firstAbandoned()
		if !ok {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if time.Now().Before(use.expires) && c.free(ctx, use) != nil {
			failures++
			if !wait.Sleep(ctx, wait.Backoff(minBackoff, maxBackoff, failures, 0)) {
				return
			}
			continue
		}
		failures = 0
		c.mu.Lock()
		c.abandoned = slices.Delete(c.abandoned, 0, 1)
		delete(c.tokens, string(use.token))
		c.mu.Unlock()
	}
}

func (c *replayCache) firstAbandoned() (use abandonedUse, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.abandoned) == 0 {
		return use, false
	}
	return c.abandoned[0], true
}

// free frees the key of an abandoned use, unless another use has it. It writes the record even if
// the key is free: then a write of the abandoned use that is carried out later conflicts.
func (c *replayCache) free(ctx context.Context, use abandonedUse) error {
	rec, err := c.records.Get(ctx, use.key)
	switch {
	case errors.Is(err, ErrNotFound):
		rec = Record{}
	case err != nil:
		return err
	case !c.isFree(rec.Value):
		return nil
	}
	_, err = c.records.Put(ctx, use.key, freeKey, rec.Rev)
	return err
}

// count counts a key of an owner.
func (c *replayCache) count(owner string) error {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.used) > 0 && (now.Sub(c.used[0].at) >= c.ttl || len(c.used) >= maxReplayKeys) {
		if c.owners[c.used[0].owner]--; c.owners[c.used[0].owner] == 0 {
			delete(c.owners, c.used[0].owner)
		}
		c.used = c.used[1:]
	}
	if c.owners[owner] >= maxReplayKeysOwner {
		return auth.ErrReplayQuota
	}
	c.owners[owner]++
	c.used = append(c.used, usedKey{owner, now})
	return nil
}
