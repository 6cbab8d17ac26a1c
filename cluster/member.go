package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	beatInterval = time.Second
	// maxBeat limits an attempt to write a beat, so that several fit into the time in which a node
	// or a lease is lost.
	maxBeat = 400 * time.Millisecond
	// maxMissed is the number of beats of this node after which a node without a beat is gone.
	maxMissed = 3
	// membersTTL removes the records of nodes that did not leave in order.
	membersTTL = time.Minute
	// maxMembers limits the nodes that a node knows.
	maxMembers = 10_000
	// maxName limits NodeOptions.Name, in bytes.
	maxName    = 200
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A Member is a node as the others see it.
type Member struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// memberRecord is the record of a node. Its key is the tenant and the node's id.
type memberRecord struct {
	Member
	// Beat counts the writes.
	Beat uint64 `json:"beat"`
}

// members knows which nodes are there. Time does not decide that, since a process that was
// suspended, or a backend that was away, would declare everyone gone. It counts the beats of its
// own that came back through the watch: each is one chance for the others to beat, too.
type members struct {
	n       *Node
	records *records
	// joined is closed when the watch has first yielded a beat of this node.
	joined chan struct{}

	mu  sync.Mutex
	all map[string]*member
	// seen is when the last beat of this node came back.
	seen    time.Time
	changed chan struct{}
	// missing has the nodes that a new watch has not yielded yet. It is nil once the watch is
	// complete.
	missing map[string]bool
}

type member struct {
	memberRecord
	// missed counts the beats of this node since the member's last one.
	missed int
	// gone means that missed reached maxMissed.
	gone bool
}

func newMembers(ctx context.Context, n *Node) (*members, error) {
	r, err := n.records(ctx, "nodes", RecordsOptions{TTL: membersTTL})
	if err != nil {
		return nil, err
	}
	return &members{n: n, records: r, joined: make(chan struct{}), all: make(map[string]*member), changed: make(chan struct{})}, nil
}

func (m *members) key() string { return m.n.tenant + "." + m.n.id }

// beat writes the node's record every second until the node is closed.
func (m *members) beat(ctx context.Context) {
	rec := memberRecord{Member: Member{m.n.id, m.n.opts.Name}}
	var rev uint64
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for {
		rec.Beat++
		value, err := encode(&rec)
		if err == nil {
			rev, err = m.write(ctx, value, rev)
		}
		if err != nil && ctx.Err() == nil {
			m.n.opts.Logger.Warn("the cluster does not see this node", "node", m.n.id, "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// write writes the record, which only this node does.
func (m *members) write(ctx context.Context, value []byte, rev uint64) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxBeat, errCallTimeout)
	defer cancel()
	next, err := m.records.Put(ctx, m.key(), value, rev)
	if !errors.Is(err, ErrConflict) {
		if err != nil {
			next = rev
		}
		return next, err
	}
	// The record has expired, or a failed write was carried out.
	_, next, err = m.records.update(ctx, m.key(), func([]byte) ([]byte, error) { return value, nil })
	return next, err
}

// watch keeps all up to date until the node is closed.
func (m *members) watch(ctx context.Context) {
	m.n.follow(ctx, m.records, "the cluster", m.restart, m.see, func() {})
}

// restart begins a new watch.
func (m *members) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = make(map[string]bool)
	for id := range m.all {
		m.missing[id] = true
	}
}

// see takes in a change of a record.
func (m *members) see(c Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := strings.TrimPrefix(c.Key, m.n.tenant+".")
	switch c.Kind {
	case ChangeSynced:
		for id := range m.missing {
			m.removeLocked(id)
		}
		m.missing = nil
		m.joinedLocked()
	case ChangeDelete:
		m.removeLocked(id)
	case ChangePut:
		delete(m.missing, id)
		var rec memberRecord
		if err := decode(c.Value, &rec); err != nil || rec.ID != id {
			m.n.opts.Logger.Error("the record of a node is invalid", "node", id, "error", err)
			return
		}
		m.beatLocked(rec)
	}
}

// beatLocked takes in a beat.
func (m *members) beatLocked(rec memberRecord) {
	mb := m.all[rec.ID]
	switch {
	case mb == nil && len(m.all) >= maxMembers:
		return
	case mb == nil:
		mb = &member{memberRecord: rec}
		m.all[rec.ID] = mb
		m.changedLocked()
	case mb.Beat == rec.Beat:
		return
	}
	mb.memberRecord, mb.missed = rec, 0
	if mb.gone {
		mb.gone = false
		m.changedLocked()
	}
	if rec.ID != m.n.id {
		return
	}
	m.seen = time.Now()
	for id, other := range m.all {
		switch other.missed++; {
		case id == m.n.id:
			other.missed = 0
		case !other.gone && other.missed > maxMissed:
			other.gone = true
			m.changedLocked()
		case other.missed > int(membersTTL/beatInterval): // its record has expired
			delete(m.all, id)
		}
	}
	m.joinedLocked()
}

// joinedLocked closes joined if this node and all that were there are in all.
func (m *members) joinedLocked() {
	select {
	case <-m.joined:
	default:
		if m.missing == nil && m.all[m.n.id] != nil {
			close(m.joined)
		}
	}
}

func (m *members) removeLocked(id string) {
	if mb := m.all[id]; mb != nil && id != m.n.id {
		delete(m.all, id)
		if !mb.gone {
			m.changedLocked()
		}
	}
}

func (m *members) changedLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// silence returns the time since a beat of this node came back.
func (m *members) silence() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.seen)
}

// count returns the number of nodes, at least 1.
func (m *members) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := 0
	for _, mb := range m.all {
		if !mb.gone {
			count++
		}
	}
	return max(count, 1)
}

// Members returns the nodes of the cluster, in order of their ids, and a channel that is closed
// when that changes. A node that does not leave in order counts as gone when it has missed three
// beats, after about four seconds; until then a node that has joined meanwhile may see it, too.
// While this node does not reach the backend, nothing changes.
func (n *Node) Members() (list []Member, changed <-chan struct{}) {
	m := n.members
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mb := range m.all {
		if !mb.gone {
			list = append(list, mb.Member)
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return list, m.changed
}

// A coordinator is the [coordination.Node] of a Node.
type coordinator struct{ *Node }

// HasMember implements [coordination.Node].
func (n coordinator) HasMember(id string) bool {
	n.members.mu.Lock()
	defer n.members.mu.Unlock()
	mb := n.members.all[id]
	return mb != nil && !mb.gone
}
