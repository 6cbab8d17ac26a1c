package cluster

import (
	"container/list"
	"fmt"
	"math"
	"sync"
	"time"
)

// maxLimited limits the keys that a Limiter counts. Beyond that it forgets the one used least
// recently.
const maxLimited = 1 << 16

// A Limiter limits how often something happens in the whole cluster, for each key. Each node
// enforces its share: the limit divided by the number of nodes. So a caller that uses one of three
// nodes gets a third, and one that uses all gets all of it.
type Limiter struct {
	n     *Node
	rate  float64
	burst int

	mu sync.Mutex
	// buckets has *limitBucket, the one used last at the back.
	buckets *list.List
	byKey   map[string]*list.Element
}

// A limitBucket is a token bucket of this node.
type limitBucket struct {
	key    string
	tokens float64
	at     time.Time
}

// Limiter returns a limiter for each key: up to burst at once, and rate in each second.
func (n *Node) Limiter(rate float64, burst int) (*Limiter, error) {
	if !(rate > 0) || math.IsInf(rate, 1) || burst < 1 {
		return nil, fmt.Errorf("cluster: limiter: the rate %v and the burst %d must be positive", rate, burst)
	}
	return &Limiter{n: n, rate: rate, burst: burst, buckets: list.New(), byKey: make(map[string]*list.Element)}, nil
}

// Take counts one use of key and reports whether the limit allows it. If not, wait is the time
// after which it will.
func (l *Limiter) Take(key string) (ok bool, wait time.Duration) {
	key, now, nodes := digest(key), time.Now(), l.n.members.count()
	rate, burst := l.rate/float64(nodes), max(float64(l.burst)/float64(nodes), 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byKey[key]
	if e == nil {
		if l.buckets.Len() >= maxLimited {
			oldest := l.buckets.Front()
			l.buckets.Remove(oldest)
			delete(l.byKey, oldest.Value.(*limitBucket).key)
		}
		e = l.buckets.PushBack(&limitBucket{key, burst, now})
		l.byKey[key] = e
	}
	l.buckets.MoveToBack(e)
	b := e.Value.(*limitBucket)
	b.tokens, b.at = min(b.tokens+rate*max(now.Sub(b.at).Seconds(), 0), burst), now
	if b.tokens < 1 {
		return false, time.Duration(math.Ceil((1 - b.tokens) / rate * 1e9))
	}
	b.tokens--
	return true, 0
}
