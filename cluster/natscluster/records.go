package natscluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
)

const (
	// deletedHeader marks the message that replaces a deleted record, for those who watch.
	deletedHeader = "Mcpwire-Deleted"
	// deletedTTL is how long such a message is kept.
	deletedTTL = time.Minute
	// writeHeader is a header whose value differs for each write.
	writeHeader = "Mcpwire-Write"
	// absentKey is the end of the subject to which Absent writes. It is not a valid key.
	absentKey = "~absent"
	// heartbeat is the interval at which a server sends heartbeats to a watch.
	heartbeat = time.Second
	// maxSilence is the time without a message or a heartbeat after which a watch ends.
	maxSilence   = 3 * heartbeat
	defaultBytes = 64 << 20
)

// records is a bucket: a stream with one message for each key.
type records struct {
	b      *Backend
	stream string
	// subject begins the subjects of all records. It ends with a dot.
	subject string
}

// Records implements [cluster.Backend].
func (b *Backend) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	if err := coordination.CheckName(name); err != nil {
		return nil, err
	}
	r := &records{b: b, stream: b.opts.Prefix + "_r_" + name, subject: b.opts.Prefix + ".r." + name + "."}
	err := b.stream(ctx, jetstream.StreamConfig{
		Name: r.stream, Subjects: []string{r.subject + ">"}, Storage: storage(o.Durable),
		MaxAge: o.TTL, MaxBytes: cmp.Or(o.MaxBytes, defaultBytes), MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxMsgSize: minPayload,
		// Not AllowDirect: other replicas than the leader may be far behind.
		Discard: jetstream.DiscardNew, AllowMsgTTL: true, Duplicates: dedup(o.TTL),
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	return r, nil
}

// find returns the message with a key, also one that marks a deleted record, or nil.
func (r *records) find(ctx context.Context, key string) (*storedMsg, error) {
	m, err := r.b.get(ctx, r.stream, getRequest{LastFor: r.subject + key})
	if errors.Is(err, errNoMessage) {
		return nil, nil
	}
	return m, err
}

func (m *storedMsg) isDeleted() bool { return bytes.Contains(m.Header, []byte(deletedHeader)) }

// Get implements [cluster.Records].
func (r *records) Get(ctx context.Context, key string) (cluster.Record, error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key)); err != nil {
		return cluster.Record{}, err
	}
	m, err := r.find(ctx, key)
	if err != nil {
		return cluster.Record{}, err
	}
	if m == nil || m.isDeleted() {
		return cluster.Record{}, cluster.ErrNotFound
	}
	return cluster.Record{Value: m.Data, Rev: m.Seq}, nil
}

// Absent implements [cluster.Records]. A leader that was deposed and does not know it answers reads
// for up to ten seconds, but stores nothing. So a write decides that is conditional on the key. It
// goes to a subject that all keys share, of which the stream keeps one message.
func (r *records) Absent(ctx context.Context, key string) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key)); err != nil {
		return err
	}
	_, err := r.create(ctx, &nats.Msg{Subject: r.subject + absentKey}, key)
	return err
}

// Put implements [cluster.Records].
func (r *records) Put(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key), coordination.CheckValue(value)); err != nil {
		return 0, err
	}
	m := nats.NewMsg(r.subject + key)
	m.Data = value
	if rev == 0 {
		return r.create(ctx, m, key)
	}
	return r.publish(ctx, m, key, rev)
}

// create stores a message if there is no record with the key. NATS also rejects it while another
// conditional write for the key is in flight.
func (r *records) create(ctx context.Context, m *nats.Msg, key string) (uint64, error) {
	for last := uint64(0); ; {
		seq, err := r.publish(ctx, m, key, last)
		if !errors.Is(err, cluster.ErrConflict) {
			return seq, err
		}
		found, findErr := r.find(ctx, key)
		if findErr != nil || found != nil && !found.isDeleted() {
			return 0, cmp.Or(findErr, err)
		}
		before := last
		if last = 0; found != nil {
			last = found.Seq
		}
		if last == before && !wait.Sleep(ctx, retryDelay) {
			return 0, ctx.Err()
		}
	}
}

// publish stores a message if the last one of the key has the given sequence number.
func (r *records) publish(ctx context.Context, m *nats.Msg, key string, last uint64, opts ...jetstream.PublishOpt) (uint64, error) {
	subject := r.subject + key
	if m.Subject != subject { // it does not change the key, so it can be stored twice
		seq, _, err := r.b.publish(ctx, r.stream, m, append(opts, jetstream.WithExpectLastSequenceForSubject(last, subject))...)
		return seq, err
	}
	id := rand.Text()
	m.Header.Set(writeHeader, id)
	opts = append(opts, jetstream.WithExpectLastSequencePerSubject(last))
	for repeated := false; ; {
		seq, again, err := r.b.publish(ctx, r.stream, m, opts...)
		repeated = repeated || again
		if !repeated || !errors.Is(err, cluster.ErrConflict) {
			return seq, err
		}
		// The conflict may be with this message, which NATS stores or has stored.
		found, findErr := r.find(ctx, key)
		switch {
		case findErr != nil:
			return 0, findErr
		case found != nil && bytes.Contains(found.Header, []byte(id)):
			return found.Seq, nil
		case found == nil && last != 0, found != nil && found.Seq != last:
			return 0, err
		case !wait.Sleep(ctx, retryDelay):
			return 0, ctx.Err()
		}
	}
}

// Delete implements [cluster.Records].
func (r *records) Delete(ctx context.Context, key string, rev uint64) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(key)); err != nil {
		return err
	}
	if rev == 0 {
		return cluster.ErrConflict
	}
	m := nats.NewMsg(r.subject + key)
	m.Header.Set(deletedHeader, "1")
	_, err := r.publish(ctx, m, key, rev, jetstream.WithMsgTTL(deletedTTL))
	return err
}

// Watch implements [cluster.Records]. It has a separate consumer in the memory of one server,
// which sends each message once. If one is missing, or the server is silent, the watch ends.
func (r *records) Watch(ctx context.Context, prefix string) iter.Seq2[cluster.Change, error] {
	return func(yield func(cluster.Change, error) bool) {
		if err := r.watch(ctx, prefix, yield); err != nil {
			yield(cluster.Change{}, err)
		}
	}
}

// watch is Watch. It returns nil if yield returned false.
func (r *records) watch(ctx context.Context, prefix string, yield func(cluster.Change, error) bool) error {
	filter := r.subject + ">"
	if prefix != "" {
		if err := coordination.CheckKey(prefix); err != nil {
			return err
		}
		filter = r.subject + prefix + ".>"
	}
	inbox := r.b.nc.NewInbox()
	sub, err := r.b.nc.SubscribeSync(inbox)
	if err != nil {
		return mapError(ctx, err)
	}
	defer sub.Unsubscribe() // fails only if the connection is closed
	name := "watch_" + rand.Text()
	create, cancel := context.WithTimeout(ctx, coordination.CallTimeout)
	defer cancel()
	consumer, err := r.b.js.CreatePushConsumer(create, r.stream, jetstream.ConsumerConfig{
		Name: name, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
		FilterSubject: filter, DeliverSubject: inbox, FlowControl: true, IdleHeartbeat: heartbeat,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		r.b.mayCome(r.stream, err)
		return mapError(ctx, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coordination.CallTimeout)
		defer cancel()
		_ = r.b.js.DeleteConsumer(ctx, r.stream, name) // or it ends by itself
	}()
	w := &watch{r: r, sub: sub, waiting: consumer.CachedInfo().NumPending, yield: yield}
	if err := w.run(ctx); err != errStop {
		return err
	}
	return nil
}

// A watch is a running Watch.
type watch struct {
	r     *records
	sub   *nats.Subscription
	yield func(cluster.Change, error) bool
	// delivered is the number of messages that the consumer has sent.
	delivered uint64
	// waiting is the number of records that existed when the watch began and did not come yet.
	waiting uint64
	synced  bool
}

// errStop means that yield returned false.
var errStop = errors.New("stop")

func (w *watch) run(ctx context.Context) error {
	err := w.sync()
	for err == nil {
		var m *nats.Msg
		if m, err = w.next(ctx); err != nil {
			break
		}
		if len(m.Data) == 0 && m.Header.Get("Status") == "100" {
			err = w.control(m)
		} else {
			err = w.message(m)
		}
	}
	return err
}

// next returns the next message.
func (w *watch) next(ctx context.Context) (*nats.Msg, error) {
	silent, cancel := context.WithTimeout(ctx, maxSilence)
	defer cancel()
	m, err := w.sub.NextMsgWithContext(silent)
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrSlowConsumer):
		return nil, fmt.Errorf("%w: %w", cluster.ErrGone, err)
	}
	return nil, mapError(ctx, err)
}

// control handles a heartbeat or a request for flow control.
func (w *watch) control(m *nats.Msg) error {
	reply := cmp.Or(m.Reply, m.Header.Get("Nats-Consumer-Stalled"))
	if reply != "" {
		if err := w.r.b.nc.Publish(reply, nil); err != nil {
			return fmt.Errorf("%w: %w", cluster.ErrGone, err)
		}
	}
	if last := m.Header.Get("Nats-Last-Consumer"); last != "" && last != strconv.FormatUint(w.delivered, 10) {
		return fmt.Errorf("%w: got %d of %s messages", cluster.ErrGone, w.delivered, last)
	}
	return nil
}

// message yields a change.
func (w *watch) message(m *nats.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("natscluster: invalid message of NATS: %w", err)
	}
	if w.delivered++; meta.Sequence.Consumer != w.delivered {
		return fmt.Errorf("%w: got message %d, not %d", cluster.ErrGone, meta.Sequence.Consumer, w.delivered)
	}
	c := cluster.Change{Kind: cluster.ChangePut, Key: strings.TrimPrefix(m.Subject, w.r.subject), Record: cluster.Record{Value: m.Data, Rev: meta.Sequence.Stream}}
	deleted := m.Header.Get(deletedHeader) != ""
	if deleted {
		c.Kind, c.Value = cluster.ChangeDelete, nil
	}
	if (!deleted || w.synced) && c.Key != absentKey && !w.yield(c, nil) {
		return errStop
	}
	if w.waiting = max(w.waiting, 1) - 1; meta.NumPending == 0 {
		w.waiting = 0
	}
	return w.sync()
}

// sync yields ChangeSynced when all records have come that existed at first.
func (w *watch) sync() error {
	if w.synced || w.waiting > 0 {
		return nil
	}
	w.synced = true
	if !w.yield(cluster.Change{Kind: cluster.ChangeSynced}, nil) {
		return errStop
	}
	return nil
}
