package targets

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// Flags are the flags for reaching a server, the same for all commands.
type Flags struct {
	Transport, Protocol     string
	headers, headerFiles    []string
	env                     []string
	dir                     string
	Timeout, ConnectTimeout time.Duration
	insecure                bool
	caFile                  string
	Config, server          string
	TrustProject            bool
	elicit, sampling        string
	roots                   []string
	Verbose                 bool
	Framing                 jsonrpc.Framing
	oauth, NoOAuth          bool
	clientID, secretEnv     string
	issuer                  string
	scopes                  []string
	// LoginTimeout limits the login. Zero means the default.
	LoginTimeout time.Duration

	// AnyHeader allows headers that the protocol itself sets.
	AnyHeader bool
	Set       *pflag.FlagSet
}

const (
	defaultTimeout        = 30 * time.Second
	defaultConnectTimeout = 30 * time.Second
)

// Register adds the flags to a command's flag set.
func (f *Flags) Register(all *pflag.FlagSet) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Define(fs)
	fs.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{kit.OfTarget: nil} })
	all.AddFlagSet(fs)
	f.Set = all
}

// Define adds the flags to fs, which need not be that of a command.
func (f *Flags) Define(fs *pflag.FlagSet) {
	fs.StringVar(&f.Transport, "transport", TransportAuto, "transport: `KIND` is auto, stdio, http (Streamable HTTP) or sse (HTTP+SSE)")
	fs.StringVar(&f.Protocol, "protocol", "auto", "auto, modern, legacy, or a `REVISION` that mcpwire version lists")
	fs.StringArrayVarP(&f.headers, "header", "H", nil, "`'NAME: VALUE'` to send with each HTTP request; ${VARIABLE} is replaced from the environment; may be repeated")
	fs.StringArrayVar(&f.headerFiles, "header-file", nil, "`FILE` of such headers, one per line")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "set `NAME=VALUE` in the environment of a stdio server; may be repeated")
	fs.StringVar(&f.dir, "cwd", "", "working `FOLDER` of a stdio server")
	fs.DurationVar(&f.Timeout, "timeout", defaultTimeout, "time to wait for a response or progress; 0 means no limit")
	fs.DurationVar(&f.ConnectTimeout, "connect-timeout", defaultConnectTimeout, "time to wait for the connection, including the handshake; 0 means no limit")
	fs.BoolVar(&f.insecure, "insecure", false, "do not check the server's TLS certificate")
	fs.StringVar(&f.caFile, "cacert", "", "`FILE` of CA certificates, in PEM, to trust in addition to the system's")
	fs.StringVar(&f.Config, "config", "", "configuration `FILE` that contains --server")
	fs.StringVar(&f.server, "server", "", "`NAME` of a server in --config")
	fs.BoolVar(&f.TrustProject, "trust-project", false, "use a server from a project's own file, such as ./.mcp.json, without confirmation")
	fs.StringVar(&f.elicit, "elicit", "", "how to answer when the server asks the user: `WAY` is ask, decline, or @FILE with answers (default ask on a terminal, otherwise decline)")
	fs.StringVar(&f.sampling, "sampling", "", "offer the server a model: `WAY` is decline, or @FILE with its responses (default not to offer one)")
	fs.StringArrayVar(&f.roots, "root", nil, "`FOLDER` to offer to the server as a root; may be repeated")
	fs.BoolVarP(&f.Verbose, "verbose", "v", false, "show the server's standard error and connection details")
	fs.Func("framing", "message framing of a stdio server: `KIND` is line or header (default line)", kit.FramingFlag(&f.Framing, false))
	fs.BoolVar(&f.oauth, "oauth", false, "require OAuth; without this flag, it is used when the server requires it")
	fs.BoolVar(&f.NoOAuth, "no-oauth", false, "do not use OAuth")
	fs.StringVar(&f.clientID, "client-id", "", "`ID` of a client that is registered with the authorization server")
	fs.StringVar(&f.secretEnv, "client-secret-env", "", "environment variable `NAME` with the secret of --client-id; without a terminal, the client then acts for itself")
	fs.StringVar(&f.issuer, "issuer", "", "`URL` of the only authorization server that gets --client-id and its secret (default the one that the server names)")
	fs.StringArrayVar(&f.scopes, "scope", nil, "`SCOPE` to request; may be repeated")
}

// Given reports whether a flag was given.
func (f *Flags) Given(name string) bool { return f.Set != nil && f.Set.Changed(name) }

// The flags for only one kind of server.
var (
	onlyStdio = []string{"env", "cwd", "framing"}
	OnlyHTTP  = []string{"header", "header-file", "insecure", "cacert", "oauth", "no-oauth", "client-id", "client-secret-env", "issuer", "scope"}
)

// Merge applies the flags to a target. It returns an error if they don't fit it.
func (f *Flags) Merge(t *Spec) error {
	wrong, kind := OnlyHTTP, "a stdio server"
	if !t.IsStdio() {
		wrong, kind = onlyStdio, "a server over HTTP"
	}
	for _, name := range wrong {
		if f.Given(name) && (name != "env" || f.Config == "") {
			return exit.Usagef("--%s does not apply to %s", name, kind)
		}
	}
	switch f.Transport {
	case TransportAuto:
	case transportStdio:
		if !t.IsStdio() {
			return exit.Usagef("--transport stdio needs a command after --, not a URL")
		}
	case TransportHTTP, TransportSSE:
		if t.IsStdio() {
			return exit.Usagef("--transport %s needs a URL, not a command", f.Transport)
		}
		t.Transport = f.Transport
	default:
		return exit.Usagef("--transport %s: want auto, stdio, http or sse", safe.Line(f.Transport))
	}
	if f.Timeout < 0 || f.ConnectTimeout < 0 {
		return exit.Usagef("--timeout and --connect-timeout cannot be negative")
	}
	if t.timeout > 0 && !f.Given("timeout") {
		f.Timeout = t.timeout
	}
	if t.IsStdio() {
		return f.mergeProcess(t)
	}
	return f.mergeHTTP(t)
}

func (f *Flags) mergeProcess(t *Spec) error {
	for _, v := range f.env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return exit.Usagef("--env %s: want NAME=VALUE", safe.Line(name))
		}
	}
	t.Env = append(slices.Clone(t.Env), f.env...)
	if f.dir != "" {
		t.Dir = f.dir
	}
	if t.Dir != "" {
		if info, err := os.Stat(t.Dir); err != nil || !info.IsDir() {
			return exit.Usagef("the server cannot run in %s: no such folder", safe.Line(t.Dir))
		}
	}
	return nil
}

func (f *Flags) mergeHTTP(t *Spec) error {
	if f.oauth && f.NoOAuth {
		return exit.Usagef("--oauth and --no-oauth exclude each other")
	}
	if f.secretEnv != "" && f.clientID == "" {
		return exit.Usagef("--client-secret-env needs --client-id")
	}
	conf, err := ReadConfig()
	if err != nil {
		return err
	}
	defaults, err := f.parseHeaders(conf.headerLines(t.URL))
	if err != nil {
		return err
	}
	lines := slices.Clone(f.headers)
	for _, name := range f.headerFiles {
		text, err := os.ReadFile(name)
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
	configured := t.Header
	t.Header = defaults
	maps.Copy(t.Header, configured)
	maps.Copy(t.Header, given)
	return nil
}

// parseHeaders parses lines of the form NAME: VALUE.
func (f *Flags) parseHeaders(lines []string) (http.Header, error) {
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
func (f *Flags) parseHeader(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		if !ok {
			name = "…" // may be only a token
		}
		return "", "", exit.Usagef("--header %s: want 'NAME: VALUE'", safe.Clip(name, 40))
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if !f.AnyHeader && (slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Mcp-")) {
		return "", "", exit.Usagef("--header %s: the protocol itself has this header (mcpwire send can set it)", name)
	}
	if value, err = ExpandVariables(strings.TrimSpace(value)); err != nil {
		return "", "", exit.Usagef("--header %s: %w", name, err)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", "", exit.Usagef("--header %s: the value has control characters", name)
	}
	return name, value, nil
}

// Variable matches ${NAME} and ${NAME:-default}.
var Variable = lazyregexp.New(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)

// ExpandVariables expands ${NAME} and ${NAME:-default} from the environment. An unset variable is
// an error, because an empty token would look valid.
func ExpandVariables(s string) (string, error) {
	var err error
	s = Variable().ReplaceAllStringFunc(s, func(ref string) string {
		m := Variable().FindStringSubmatch(ref)
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

// Revisions returns the revisions that --protocol allows. Nil is all.
func (f *Flags) Revisions() ([]mcp.Revision, error) {
	if f.Protocol == "" || f.Protocol == "auto" {
		return nil, nil
	}
	if r, ok := mcp.ParseRevision(f.Protocol); ok {
		return []mcp.Revision{r}, nil
	}
	var list []mcp.Revision
	for _, r := range mcp.Revisions() {
		if f.Protocol == "modern" && r.Modern() || f.Protocol == "legacy" && !r.Modern() {
			list = append(list, r)
		}
	}
	if list == nil {
		return nil, exit.Usagef("--protocol %s: want auto, modern, legacy or one of %v", safe.Line(f.Protocol), mcp.Revisions())
	}
	return list, nil
}

// Process returns the command of a stdio server. Its standard error goes to tail.
func (f *Flags) Process(t *Spec, tail *kit.TailWriter) *stdio.Cmd {
	cmd := stdio.Command(t.Command[0], t.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Framing, cmd.Stderr = t.Dir, t.Env, f.Framing, tail
	cmd.StopWait, cmd.TermWait, cmd.KillWait = StopWait, TermWait, killWait
	return cmd
}

// The grace periods of a stdio server are short, because a command should end soon after its
// output. Servers that ignore the end of their input get a signal.
const (
	StopWait = time.Second
	TermWait = 2 * time.Second
	killWait = 2 * time.Second
)
