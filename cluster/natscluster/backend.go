package natscluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/base/wait"
)

// Options configure a [Backend]. Either URL or Embed must be set.
type Options struct {
	// URL is the address of a NATS server, or several with commas between them. They need
	// JetStream, and NATS 2.12 or later.
	URL string
	// Connect has options for the connection to URL, such as nats.UserCredentials and nats.Secure.
	Connect []nats.Option
	// Embed runs a server in this process.
	Embed *Embed
	// Replicas is the number of servers that have each record: 1, 3 or 5. Zero means three if the
	// server belongs to a cluster, and else one. It is decided when a stream is created.
	Replicas int
	// Prefix begins the names of all streams and subjects. Zero means "mcpwire".
	Prefix string
	// Logger logs what the connection and an embedded server report. Nil means slog.Default.
	Logger *slog.Logger
}

const (
	// openLimit limits Open, in addition to its context.
	openLimit = time.Minute
	// pollOpen is the interval between attempts of Open.
	pollOpen = 100 * time.Millisecond
	// minPayload is the size of messages that a server must accept.
	minPayload   = coordination.MaxValue + 16<<10
	pingInterval = 2 * time.Second
)

// A Backend is a [cluster.Backend] on NATS.
type Backend struct {
	opts Options
	// server is nil without Options.Embed.
	server  *embedded
	nc      *nats.Conn
	js      jetstream.JetStream
	leaders leaders

	// ctx ends when the backend is closed. wg has the goroutines, whose ctx it is.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// streams has the streams that this process has opened.
	streams map[string]*openStream
	// subscriptions are those of the bus.
	subscriptions map[*subscription]struct{}
	// lost counts the messages that ended subscriptions have dropped.
	lost uint64
}

var _ cluster.Backend = (*Backend)(nil)

// The optional methods of a cluster.Backend.
var _ interface {
	Check() error
	Lost() uint64
} = (*Backend)(nil)

// An openStream is a stream that this process has opened.
type openStream struct {
	cfg jetstream.StreamConfig
	// soughtAt is when it was last looked for because it did not respond.
	soughtAt time.Time
}

func sameLimits(a, b *jetstream.StreamConfig) bool {
	return a.MaxAge == b.MaxAge && a.MaxBytes == b.MaxBytes && a.MaxMsgsPerSubject == b.MaxMsgsPerSubject
}

// Open connects to NATS, or starts a server, and waits until JetStream works: with several embedded
// servers, until a majority is there. It waits up to a minute. [Backend.Close] must be called.
func Open(ctx context.Context, o Options) (*Backend, error) {
	o.Prefix = cmp.Or(o.Prefix, "mcpwire")
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if err := coordination.CheckName(o.Prefix); err != nil {
		return nil, fmt.Errorf("open NATS: Options.Prefix: %w", err)
	}
	switch {
	case (o.URL == "") == (o.Embed == nil):
		return nil, errors.New("open NATS: set either Options.URL or Options.Embed")
	case o.Replicas < 0 || o.Replicas > 5 || o.Replicas != 0 && o.Replicas%2 == 0:
		return nil, fmt.Errorf("open NATS: Options.Replicas is %d: use 1, 3 or 5", o.Replicas)
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	b := &Backend{opts: o, streams: make(map[string]*openStream), subscriptions: make(map[*subscription]struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if err := b.open(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("open NATS: %w", err)
	}
	return b, nil
}

func (b *Backend) open(ctx context.Context) (err error) {
	connect := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(), // or it closes the connection after two rejections
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2), nats.Timeout(2 * time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.opts.Logger.Warn("NATS reports an error", "error", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				b.opts.Logger.Warn("the connection to NATS is lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			b.opts.Logger.Info("connected to NATS again", "server", nc.ConnectedServerName())
		}),
	}
	url := b.opts.URL
	if b.opts.Embed != nil {
		if b.server, err = startEmbedded(ctx, b.opts.Embed, b.opts.Logger); err != nil {
			return err
		}
		url = nats.DefaultURL
		connect = append(connect, nats.InProcessServer(b.server))
		if b.server.o.Authorization != "" {
			connect = append(connect, nats.Token(b.server.o.Authorization))
		}
	} else {
		connect = append(connect, b.opts.Connect...)
	}
	if b.nc, err = b.dial(ctx, url, connect); err != nil {
		return err
	}
	if n := b.nc.MaxPayload(); n < minPayload {
		return fmt.Errorf("the server %s accepts messages of %d bytes: set max_payload to %d or more", b.nc.ConnectedServerName(), n, minPayload)
	}
	if b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(coordination.CallTimeout)); err != nil {
		return err
	}
	if err := b.leaders.watch(b.nc); err != nil {
		return err
	}
	if err := b.waitReady(ctx); err != nil {
		return err
	}
	b.findReplicas()
	if b.server != nil {
		b.wg.Go(func() { b.server.keepStoring(b.ctx, b.catchUp) })
	}
	return nil
}

// catchUpLimit limits the time in which a server that was started again catches up.
const catchUpLimit = 30 * time.Second

// catchUp waits until a server that was started again has what it must store.
func (b *Backend) catchUp() {
	ctx, cancel := context.WithTimeout(b.ctx, catchUpLimit)
	defer cancel()
	if err := b.WaitCurrent(ctx); err != nil {
		b.opts.Logger.Warn("if another core node stops now, events may be lost", "error", err)
	}
}

// Check reports why the server in this process does not store, for example that its disk is full. It
// stores again within ten seconds after there is room. Check is an optional method of a
// [cluster.Backend].
func (b *Backend) Check() error {
	if b.server == nil {
		return nil
	}
	return b.server.check()
}

// dial connects, again and again until ctx ends.
func (b *Backend) dial(ctx context.Context, url string, connect []nats.Option) (*nats.Conn, error) {
	for {
		nc, err := nats.Connect(url, connect...)
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, nats.ErrAuthorization) || !wait.Sleep(ctx, pollOpen) {
			return nil, fmt.Errorf("connect to %s: %w: check the address, that the server runs, and the credentials", redactURL(url), err)
		}
	}
}

// redactURL removes passwords.
func redactURL(url string) string {
	servers := strings.Split(url, ",")
	for i, s := range servers {
		if at := strings.LastIndexByte(s, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(s, "://")
			servers[i] = scheme + "://…@" + s[at+1:]
		}
	}
	return strings.Join(servers, ",")
}

// waitReady waits until JetStream responds.
func (b *Backend) waitReady(ctx context.Context) error {
	for {
		call, cancel := context.WithTimeout(ctx, coordination.CallTimeout)
		_, err := b.js.AccountInfo(call)
		cancel()
		if err == nil {
			return nil
		}
		if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || !wait.Sleep(ctx, pollOpen) {
			if b.server != nil {
				return b.server.explain(err)
			}
			return fmt.Errorf("JetStream at %s does not respond: %w: it must be enabled, and a majority of its servers must be there", b.nc.ConnectedUrlRedacted(), err)
		}
	}
}

// findReplicas decides on the replicas of streams.
func (b *Backend) findReplicas() {
	if b.opts.Replicas != 0 {
		return
	}
	b.opts.Replicas = 1
	switch {
	case b.server != nil && len(b.opts.Embed.Routes) >= 3:
		b.opts.Replicas = 3
	case b.server == nil && b.nc.ConnectedClusterName() != "":
		b.opts.Replicas = 3
	}
}

// WaitCurrent waits until this core node has what it must store of the streams that the process has
// opened: after that, another core node can be replaced without loss. Call it before the process
// counts as ready. It returns at once if there are no other core nodes.
func (b *Backend) WaitCurrent(ctx context.Context) error {
	if b.server == nil || len(b.opts.Embed.Routes) == 0 {
		return nil
	}
	b.mu.Lock()
	names := slices.Sorted(maps.Keys(b.streams))
	b.mu.Unlock()
	for _, name := range names {
		for !b.isCurrent(ctx, name) {
			if !wait.Sleep(ctx, pollOpen) {
				return fmt.Errorf("%w: core node %s does not catch up with stream %s: %w", cluster.ErrUnavailable, b.opts.Embed.Name, name, ctx.Err())
			}
		}
	}
	return nil
}

// isCurrent reports whether this core node has all of a stream, or need not have it.
func (b *Backend) isCurrent(ctx context.Context, name string) bool {
	if b.server.current().JetStreamIsStreamCurrent(server.DEFAULT_GLOBAL_ACCOUNT, name) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, coordination.CallTimeout)
	defer cancel()
	found, err := b.js.Stream(ctx, name)
	if err != nil || found.CachedInfo().Cluster == nil {
		return false
	}
	c := found.CachedInfo().Cluster
	mustHave := c.Leader == b.opts.Embed.Name || slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == b.opts.Embed.Name })
	return c.Leader != "" && !mustHave
}

// Close disconnects. It stops an embedded server, which first hands over what it leads.
func (b *Backend) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
	if b.nc != nil {
		b.nc.Close()
	}
	if b.server != nil {
		b.server.close()
	}
}

// Bus implements [cluster.Backend].
func (b *Backend) Bus() cluster.Bus { return bus{b} }

// stream makes sure that a stream exists, and has these limits.
func (b *Backend) stream(ctx context.Context, cfg jetstream.StreamConfig) error {
	cfg.Replicas, cfg.NoAck = b.opts.Replicas, false
	b.mu.Lock()
	known := b.streams[cfg.Name]
	b.mu.Unlock()
	if known != nil && sameLimits(&known.cfg, &cfg) && known.cfg.Storage == cfg.Storage {
		return nil
	}
	for {
		err := b.tryStream(ctx, cfg)
		var api *jetstream.APIError
		switch {
		case err == nil:
			b.mu.Lock()
			b.streams[cfg.Name] = &openStream{cfg: cfg}
			b.mu.Unlock()
			return nil
		case errors.Is(err, errOtherStream), errors.As(err, &api) && api.Code < 500 && api.ErrorCode != codeNoPeers && api.ErrorCode != codeNameInUse:
			return fmt.Errorf("stream %s: %w", cfg.Name, err)
		case !wait.Sleep(ctx, pollOpen):
			return fmt.Errorf("%w: stream %s with %d replicas: %w", cluster.ErrUnavailable, cfg.Name, cfg.Replicas, err)
		}
	}
}

// Error codes of JetStream that jetstream has no names for.
const (
	codeNoPeers      = 10005
	codeNotAvailable = 10008
	codeNameInUse    = 10058
)

var errOtherStream = errors.New("delete the stream, or use another Options.Prefix")

func (b *Backend) tryStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found, err := b.js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return b.createStream(ctx, cfg)
	}
	if err != nil {
		return err
	}
	had := found.CachedInfo().Config
	if had.Storage != cfg.Storage {
		return fmt.Errorf("it exists with %s storage, not %s: %w", had.Storage, cfg.Storage, errOtherStream)
	}
	if sameLimits(&had, &cfg) {
		return nil
	}
	cfg.Replicas, cfg.FirstSeq = had.Replicas, had.FirstSeq
	_, err = b.js.UpdateStream(ctx, cfg)
	return err
}

// createStream creates a stream. Its sequence numbers begin with the time in microseconds, so that
// they are greater than those of a stream with that name that existed before: revisions and epochs
// only grow.
func (b *Backend) createStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	cfg.FirstSeq = uint64(time.Now().UnixMicro())
	_, err := b.js.CreateStream(ctx, cfg)
	return err
}

// seekInterval is the time between searches for a stream that does not respond.
const seekInterval = time.Second

// seek creates a stream again, in the background, if it does not exist any longer: somebody has
// deleted it, or it was in the memory of servers that have all been restarted. Its content is lost.
// A stream that has no leader is left alone.
func (b *Backend) seek(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, now := b.streams[name], time.Now()
	if s == nil || b.closed || now.Sub(s.soughtAt) < seekInterval {
		return
	}
	s.soughtAt = now
	cfg := s.cfg
	b.wg.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, seekInterval)
		defer cancel()
		_, err := b.js.Stream(ctx, name)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return
		}
		if err := b.createStream(ctx, cfg); err != nil {
			b.opts.Logger.Warn("a stream is gone", "stream", name, "error", err)
			return
		}
		b.opts.Logger.Warn("a stream was gone with what it had, and is there again", "stream", name)
	})
}

// mapError returns an error of package cluster for one of NATS.
func mapError(ctx context.Context, err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", cluster.ErrTooLarge, err)
	case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return cluster.ErrConflict
	}
	return fmt.Errorf("%w: %w", cluster.ErrUnavailable, err)
}

// A storedMsg is a message of a stream.
type storedMsg struct {
	Subject string `json:"subject"`
	Seq     uint64 `json:"seq"`
	Header  []byte `json:"hdrs"`
	Data    []byte `json:"data"`
}

// getRequest is a request for a message of a stream.
type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

var errNoMessage = errors.New("no message found")

// storage returns the storage of a stream.
func storage(durable bool) jetstream.StorageType {
	if durable {
		return jetstream.FileStorage
	}
	return jetstream.MemoryStorage
}

// dedup returns the time for which a stream remembers the ids of messages. It must not exceed the
// age of messages.
func dedup(maxAge time.Duration) time.Duration {
	if maxAge > 0 {
		return min(maxAge, 2*time.Minute)
	}
	return 2 * time.Minute
}
