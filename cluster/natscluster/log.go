package natscluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
)

const (
	// shards is the number of streams of a log. Each has its own leader, so that the loss of one
	// server stops only some of them. It must be the same at all nodes.
	shards = 8
	// followPoll is the interval of reads of a follower, since messages may be lost.
	followPoll = 2 * time.Second
	// maxReadBytes limits the bytes of one read.
	maxReadBytes = 4 << 20
	// followPending limits the entries that wait for a follower. Beyond that it reads them.
	followPending = 256
	retryDelay    = 10 * time.Millisecond
)

// log is a log: a stream for each shard. It publishes each stored message again, for followers.
type log struct {
	b    *Backend
	name string
}

// Log implements [cluster.Backend].
func (b *Backend) Log(ctx context.Context, name string, o cluster.LogOptions) (cluster.Log, error) {
	if err := coordination.CheckName(name); err != nil {
		return nil, err
	}
	l := &log{b, name}
	maxAge := cmp.Or(o.MaxAge, time.Hour)
	errs := make([]error, shards)
	var wg sync.WaitGroup
	for i := range shards {
		at := shard{l, i}
		wg.Go(func() {
			errs[i] = b.stream(ctx, jetstream.StreamConfig{
				Name: at.stream(), Subjects: []string{at.subject() + ">"}, Storage: storage(o.Durable),
				MaxAge: maxAge, MaxBytes: cmp.Or(o.MaxBytes, defaultBytes) / shards, MaxMsgs: -1, MaxMsgSize: minPayload,
				MaxMsgsPerSubject: int64(cmp.Or(o.MaxEntries, 1000)), Discard: jetstream.DiscardOld, Duplicates: dedup(maxAge),
				AllowDirect: true, // for reads of several messages; see readBatch
				RePublish:   &jetstream.RePublish{Source: at.subject() + ">", Destination: at.stored() + ">"},
			})
		})
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, fmt.Errorf("open log %s: %w", name, err)
	}
	return l, nil
}

// A shard is one stream of a log.
type shard struct {
	l     *log
	index int
}

func (l *log) shard(group string) shard {
	h := fnv.New32a()
	h.Write([]byte(group))
	return shard{l, int(h.Sum32() % shards)}
}

func (s shard) stream() string {
	return fmt.Sprintf("%s_l_%s_%d", s.l.b.opts.Prefix, s.l.name, s.index)
}

// subject begins the subjects of messages.
func (s shard) subject() string {
	return fmt.Sprintf("%s.l.%s.%d.", s.l.b.opts.Prefix, s.l.name, s.index)
}

// stored begins the subjects under which stored messages are published again.
func (s shard) stored() string {
	return fmt.Sprintf("%s.s.%s.%d.", s.l.b.opts.Prefix, s.l.name, s.index)
}

// suffix is the end of the subjects of a key.
func suffix(k cluster.LogKey) string { return k.Group + "." + k.Name }

func checkKey(k cluster.LogKey) error {
	if strings.Contains(k.Name, ".") {
		return fmt.Errorf("natscluster: invalid name %q of a sequence: it has a dot", k.Name)
	}
	return coordination.CheckKey(k.Group, k.Name)
}

// Append implements [cluster.Log].
func (l *log) Append(ctx context.Context, key cluster.LogKey, id string, data []byte) (uint64, error) {
	if err := cmp.Or(ctx.Err(), checkKey(key), coordination.CheckValue(data)); err != nil {
		return 0, err
	}
	s := l.shard(key.Group)
	var opts []jetstream.PublishOpt
	if id != "" {
		opts = append(opts, jetstream.WithMsgID(suffix(key)+" "+id))
	}
	return l.b.append(ctx, s.stream(), &nats.Msg{Subject: s.subject() + suffix(key), Data: data}, opts...)
}

// Read implements [cluster.Log]. The leader says which entry is the last one; any replica may
// return the entries up to that.
func (l *log) Read(ctx context.Context, key cluster.LogKey, after uint64, limit int) ([]cluster.Entry, error) {
	if err := cmp.Or(ctx.Err(), checkKey(key)); err != nil {
		return nil, err
	}
	s := l.shard(key.Group)
	subject := s.subject() + suffix(key)
	for {
		last, err := l.b.get(ctx, s.stream(), getRequest{LastFor: subject})
		switch {
		case errors.Is(err, errNoMessage) && after > 0:
			return nil, cluster.ErrGone
		case errors.Is(err, errNoMessage):
			return nil, nil
		case err != nil:
			return nil, err
		case last.Seq < after:
			return nil, cluster.ErrGone
		case last.Seq == after || limit <= 0:
			return nil, nil
		}
		entries, err := s.readBatch(ctx, subject, after, limit)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		if !wait.Sleep(ctx, retryDelay) { // the replica is behind
			return nil, ctx.Err()
		}
	}
}

// readBatch reads from any replica. It returns no entries if the replica is behind.
func (s shard) readBatch(ctx context.Context, subject string, after uint64, limit int) ([]cluster.Entry, error) {
	b := s.l.b
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, mapError(ctx, err)
	}
	defer sub.Unsubscribe() // fails only if the connection is closed
	// The first message must be the entry after itself: then nothing behind it was evicted.
	text, err := json.Marshal(&getRequest{Seq: max(after, 1), NextFor: subject, Batch: limit + 1, MaxBytes: maxReadBytes})
	if err != nil {
		return nil, err
	}
	if err := b.nc.PublishRequest("$JS.API.DIRECT.GET."+s.stream(), inbox, text); err != nil {
		return nil, mapError(ctx, err)
	}
	var entries []cluster.Entry
	for first := true; ; first = false {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, mapError(ctx, err)
		}
		if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
			switch {
			case status == "204" && !first, status == "404" && after == 0:
				return entries[:min(len(entries), limit)], nil
			case status == "404":
				return nil, s.checkGone(ctx, subject, after)
			}
			return nil, fmt.Errorf("%w: status %s %s", cluster.ErrUnavailable, status, m.Header.Get("Description"))
		}
		seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("natscluster: invalid message of NATS: %w", err)
		}
		switch {
		case first && after > 0 && seq != after:
			return nil, s.checkGone(ctx, subject, after)
		case seq > after:
			entries = append(entries, cluster.Entry{Seq: seq, Data: m.Data})
		}
	}
}

// checkGone returns ErrGone unless the leader has an entry that a replica does not have.
func (s shard) checkGone(ctx context.Context, subject string, seq uint64) error {
	m, err := s.l.b.get(ctx, s.stream(), getRequest{Seq: seq})
	if errors.Is(err, errNoMessage) || err == nil && m.Subject != subject {
		return cluster.ErrGone
	}
	return err
}

// Follow implements [cluster.Log].
func (l *log) Follow(ctx context.Context, key cluster.LogKey, after uint64) iter.Seq2[cluster.Entry, error] {
	return func(yield func(cluster.Entry, error) bool) {
		if err := cmp.Or(ctx.Err(), checkKey(key)); err != nil {
			yield(cluster.Entry{}, err)
			return
		}
		sub, err := l.b.nc.SubscribeSync(l.shard(key.Group).stored() + suffix(key))
		if err == nil {
			defer sub.Unsubscribe() // fails only if the connection is closed
			err = sub.SetPendingLimits(followPending, maxReadBytes)
		}
		if err != nil {
			yield(cluster.Entry{}, mapError(ctx, err))
			return
		}
		f := &follower{l: l, key: key, after: after, sub: sub}
		for read := true; ; {
			var entries []cluster.Entry
			if read {
				entries, err = f.read(ctx)
				read = len(entries) > 0
			} else {
				entries, read, err = f.wait(ctx)
			}
			if err != nil {
				yield(cluster.Entry{}, err)
				return
			}
			for _, e := range entries {
				if f.after = e.Seq; !yield(e, nil) {
					return
				}
			}
		}
	}
}

// A follower is a running Follow.
type follower struct {
	l     *log
	key   cluster.LogKey
	after uint64
	sub   *nats.Subscription
}

// read reads the entries behind those that the follower had.
func (f *follower) read(ctx context.Context) ([]cluster.Entry, error) {
	call, cancel := context.WithTimeout(ctx, coordination.CallTimeout)
	defer cancel()
	entries, err := f.l.Read(call, f.key, f.after, followPending)
	if err != nil && call.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
	}
	return entries, err
}

// wait waits for a new entry. read means that entries may be missing, or were not looked for in a
// while.
func (f *follower) wait(ctx context.Context) (entries []cluster.Entry, read bool, err error) {
	poll, cancel := context.WithTimeout(ctx, followPoll)
	defer cancel()
	m, err := f.sub.NextMsgWithContext(poll)
	switch {
	case ctx.Err() != nil:
		return nil, false, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrSlowConsumer):
		return nil, true, nil
	case err != nil:
		return nil, false, mapError(ctx, err)
	}
	seq, _ := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	switch {
	case seq == 0 || err != nil:
		return nil, false, fmt.Errorf("natscluster: invalid message of NATS: %v", m.Header)
	case seq <= f.after:
		return nil, false, nil
	case last == f.after:
		return []cluster.Entry{{Seq: seq, Data: m.Data}}, false, nil
	}
	return nil, true, nil
}

// Drop implements [cluster.Log].
func (l *log) Drop(ctx context.Context, group string) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(group)); err != nil {
		return err
	}
	s := l.shard(group)
	response, err := l.b.callAPI(ctx, "STREAM.PURGE."+s.stream(), map[string]string{"filter": s.subject() + group + ".*"})
	if err != nil {
		return err
	}
	if response.Error != nil {
		l.b.mayCome(s.stream(), response.Error)
		return mapError(ctx, response.Error)
	}
	return nil
}
