// Command mcpwire-node runs mcpwire's demo server over Streamable HTTP as one node of a cluster on
// NATS JetStream.
//
//	mcpwire-node --name n1 --listen 127.0.0.1:8081 --dir /var/lib/n1 --core n1=127.0.0.1:6221,n2=127.0.0.1:6222,n3=127.0.0.1:6223
//
// runs a NATS server in the process. The other core nodes have the same --core, and another --name.
// With --nats, the process uses NATS servers that are there.
package main

import (
	"bytes"
	"context"
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

	"mcpwire/cluster/natscluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// run returns the exit status: 0, 1 for a failure, or 2 for wrong flags.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	f, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "mcpwire-node:", err)
		return 2
	}
	if err := f.serve(ctx, stderr); err != nil {
		fmt.Fprintln(stderr, "mcpwire-node:", err)
		return 1
	}
	return 0
}

// nodeFlags are the flags of a node.
type nodeFlags struct {
	name, listen, admin string
	dir                 string
	core                coreList
	nats, clientListen  string
	keysFile, tokenFile string
	secrets             [][]byte
	token               string
	drain               time.Duration
	logJSON             bool
	level               slog.Level
	testTools           bool
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
	fs.StringVar(&f.name, "name", "", "`NAME` of the node, unique in the cluster")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8080", "serve MCP at `HOST:PORT`, path /mcp")
	fs.StringVar(&f.admin, "admin", "", "serve /livez, /readyz and /startupz at `HOST:PORT`; without a host only for this machine")
	fs.StringVar(&f.dir, "dir", "", "`DIR` for the files of the NATS server in this process")
	fs.Func("core", "routes of all core nodes, this one included: `NAME=HOST:PORT,...`, three or five", f.core.set)
	fs.StringVar(&f.nats, "nats", "", "use the NATS servers at `URL`, instead of one in this process")
	fs.StringVar(&f.clientListen, "client-listen", "", "accept nodes that are no core nodes at `HOST:PORT`; needs --token")
	fs.StringVar(&f.tokenFile, "token", "", "`FILE` with the secret of the nodes that are no core nodes, for --client-listen and --nats")
	fs.StringVar(&f.keysFile, "keys", "", "`FILE` with secrets that encrypt the cluster's keys in NATS: 32 random bytes or more in base64, one per line; the first one encrypts")
	fs.DurationVar(&f.drain, "drain", 15*time.Second, "`TIME` for requests in flight after SIGTERM")
	fs.Func("log-format", "`FORMAT` of the log: text or json (default text)", func(s string) error {
		if s != "text" && s != "json" {
			return errors.New("want text or json")
		}
		f.logJSON = s == "json"
		return nil
	})
	fs.TextVar(&f.level, "log-level", slog.LevelInfo, "lowest `LEVEL` to log: debug, info, warn or error")
	fs.BoolVar(&f.testTools, "test-tools", false, "add tools for tests of the cluster")
	if err := fs.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = errors.New("see mcpwire-node --help") // Parse has printed the error
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return f, f.check()
}

// check returns an error if flags don't go together, and reads the files.
func (f *nodeFlags) check() (err error) {
	_, isCore := f.core.of(f.name)
	switch {
	case f.nats != "" && (f.dir != "" || f.core != nil || f.clientListen != ""):
		return errors.New("--dir, --core and --client-listen are for a NATS server in this process, not for --nats")
	case f.nats == "" && f.dir == "":
		return errors.New("give --dir for a NATS server in this process, or --nats")
	case f.core != nil && !isCore:
		return fmt.Errorf("--core has no node %q: --name must be one of them", f.name)
	case f.drain <= 0:
		return errors.New("--drain must be positive")
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
			o.Connect = append(o.Connect, tokenOption(f.token))
		}
		return o
	}
	o.Embed = &natscluster.Embed{Dir: f.dir, ClientListen: f.clientListen}
	if f.clientListen != "" {
		o.Embed.ClientToken = f.token
	}
	if f.core != nil {
		o.Embed.Name, o.Embed.Routes = f.name, f.core.addresses()
		o.Embed.Listen, _ = f.core.of(f.name)
	}
	return o
}
