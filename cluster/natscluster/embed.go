package natscluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"mcpwire/internal/base/wait"
)

// Embed configures a NATS server in this process.
type Embed struct {
	// Dir is the directory for the server's files. It must belong to this process alone, and keep
	// its content when the process is started again.
	Dir string
	// Name is the name of this core node. It must be unique among them and stay the same. It may be
	// empty if Routes is.
	Name string
	// Routes are the addresses, host:port, of all core nodes, this one included: three or five. If
	// it is empty, the node is alone. All must have the same.
	Routes []string
	// Listen is the address at which this node accepts the other core nodes.
	Listen string
	// TLS has this node's certificate, and in RootCAs the authorities whose certificates the other
	// core nodes must have, both as servers and as clients. It is required unless Listen is a
	// loopback address, or Insecure is set.
	TLS *tls.Config
	// ClientListen is the address at which the server accepts nodes that do not embed one. Empty
	// means none. Those connect with nats.Token(ClientToken).
	ClientListen string
	// ClientToken is the secret of these nodes. It has at least 16 characters.
	ClientToken string
	// ClientTLS has the certificate for ClientListen. It is required as TLS is.
	ClientTLS *tls.Config
	// Insecure allows other nodes on a network without TLS. Anyone there can then read and change
	// everything.
	Insecure bool
	// MaxMemory limits the memory for what is not durable, in bytes. Zero means 2 GiB.
	MaxMemory int64
	// MaxStore limits the files, in bytes. Zero means 16 GiB.
	MaxStore int64
}

const (
	clusterName    = "mcpwire"
	minToken       = 16
	explainTimeout = time.Second
	// lameDuck is the time in which a server that stops closes the connections of other nodes.
	lameDuck = 2 * time.Second
)

const (
	// minRoom is the number of bytes that must fit on the disk for a server to start.
	minRoom = 8 << 20
	// storagePoll is the interval of checks whether the server stores, and whether there is room.
	storagePoll = time.Second
	// stopStoring is how long a server that cannot write takes at most to stop storing.
	stopStoring = 3 * time.Second
)

// embedded is a server in this process. It starts again when there is room after a full disk.
type embedded struct {
	opts *Embed
	o    *server.Options
	log  *slog.Logger

	mu  sync.Mutex
	srv *server.Server
	// failed says why the server does not store. It is nil if it does.
	failed error
}

// current returns the server that runs, or ran last.
func (s *embedded) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// InProcessConn implements [nats.InProcessConnProvider].
func (s *embedded) InProcessConn() (net.Conn, error) { return s.current().InProcessConn() }

// check returns an error if the server does not store.
func (s *embedded) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// setFailed notes why the server does not store, and logs a change.
func (s *embedded) setFailed(err error) {
	s.mu.Lock()
	before := s.failed
	s.failed = err
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.log.Error("this core node stores nothing", "error", err)
	case err == nil && before != nil:
		s.log.Info("this core node stores again")
	}
}

// serverOptions checks the options and returns those of the server.
func (e *Embed) serverOptions() (*server.Options, error) {
	if e.Dir == "" {
		return nil, errors.New("Embed.Dir is empty: name a directory for the server's files")
	}
	o := &server.Options{
		ServerName: cmp.Or(e.Name, "alone"), DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: e.Dir, SyncAlways: true, JetStreamMaxMemory: 2 << 30, JetStreamMaxStore: 16 << 30,
		MaxPayload: 1 << 20, PingInterval: pingInterval, MaxPingsOut: 2,
		LameDuckDuration: lameDuck, LameDuckGracePeriod: lameDuck / 10,
	}
	if e.MaxMemory > 0 {
		o.JetStreamMaxMemory = e.MaxMemory
	}
	if e.MaxStore > 0 {
		o.JetStreamMaxStore = e.MaxStore
	}
	if len(e.Routes) > 0 {
		if err := e.clusterOptions(o); err != nil {
			return nil, err
		}
	}
	switch {
	case e.ClientListen != "":
		if err := e.clientOptions(o); err != nil {
			return nil, err
		}
	case len(e.Routes) > 0:
		// A server that does not listen for clients starts no routes, and does not hand over what
		// it leads. So it listens where only this process can log in.
		o.DontListen, o.Host, o.Port, o.Authorization = false, "127.0.0.1", server.RANDOM_PORT, rand.Text()
	}
	return o, nil
}

// clusterOptions adds the options for other core nodes.
func (e *Embed) clusterOptions(o *server.Options) (err error) {
	switch {
	case e.Name == "":
		return errors.New("Embed.Name is empty: name this core node")
	case len(e.Routes) != 3 && len(e.Routes) != 5:
		return fmt.Errorf("Embed.Routes has %d addresses: use three or five core nodes, and let others connect to them by Options.URL", len(e.Routes))
	}
	o.Cluster = server.ClusterOpts{Name: clusterName, NoAdvertise: true, PingInterval: pingInterval, MaxPingsOut: 2}
	if o.Cluster.Host, o.Cluster.Port, err = listenAddress("Embed.Listen", e.Listen, e.TLS != nil || e.Insecure); err != nil {
		return err
	}
	for i, r := range e.Routes {
		if _, _, err := net.SplitHostPort(r); err != nil || slices.Contains(e.Routes[:i], r) {
			return fmt.Errorf("Embed.Routes: %q is not another host:port", r)
		}
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	if e.TLS != nil {
		t := e.TLS.Clone()
		if t.RootCAs == nil || len(t.Certificates) == 0 && t.GetCertificate == nil {
			return errors.New("Embed.TLS: set Certificates, and RootCAs: the authorities of the other core nodes")
		}
		if t.ClientCAs == nil {
			t.ClientCAs = t.RootCAs
		}
		t.ClientAuth, t.MinVersion = tls.RequireAndVerifyClientCert, max(t.MinVersion, tls.VersionTLS12)
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = t, 5
	}
	return nil
}

// clientOptions adds the options for nodes that do not embed a server.
func (e *Embed) clientOptions(o *server.Options) (err error) {
	if len(e.ClientToken) < minToken {
		return fmt.Errorf("Embed.ClientToken has %d characters: use a random one of %d or more", len(e.ClientToken), minToken)
	}
	if o.Host, o.Port, err = listenAddress("Embed.ClientListen", e.ClientListen, e.ClientTLS != nil || e.Insecure); err != nil {
		return err
	}
	o.DontListen, o.Authorization = false, e.ClientToken
	if e.ClientTLS != nil {
		o.TLSConfig, o.TLS, o.TLSTimeout = e.ClientTLS.Clone(), true, 5
	}
	return nil
}

// listenAddress parses an address to listen on. Without a secure connection it must be loopback.
func listenAddress(option, address string, secure bool) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %q is not host:port", option, address)
	}
	if port, err = strconv.Atoi(text); err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%s: invalid port %q", option, text)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	ip, err := netip.ParseAddr(host)
	if !secure && host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return "", 0, fmt.Errorf("%s: other machines can reach %s: set TLS, or Insecure", option, address)
	}
	return host, port, nil
}

// startEmbedded starts a server and waits until it accepts connections of this process.
func startEmbedded(ctx context.Context, e *Embed, log *slog.Logger) (*embedded, error) {
	o, err := e.serverOptions()
	if err != nil {
		return nil, err
	}
	s := &embedded{opts: e, o: o, log: log}
	return s, s.start(ctx)
}

// start waits until there is room on the disk, starts a server, and waits until it accepts
// connections of this process.
func (s *embedded) start(ctx context.Context) error {
	for warn := true; ; warn = false {
		err := checkRoom(s.opts.Dir)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) || !wait.Sleep(ctx, storagePoll) {
			return fmt.Errorf("start the server of node %s: %w", s.o.ServerName, err)
		}
		if warn {
			s.log.Warn("waiting for room on the disk", "node", s.o.ServerName, "error", err)
		}
	}
	srv, err := server.NewServer(s.o.Clone())
	if err != nil {
		return fmt.Errorf("start the server of node %s: %w", s.o.ServerName, err)
	}
	l := &serverLog{log: s.log, node: s.o.ServerName}
	srv.SetLoggerV2(l, false, false, false)
	srv.Start()
	for !srv.ReadyForConnections(pollOpen) {
		cause := l.fatalText()
		if ctx.Err() == nil && srv.Running() && cause == "" {
			continue
		}
		srv.Shutdown()
		srv.WaitForShutdown()
		return fmt.Errorf("the server of node %s does not start in %s: %s", s.o.ServerName, s.opts.Dir, cmp.Or(cause, "another process may use the directory or the address; see the log"))
	}
	s.mu.Lock()
	s.srv = srv
	s.mu.Unlock()
	return nil
}

// checkRoom returns an error unless minRoom bytes can be written into a directory.
func checkRoom(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "room"))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close(), os.Remove(f.Name())) }()
	for range minRoom >> 20 {
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// keepStoring starts the server again, until ctx ends, when it has stopped storing and there is
// room: NATS stops JetStream for good when a write finds the disk full. restarted is called after
// that, before the node counts as storing.
func (s *embedded) keepStoring(ctx context.Context, restarted func()) {
	var stopped time.Time
	for wait.Sleep(ctx, storagePoll) {
		if s.current().JetStreamEnabled() {
			s.setFailed(nil)
			stopped = time.Time{}
			continue
		}
		if stopped.IsZero() {
			stopped = time.Now()
		}
		if err := checkRoom(s.opts.Dir); err != nil {
			s.setFailed(fmt.Errorf("core node %s stores nothing: %w", s.o.ServerName, err))
			continue
		}
		s.setFailed(fmt.Errorf("core node %s stores nothing: its disk was full, and it starts again", s.o.ServerName))
		if time.Since(stopped) < stopStoring {
			continue
		}
		s.current().Shutdown()
		s.current().WaitForShutdown()
		if err := s.start(ctx); err != nil {
			s.log.Error("this core node does not start again", "error", err)
			continue
		}
		restarted()
	}
}

// explain returns an error that says why JetStream does not work.
func (s *embedded) explain(err error) error {
	if len(s.opts.Routes) == 0 {
		return fmt.Errorf("JetStream of node %s does not respond: %w", s.o.ServerName, err)
	}
	var problems []string
	for _, r := range s.opts.Routes {
		c, err := net.DialTimeout("tcp", r, explainTimeout)
		if err != nil {
			problems = append(problems, fmt.Sprintf("core node %s: %v", r, err))
			continue
		}
		c.Close()
	}
	what := fmt.Sprintf("node %s has no majority of %d core nodes", s.o.ServerName, len(s.opts.Routes))
	if len(problems) > 0 {
		return fmt.Errorf("%s: %s: start it, or check Embed.Routes and the network", what, strings.Join(problems, "; "))
	}
	return fmt.Errorf("%s, and reaches all addresses: check that Embed.Routes and the certificates are right, and that each has its own Name: %w", what, err)
}

// close hands over what the server leads and stops it.
func (s *embedded) close() {
	srv := s.current()
	if srv == nil {
		return
	}
	if len(s.opts.Routes) > 0 && srv.Running() {
		srv.LameDuckShutdown()
	}
	srv.Shutdown()
	srv.WaitForShutdown()
}

// repeatEvery is the interval at which a warning of the server is logged again.
const repeatEvery = 10 * time.Second

// maxWarnings limits the warnings that a serverLog remembers.
const maxWarnings = 1000

// serverLog passes what a server logs on. It logs a warning that the server repeats, such as a
// route that cannot be reached, every repeatEvery.
type serverLog struct {
	log  *slog.Logger
	node string

	mu sync.Mutex
	// last is when each warning was logged.
	last map[string]time.Time
	// fatal is the first error that keeps the server from starting.
	fatal string
}

func (l *serverLog) fatalText() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

func (l *serverLog) add(level slog.Level, format string, v []any) {
	if level >= slog.LevelWarn && l.repeats(format, v) {
		return
	}
	l.log.Log(context.Background(), level, "NATS: "+strings.TrimSpace(fmt.Sprintf(format, v...)), "node", l.node)
}

// repeats reports whether the warning was logged a short while ago. Warnings with the same last
// value are equal: the values before it may be counters.
func (l *serverLog) repeats(format string, v []any) bool {
	key := format
	if len(v) > 0 {
		key += fmt.Sprint(v[len(v)-1])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.last[key]; ok && time.Since(at) < repeatEvery {
		return true
	}
	if l.last == nil || len(l.last) >= maxWarnings {
		l.last = make(map[string]time.Time)
	}
	l.last[key] = time.Now()
	return false
}

// Noticef implements [server.Logger].
func (l *serverLog) Noticef(format string, v ...any) { l.add(slog.LevelDebug, format, v) }

// Warnf implements [server.Logger].
func (l *serverLog) Warnf(format string, v ...any) { l.add(slog.LevelWarn, format, v) }

// Errorf implements [server.Logger]. A missing node is not an error here.
func (l *serverLog) Errorf(format string, v ...any) {
	level := slog.LevelError
	if strings.HasPrefix(format, "Error trying to connect to route") {
		level = slog.LevelWarn
	}
	l.add(level, format, v)
}

// Fatalf implements [server.Logger]. It does not end the process.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.fatal = cmp.Or(l.fatal, fmt.Sprintf(format, v...))
	l.mu.Unlock()
	l.add(slog.LevelError, format, v)
}

// Debugf implements [server.Logger].
func (l *serverLog) Debugf(string, ...any) {}

// Tracef implements [server.Logger].
func (l *serverLog) Tracef(string, ...any) {}
