package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/auth"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/demo"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/internal/net/httpserve"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

const serveLong = `Run the demo server on standard input and output until the input ends, or over
HTTP until it is stopped. It speaks every revision of MCP, with and without
handshake, and offers the tools echo, word_count, add, slow, fail and crash, the
resource demo://about, the resource template demo:///squares/{n} and the prompt
explain. Messages go to stdout, the log to stderr.

To use it from a host such as Claude Desktop or Cursor, add this to the host's
configuration (VS Code calls the outer member "servers"):

  {
    "mcpServers": {
      "mcpwire-demo": {
        "command": "mcpwire",
        "args": ["serve"]
      }
    }
  }

Give the command's full path if mcpwire is not in the host's PATH.

Over HTTP, only this machine can connect, and no web page. For other machines,
require a token with --token-env or --issuer, and name the --host they use.`

const serveExample = `  echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | mcpwire serve

  # over HTTP, for clients that are given http://127.0.0.1:8080/mcp
  mcpwire serve --http 127.0.0.1:8080

  # for other machines
  mcpwire serve --http 0.0.0.0:8443 --host mcp.example.com --token-env TOKEN \
      --tls-cert cert.pem --tls-key key.pem`

type serveFlags struct {
	framing   jsonrpc.Framing
	level     slog.Level
	json      bool
	trace     bool
	lenient   bool
	revisions []mcp.Revision
	maxFrame  int
	http      httpFlags
}

func (f *serveFlags) register(fs *pflag.FlagSet) {
	fs.Func("framing", "message framing: `KIND` is line, header, or auto, which follows the client (default auto)", kit.FramingFlag(&f.framing, true))
	fs.Func("log-level", "lowest `LEVEL` to log: trace, debug, info, warn or error (default info)", f.setLevel)
	fs.BoolVar(&f.json, "log-json", false, "log in JSON, one object per line")
	fs.BoolVar(&f.trace, "trace", false, "log each message in a [TRACE] line; same as --log-level trace")
	fs.Func("revision", "speak only this revision of MCP, a `DATE` that mcpwire version lists; may be repeated (default all)", f.addRevision)
	fs.BoolVar(&f.lenient, "lenient", false, "accept requests before the handshake is complete")
	f.http.register(fs)
	fs.Func("max-frame", "largest message to read, in bytes: a `SIZE` such as 65536, 64K or 16M; a larger one is skipped and gets an error (default 64M, over HTTP 4M)", sizeFlag(&f.maxFrame))
}

func (f *serveFlags) setLevel(s string) error {
	if s == "trace" {
		f.level = stdio.LevelTrace
		return nil
	}
	if err := f.level.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("want trace, debug, info, warn or error")
	}
	return nil
}

func (f *serveFlags) addRevision(s string) error {
	var r mcp.Revision
	if err := r.UnmarshalText([]byte(s)); err != nil {
		return err
	}
	f.revisions = append(f.revisions, r)
	return nil
}

// sizeFlag returns the setter of a flag for a number of bytes.
func sizeFlag(to *int) func(string) error {
	return func(s string) error {
		s = strings.ToUpper(s)
		digits := strings.TrimRight(s, "KMG")
		n, err := strconv.ParseInt(digits, 10, 32)
		by, ok := map[string]uint{"": 0, "K": 10, "M": 20, "G": 30}[s[len(digits):]]
		if err != nil || !ok || n <= 0 || n<<by > 1<<31-1 {
			return fmt.Errorf("want a number of bytes up to 2147483647, such as 65536, 64K or 16M")
		}
		*to = int(n << by)
		return nil
	}
}

// NewServeCommand returns the command serve.
func NewServeCommand(e *kit.Env) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:         "serve [FLAGS]",
		Short:       "run the demo server on standard input and output, or over HTTP",
		Long:        serveLong,
		Example:     serveExample,
		Annotations: map[string]string{kit.OwnSignals: "true"},
		Args:        kit.FlagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.http.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return runServe(cmd.Context(), e, &f)
		},
	}
	f.register(c.Flags())
	return c
}

func runServe(ctx context.Context, e *kit.Env, f *serveFlags) error {
	handler := f.logHandler(e.Stderr)
	defer handler.Close()
	log := slog.New(handler)
	srv, err := newDemoServer(f, log)
	if err != nil {
		return err
	}
	if f.http.addr != "" {
		return f.http.serve(ctx, srv, f.maxFrame, log)
	}
	if kit.IsTerminal(e.Stdin) {
		log.Info("reading from the terminal, one message per line; Ctrl-D ends the session")
	}
	return endpoint.ServeStdio(ctx, e.Stdin, e.Stdout, srv, stdio.Config{Framing: f.framing, MaxFrame: f.maxFrame, Logger: log})
}

func (f *serveFlags) logHandler(w io.Writer) *stdio.LogHandler {
	level := f.level
	if f.trace {
		level = min(level, stdio.LevelTrace)
	}
	return stdio.NewLogHandler(w, &stdio.LogOptions{Level: level, JSON: f.json})
}

// newDemoServer returns the server that serve runs.
func newDemoServer(f *serveFlags, log *slog.Logger) (*server.Server, error) {
	opts := &server.Options{Revisions: f.revisions, Lenient: f.lenient, Logger: log}
	if f.trace || f.level <= stdio.LevelTrace {
		opts.Trace = func(dir jsonrpc.Direction, message []byte) {
			arrow := "→ "
			if dir == jsonrpc.Outgoing {
				arrow = "← "
			}
			log.Log(context.Background(), stdio.LevelTrace, arrow+string(message))
		}
	}
	return demo.New(build.Version(), opts)
}

// httpFlags are the flags for HTTP, shared by serve, mock and bridge.
type httpFlags struct {
	addr, path        string
	hosts, origins    kit.List
	tokenEnv          string
	jwks, issuer      string
	audience          string
	scopes            kit.List
	certFile, keyFile string
	h2c, sse, ndjson  bool
	insecure          bool
	proxies           prefixes
}

// A prefixes is a flag that may be repeated, with an address or a network as its value.
type prefixes []netip.Prefix

func (p *prefixes) Type() string   { return "" }
func (p *prefixes) String() string { return "" }
func (p *prefixes) Set(s string) error {
	if addr, err := netip.ParseAddr(s); err == nil {
		*p = append(*p, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return errors.New("want an address or a network such as 10.0.0.0/8")
	}
	*p = append(*p, prefix.Masked())
	return nil
}

// clientAddr returns the function that determines a client's address, or nil to use the
// connection's.
func (f *httpFlags) clientAddr() func(*http.Request) netip.Addr {
	if len(f.proxies) == 0 {
		return nil
	}
	return streamable.ForwardedFor(f.proxies...)
}

// registerEndpoint adds the flags that serve and mock have in common.
func (f *httpFlags) registerEndpoint(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", "", "serve Streamable HTTP at `ADDRESS`, such as 127.0.0.1:8080, instead of standard input and output")
	fs.StringVar(&f.path, "path", "/mcp", "`PATH` of the endpoint")
	fs.Var(&f.hosts, "host", "host `NAME` that clients use in addition to localhost; may be repeated")
	fs.Var(&f.origins, "origin", "`ORIGIN` of allowed web pages, such as https://app.example.com; may be repeated")
	fs.BoolVar(&f.sse, "sse", false, "also serve the older HTTP+SSE transport, at /sse and /messages")
	fs.BoolVar(&f.insecure, "insecure", false, "allow an address that other machines can reach, without authentication")
}

func (f *httpFlags) register(fs *pflag.FlagSet) {
	f.registerEndpoint(fs)
	fs.StringVar(&f.tokenEnv, "token-env", "", "require the bearer token in the environment variable `NAME`")
	fs.StringVar(&f.issuer, "issuer", "", "require a token of the authorization server at `URL`; needs --audience")
	fs.StringVar(&f.audience, "audience", "", "public `URL` of this endpoint; tokens must be issued for it")
	fs.StringVar(&f.jwks, "jwks", "", "`URL` of the authorization server's keys (default the one in its metadata)")
	fs.Var(&f.scopes, "scope", "`SCOPE` that a token must have; may be repeated")
	fs.StringVar(&f.certFile, "tls-cert", "", "serve TLS with the certificate in `FILE`, in PEM")
	fs.StringVar(&f.keyFile, "tls-key", "", "`FILE` with the certificate's private key, in PEM")
	fs.BoolVar(&f.h2c, "h2c", false, "also accept HTTP/2 without TLS, from proxies")
	fs.BoolVar(&f.ndjson, "ndjson", false, "also accept bodies of type application/x-ndjson: lines of messages, with lines as the response")
	fs.Var(&f.proxies, "behind", "`NETWORK` or address of a reverse proxy, whose X-Forwarded-For identifies clients; may be repeated")
}

// check returns an error if flags don't go together. set reports whether a flag was given.
func (f *httpFlags) check(set func(name string) bool) error {
	for _, name := range []string{"path", "host", "origin", "token-env", "jwks", "issuer", "audience", "scope", "tls-cert", "tls-key", "h2c", "sse", "ndjson", "behind", "insecure"} {
		if set(name) && f.addr == "" {
			return exit.Usagef("serve: --%s needs --http ADDRESS", name)
		}
	}
	switch {
	case f.addr == "":
		return nil
	case set("framing"):
		return exit.Usagef("serve: --framing is for standard input and output, not for --http")
	case !strings.HasPrefix(f.path, "/"):
		return exit.Usagef("serve: --path %q must begin with /", f.path)
	case (f.certFile == "") != (f.keyFile == ""):
		return exit.Usagef("serve: --tls-cert and --tls-key go together")
	case f.issuer != "" && f.tokenEnv != "":
		return exit.Usagef("serve: --token-env and --issuer exclude each other")
	case (f.issuer == "") != (f.audience == ""):
		return exit.Usagef("serve: --issuer and --audience go together")
	case f.jwks != "" && f.issuer == "":
		return exit.Usagef("serve: --jwks needs --issuer and --audience")
	case len(f.scopes) > 0 && f.issuer == "":
		return exit.Usagef("serve: --scope needs --issuer and --audience")
	}
	return nil
}

// guard returns the guard that requires a token from clients, or nil if none is configured.
func (f *httpFlags) guard(log *slog.Logger) (*auth.Guard, error) {
	switch {
	case f.tokenEnv != "":
		token := os.Getenv(f.tokenEnv)
		if token == "" {
			return nil, fmt.Errorf("the environment variable %s that --token-env names is empty", f.tokenEnv)
		}
		verifier, err := auth.NewStatic(auth.StaticToken{Token: token, Subject: f.tokenEnv})
		if err != nil {
			return nil, fmt.Errorf("--token-env: %w", err)
		}
		return auth.NewGuard(&auth.GuardOptions{Verifier: verifier, ClientAddr: f.clientAddr(), Logger: log})
	case f.issuer != "":
		resource, err := auth.CanonicalResource(f.audience)
		if err != nil {
			return nil, fmt.Errorf("--audience: %w", err)
		}
		verifier, err := auth.NewJWT(&auth.JWTOptions{Issuer: f.issuer, Audiences: []string{resource}, JWKSURL: f.jwks})
		if err != nil {
			return nil, err
		}
		return auth.NewGuard(&auth.GuardOptions{
			Resource: resource, Verifier: verifier, AuthorizationServers: []string{f.issuer}, ScopesSupported: f.scopes, RequiredScopes: f.scopes,
			ClientAddr: f.clientAddr(), Logger: log,
		})
	}
	return nil, nil
}

// publicHosts returns the allowed hosts, with that of the public URL.
func (f *httpFlags) publicHosts() []string {
	hosts := f.hosts
	if u, err := url.Parse(f.audience); err == nil && u.Host != "" {
		hosts = append(hosts, u.Host)
	}
	return hosts
}

// router returns the HTTP handler of a command: h at the endpoint, what sse returns at the paths of
// HTTP+SSE, if it is to be served, the metadata of the guard, which may be nil, and others by path.
// It returns an error if the path of the endpoint is invalid.
func (f *httpFlags) router(h http.Handler, sse func(messages string) http.Handler, guard *auth.Guard, others map[string]http.Handler) (*endpoint.Router, error) {
	if f.sse {
		old := sse("/messages")
		others["/sse"], others["/messages"] = old, old
	}
	if guard != nil {
		for _, path := range guard.MetadataPaths() {
			others[path] = guard.Metadata()
		}
	}
	return endpoint.NewRouter(f.path, h, others)
}

// serve serves srv over HTTP until ctx ends.
func (f *httpFlags) serve(ctx context.Context, srv *server.Server, maxBody int, log *slog.Logger) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	guard, err := f.guard(log)
	if err != nil {
		return err
	}
	h, err := streamable.NewHandler(srv, &streamable.Options{
		Hosts: f.publicHosts(), Origins: f.origins, Guard: guard, ClientAddr: f.clientAddr(), Limits: streamable.Limits{MaxBody: maxBody}, NDJSON: f.ndjson, Logger: log,
	})
	if err != nil {
		return exit.Usagef("serve: --host or --origin: %w", err)
	}
	r, err := f.router(h, h.SSE, guard, map[string]http.Handler{})
	if err != nil {
		return exit.Usagef("serve: --path: %w", err)
	}
	scheme := "http"
	if f.certFile != "" {
		scheme = "https"
	}
	err = httpserve.ListenAndServe(ctx, f.addr, r, &httpserve.Options{
		AllowRemote: guard != nil || f.insecure,
		CertFile:    f.certFile, KeyFile: f.keyFile, H2C: f.h2c,
		OnListen:   func(a net.Addr) { log.Info("listening", "url", scheme+"://"+a.String()+f.path) },
		OnShutdown: h.Shutdown,
		Logger:     log,
	})
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return fmt.Errorf("serve: not listening at %s: %w: give --token-env or --issuer, or --insecure", f.addr, httpserve.ErrRemoteAddress)
	}
	return err
}
