// Command mcpwire-node runs mcpwire's demo server, or with --gateway a gateway, over Streamable
// HTTP as one node of a cluster on NATS JetStream.
//
//	mcpwire-node --local 3
//
// runs three nodes on this machine, with one URL for all. Separately, a node is
//
//	mcpwire-node --name n1 --listen 127.0.0.1:8081 --dir n1 \
//		--core n1=127.0.0.1:6221,n2=127.0.0.1:6222,n3=127.0.0.1:6223
//
// with a NATS server in the process. The other two core nodes have the same --core, and other names
// and directories. With --nats, a node uses NATS servers that are there.
//
// SIGTERM drains the node: it is no longer ready, serves for --drain-delay, ends streams so that
// their clients come back to other nodes, finishes requests for --drain, and leaves the cluster.
// The exit status is 0, or 1 if something was cut off.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"mcpwire/cluster/natscluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stderr))
}

// run returns the exit status: 0, 1 for a failure, or 2 for wrong flags.
func run(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) int {
	f, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "mcpwire-node:", err)
		return 2
	}
	if f.stopAtEOF {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		// This goroutine ends with the process.
		go func() {
			defer stop()
			io.Copy(io.Discard, stdin)
		}()
	}
	if f.local > 0 {
		err = f.serveLocal(ctx, stderr)
	} else {
		err = f.serve(ctx, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "mcpwire-node:", err)
		return 1
	}
	return 0
}

// nodeFlags are the flags of a node.
type nodeFlags struct {
	local               int
	name, listen, admin string
	hosts               []string
	insecure            bool
	dir                 string
	core                coreList
	coreListen          string
	nats, clientListen  string
	keysFile, tokenFile string
	secrets             [][]byte
	token               string
	tls                 tlsFiles
	tlsConfig           *tls.Config
	drain, drainDelay   time.Duration
	logJSON             bool
	level               slog.Level
	maxSessions         int
	watch, testTools    bool
	// gateway is the configuration of a gateway. Empty means the demo server.
	gateway string
	// given has the flags of the command line.
	given     map[string]bool
	stopAtEOF bool
}

// tlsFiles are the files for connections between nodes.
type tlsFiles struct{ cert, key, ca string }

// load returns nil without files.
func (t *tlsFiles) load() (*tls.Config, error) {
	if *t == (tlsFiles{}) {
		return nil, nil
	}
	if t.cert == "" || t.key == "" || t.ca == "" {
		return nil, errors.New("--cluster-cert, --cluster-key and --cluster-ca go together")
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("--cluster-cert: %w", err)
	}
	text, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--cluster-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--cluster-ca: no certificate in %s", t.ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// A coreNode is an entry of --core.
type coreNode struct{ name, address string }

type coreList []coreNode

func (l *coreList) set(s string) error {
	*l = nil
	for entry := range strings.SplitSeq(s, ",") {
		name, address, ok := strings.Cut(entry, "=")
		if !ok || name == "" || address == "" {
			return errors.New("want NAME=HOST:PORT,NAME=HOST:PORT,NAME=HOST:PORT")
		}
		*l = append(*l, coreNode{name, address})
	}
	return nil
}

// of returns the address of a node.
func (l coreList) of(name string) (address string, ok bool) {
	for _, n := range l {
		if n.name == name {
			return n.address, true
		}
	}
	return "", false
}

// addresses returns the addresses of all nodes.
func (l coreList) addresses() (list []string) {
	for _, n := range l {
		list = append(list, n.address)
	}
	return list
}

func parseFlags(args []string, stderr io.Writer) (*nodeFlags, error) {
	f := new(nodeFlags)
	fs := flag.NewFlagSet("mcpwire-node", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&f.local, "local", 0, "run `N` nodes on this machine, 3 or 5, as processes, and a proxy at --listen that sends each request to the next one")
	fs.StringVar(&f.name, "name", "", "`NAME` of the node, unique in the cluster")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8080", "serve MCP at `HOST:PORT`, path /mcp")
	fs.Func("host", "host `NAME` that clients use in addition to localhost; may be repeated", func(s string) error {
		f.hosts = append(f.hosts, s)
		return nil
	})
	fs.BoolVar(&f.insecure, "insecure", false, "allow addresses that other machines can reach, without authentication, and without TLS between nodes")
	fs.StringVar(&f.admin, "admin", "", "serve /livez, /readyz, /startupz and /metrics at `HOST:PORT`; at an address of this machine only for its own host names")
	fs.StringVar(&f.dir, "dir", "", "`DIR` for the files of the NATS server in this process")
	fs.Func("core", "routes of all core nodes, this one included: `NAME=HOST:PORT,...`, three or five", f.core.set)
	fs.StringVar(&f.coreListen, "core-listen", "", "accept the other core nodes at `HOST:PORT`; without this flag at the node's address in --core")
	fs.StringVar(&f.tls.cert, "cluster-cert", "", "`FILE` with the node's certificate for connections between nodes, in PEM")
	fs.StringVar(&f.tls.key, "cluster-key", "", "`FILE` with its private key")
	fs.StringVar(&f.tls.ca, "cluster-ca", "", "`FILE` with the authorities of the other nodes' certificates")
	fs.StringVar(&f.nats, "nats", "", "use the NATS servers at `URL`, instead of one in this process")
	fs.StringVar(&f.clientListen, "client-listen", "", "accept nodes that are no core nodes at `HOST:PORT`; needs --token")
	fs.StringVar(&f.tokenFile, "token", "", "`FILE` with the secret of the nodes that are no core nodes, for --client-listen and --nats")
	fs.StringVar(&f.keysFile, "keys", "", "`FILE` with secrets that encrypt the cluster's keys in NATS: 32 random bytes or more in base64, one per line; the first one encrypts")
	fs.DurationVar(&f.drain, "drain", 15*time.Second, "`TIME` for requests in flight after SIGTERM")
	fs.DurationVar(&f.drainDelay, "drain-delay", 0, "`TIME` before that in which the node serves on, but is not ready, so that load balancers notice")
	fs.Func("log-format", "`FORMAT` of the log: text or json (default text)", func(s string) error {
		if s != "text" && s != "json" {
			return errors.New("want text or json")
		}
		f.logJSON = s == "json"
		return nil
	})
	fs.TextVar(&f.level, "log-level", slog.LevelInfo, "lowest `LEVEL` to log: debug, info, warn or error")
	fs.IntVar(&f.maxSessions, "max-sessions", 10_000, "serve at most `N` sessions of legacy clients at once")
	fs.StringVar(&f.gateway, "gateway", "", "serve the gateway of the configuration `FILE`, see mcpwire gateway, instead of the demo server; its address, limits and drain are those of the file unless --listen is given")
	fs.BoolVar(&f.watch, "watch", false, "show the traffic to mcpwire watch; the default with --local")
	fs.BoolVar(&f.stopAtEOF, "stop-at-eof", false, "also drain when standard input ends")
	fs.BoolVar(&f.testTools, "test-tools", false, "add tools that show the cluster, such as node, work, greet and job; the default with --local")
	if err := fs.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = errors.New("see mcpwire-node --help") // Parse has printed the error
		}
		return nil, err
	}
	f.given = make(map[string]bool)
	fs.Visit(func(set *flag.Flag) { f.given[set.Name] = true })
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if f.local > 0 {
		return f, f.checkLocal(fs)
	}
	return f, f.check()
}

// errDemoFlags is the error for flags that a gateway does not have.
var errDemoFlags = errors.New("--test-tools, --max-sessions, --drain and --watch are for the demo server: the file of a gateway has sessions and drain, and mcpwire watch always shows it")

// check returns an error if flags don't go together, and reads the files.
func (f *nodeFlags) check() (err error) {
	_, isCore := f.core.of(f.name)
	switch {
	case f.nats != "" && (f.dir != "" || f.core != nil || f.coreListen != "" || f.clientListen != ""):
		return errors.New("--dir, --core, --core-listen and --client-listen are for a NATS server in this process, not for --nats")
	case f.nats == "" && f.dir == "":
		return errors.New("give --dir for a NATS server in this process, or --nats")
	case f.core != nil && !isCore:
		return fmt.Errorf("--core has no node %q: --name must be one of them", f.name)
	case f.clientListen != "" && f.tokenFile == "":
		return errors.New("--client-listen needs --token FILE: the secret of the nodes that connect, 16 characters or more")
	case f.coreListen != "" && f.core == nil:
		return errors.New("--core-listen needs --core")
	case f.gateway != "" && (f.testTools || f.given["max-sessions"] || f.given["drain"] || f.watch):
		return errDemoFlags
	case f.maxSessions <= 0:
		return errors.New("--max-sessions must be positive")
	case f.drain <= 0:
		return errors.New("--drain must be positive")
	}
	if f.tlsConfig, err = f.tls.load(); err != nil {
		return err
	}
	if f.tokenFile != "" {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return fmt.Errorf("--token: %w", err)
		}
		f.token = strings.TrimSpace(string(text))
	}
	if f.keysFile != "" {
		if f.secrets, err = readSecrets(f.keysFile); err != nil {
			return fmt.Errorf("--keys: %w", err)
		}
	}
	return nil
}

// readSecrets reads lines of base64.
func readSecrets(name string) (secrets [][]byte, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for i, line := range bytes.Fields(text) {
		secret, err := base64.StdEncoding.AppendDecode(nil, line)
		if err != nil {
			return nil, fmt.Errorf("%s: secret %d is not base64", name, i+1)
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%s has no secret", name)
	}
	return secrets, nil
}

// backendOptions returns the options of the backend.
func (f *nodeFlags) backendOptions(log *slog.Logger) natscluster.Options {
	o := natscluster.Options{Logger: log}
	if f.nats != "" {
		o.URL = f.nats
		if f.token != "" {
			o.Connect = append(o.Connect, nats.Token(f.token))
		}
		if f.tlsConfig != nil {
			o.Connect = append(o.Connect, nats.Secure(f.tlsConfig))
		}
		return o
	}
	o.Embed = &natscluster.Embed{Dir: f.dir, ClientListen: f.clientListen, Insecure: f.insecure}
	if f.clientListen != "" {
		o.Embed.ClientToken, o.Embed.ClientTLS = f.token, f.tlsConfig
	}
	if f.core != nil {
		o.Embed.Name, o.Embed.Routes = f.name, f.core.addresses()
		if o.Embed.Listen = f.coreListen; f.coreListen == "" {
			o.Embed.Listen, _ = f.core.of(f.name)
		}
		o.Embed.TLS = f.tlsConfig
	}
	return o
}
