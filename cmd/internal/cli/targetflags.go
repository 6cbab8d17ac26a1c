package cli

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/smallfile"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// targetFlags are the flags for reaching a server, the same for all commands.
type targetFlags struct {
	transport, protocol     string
	headers, headerFiles    []string
	env                     []string
	dir                     string
	timeout, connectTimeout time.Duration
	insecure                bool
	caFile                  string
	config, server          string
	trustProject            bool
	elicit, sampling        string
	roots                   []string
	verbose                 bool
	framing                 jsonrpc.Framing
	oauth, noOAuth          bool
	clientID, secretEnv     string
	issuer                  string
	scopes                  []string
	// loginTimeout limits the login. Zero means the default.
	loginTimeout time.Duration

	// anyHeader allows headers that the protocol itself sets.
	anyHeader bool
	set       *pflag.FlagSet
}

const (
	defaultTimeout        = 30 * time.Second
	defaultConnectTimeout = 30 * time.Second
)

// register adds the flags to a command's flag set.
func (f *targetFlags) register(all *pflag.FlagSet) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.define(fs)
	fs.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{ofTarget: nil} })
	all.AddFlagSet(fs)
	f.set = all
}

func (f *targetFlags) define(fs *pflag.FlagSet) {
	fs.StringVar(&f.transport, "transport", transportAuto, "transport: `KIND` is auto, stdio, http (Streamable HTTP) or sse (HTTP+SSE)")
	fs.StringVar(&f.protocol, "protocol", "auto", "auto, modern, legacy, or a `REVISION` that mcpwire version lists")
	fs.StringArrayVarP(&f.headers, "header", "H", nil, "`'NAME: VALUE'` to send with each HTTP request; ${VARIABLE} is replaced from the environment; may be repeated")
	fs.StringArrayVar(&f.headerFiles, "header-file", nil, "`FILE` of such headers, one per line")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE` in the environment of a stdio server; may be repeated")
	fs.StringVar(&f.dir, "cwd", "", "working `FOLDER` of a stdio server")
	fs.DurationVar(&f.timeout, "timeout", defaultTimeout, "time to wait for a response or progress; 0 means no limit")
	fs.DurationVar(&f.connectTimeout, "connect-timeout", defaultConnectTimeout, "time to wait for the connection, including the handshake; 0 means no limit")
	fs.BoolVar(&f.insecure, "insecure", false, "do not check the server's TLS certificate")
	fs.StringVar(&f.caFile, "cacert", "", "`FILE` of CA certificates, in PEM, to trust in addition to the system's")
	fs.StringVar(&f.config, "config", "", "configuration `FILE` that contains --server")
	fs.StringVar(&f.server, "server", "", "`NAME` of a server in --config")
	fs.BoolVar(&f.trustProject, "trust-project", false, "use a server from a project's own file, such as ./.mcp.json, without confirmation")
	fs.StringVar(&f.elicit, "elicit", "", "how to answer when the server asks the user: `WAY` is ask, decline, or @FILE with answers (default ask on a terminal, otherwise decline)")
	fs.StringVar(&f.sampling, "sampling", "", "offer the server a model: `WAY` is decline, or @FILE with its responses (default not to offer one)")
	fs.StringArrayVar(&f.roots, "root", nil, "`FOLDER` to offer to the server as a root; may be repeated")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "show the server's standard error and connection details")
	fs.Func("framing", "message framing of a stdio server: `KIND` is line or header (default line)", f.setFraming)
	fs.BoolVar(&f.oauth, "oauth", false, "require OAuth; without this flag, it is used when the server requires it")
	fs.BoolVar(&f.noOAuth, "no-oauth", false, "do not use OAuth")
	fs.StringVar(&f.clientID, "client-id", "", "`ID` of a client that is registered with the authorization server")
	fs.StringVar(&f.secretEnv, "client-secret-env", "", "environment variable `NAME` with the secret of --client-id; without a terminal, the client then acts for itself")
	fs.StringVar(&f.issuer, "issuer", "", "`URL` of the only authorization server that gets --client-id and its secret (default the one that the server names)")
	fs.StringArrayVar(&f.scopes, "scope", nil, "`SCOPE` to request; may be repeated")
}

func (f *targetFlags) setFraming(s string) error {
	for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
		if s == framing.String() {
			f.framing = framing
			return nil
		}
	}
	return errors.New("want line or header")
}

// given reports whether a flag was given.
func (f *targetFlags) given(name string) bool { return f.set != nil && f.set.Changed(name) }

// The flags for only one kind of server.
var (
	onlyStdio = []string{"env", "cwd", "framing"}
	onlyHTTP  = []string{"header", "header-file", "insecure", "cacert", "oauth", "no-oauth", "client-id", "client-secret-env", "issuer", "scope"}
)

// merge applies the flags to a target. It returns an error if they don't fit it.
func (f *targetFlags) merge(t *targetSpec) error {
	wrong, kind := onlyHTTP, "a stdio server"
	if !t.isStdio() {
		wrong, kind = onlyStdio, "a server over HTTP"
	}
	for _, name := range wrong {
		if f.given(name) && (name != "env" || f.config == "") {
			return exit.Usagef("--%s does not apply to %s", name, kind)
		}
	}
	switch f.transport {
	case transportAuto:
	case transportStdio:
		if !t.isStdio() {
			return exit.Usagef("--transport stdio needs a command after --, not a URL")
		}
	case transportHTTP, transportSSE:
		if t.isStdio() {
			return exit.Usagef("--transport %s needs a URL, not a command", f.transport)
		}
		t.transport = f.transport
	default:
		return exit.Usagef("--transport %s: want auto, stdio, http or sse", safe.Line(f.transport))
	}
	if f.timeout < 0 || f.connectTimeout < 0 {
		return exit.Usagef("--timeout and --connect-timeout cannot be negative")
	}
	if t.timeout > 0 && !f.given("timeout") {
		f.timeout = t.timeout
	}
	if t.isStdio() {
		return f.mergeProcess(t)
	}
	return f.mergeHTTP(t)
}

func (f *targetFlags) mergeProcess(t *targetSpec) error {
	for _, v := range f.env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return exit.Usagef("--env %s: want NAME=VALUE", safe.Line(name))
		}
	}
	t.env = append(slices.Clone(t.env), f.env...)
	if f.dir != "" {
		t.dir = f.dir
	}
	if t.dir != "" {
		if info, err := os.Stat(t.dir); err != nil || !info.IsDir() {
			return exit.Usagef("the server cannot run in %s: no such folder", safe.Line(t.dir))
		}
	}
	return nil
}

func (f *targetFlags) mergeHTTP(t *targetSpec) error {
	if f.oauth && f.noOAuth {
		return exit.Usagef("--oauth and --no-oauth exclude each other")
	}
	if f.secretEnv != "" && f.clientID == "" {
		return exit.Usagef("--client-secret-env needs --client-id")
	}
	conf, err := readConfig()
	if err != nil {
		return err
	}
	defaults, err := f.parseHeaders(conf.headerLines(t.url))
	if err != nil {
		return err
	}
	lines := slices.Clone(f.headers)
	for _, name := range f.headerFiles {
		text, err := smallfile.Read(name)
		if err != nil {
			return exit.Usagef("--header-file: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
	}
	given, err := f.parseHeaders(lines)
	if err != nil {
		return err
	}
	configured := t.header
	t.header = defaults
	maps.Copy(t.header, configured)
	maps.Copy(t.header, given)
	return nil
}

// parseHeaders parses lines of the form NAME: VALUE.
func (f *targetFlags) parseHeaders(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, err := f.parseHeader(line)
		if err != nil {
			return nil, err
		}
		h[name] = append(h[name], value)
	}
	return h, nil
}

// ownHeaders are the headers that the protocol itself sets.
var ownHeaders = []string{"Accept", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Host", "Last-Event-Id"}

// parseHeader parses NAME: VALUE. Errors don't contain the value.
func (f *targetFlags) parseHeader(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		if !ok {
			name = "…" // may be only a token
		}
		return "", "", exit.Usagef("--header %s: want 'NAME: VALUE'", safe.Clip(name, 40))
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if !f.anyHeader && (slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Mcp-")) {
		return "", "", exit.Usagef("--header %s: the protocol itself has this header (mcpwire send can set it)", name)
	}
	if value, err = expandVariables(strings.TrimSpace(value)); err != nil {
		return "", "", exit.Usagef("--header %s: %w", name, err)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", "", exit.Usagef("--header %s: the value has control characters", name)
	}
	return name, value, nil
}

var variable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)

// expandVariables expands ${NAME} and ${NAME:-default} from the environment. An unset variable is
// an error, because an empty token would look valid.
func expandVariables(s string) (string, error) {
	var err error
	s = variable().ReplaceAllStringFunc(s, func(ref string) string {
		m := variable().FindStringSubmatch(ref)
		if v, ok := os.LookupEnv(m[1]); ok && (v != "" || !strings.Contains(ref, ":-")) {
			return v
		}
		if !strings.Contains(ref, ":-") {
			err = fmt.Errorf("the environment variable %s is not set", m[1])
		}
		return m[2]
	})
	return s, err
}

// revisions returns the revisions that --protocol allows. Nil is all.
func (f *targetFlags) revisions() ([]mcp.Revision, error) {
	if f.protocol == "" || f.protocol == "auto" {
		return nil, nil
	}
	if r, ok := mcp.ParseRevision(f.protocol); ok {
		return []mcp.Revision{r}, nil
	}
	var list []mcp.Revision
	for _, r := range mcp.Revisions() {
		if f.protocol == "modern" && r.Modern() || f.protocol == "legacy" && !r.Modern() {
			list = append(list, r)
		}
	}
	if list == nil {
		return nil, exit.Usagef("--protocol %s: want auto, modern, legacy or one of %v", safe.Line(f.protocol), mcp.Revisions())
	}
	return list, nil
}

// process returns the command of a stdio server. Its standard error goes to tail.
func (f *targetFlags) process(t *targetSpec, tail *tailWriter) *stdio.Cmd {
	cmd := stdio.Command(t.command[0], t.command[1:]...)
	cmd.Dir, cmd.Env, cmd.Framing, cmd.Stderr = t.dir, t.env, f.framing, tail
	cmd.StopWait, cmd.TermWait, cmd.KillWait = stopWait, termWait, killWait
	return cmd
}

// The grace periods of a stdio server are short, because a command should end soon after its
// output. Servers that ignore the end of their input get a signal.
const (
	stopWait = time.Second
	termWait = 2 * time.Second
	killWait = 2 * time.Second
)
