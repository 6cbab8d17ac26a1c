package connect

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/servers"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/lazyregexp"
)

func newGatewayImportCommand(e *kit.Env) *cobra.Command {
	trusted := false
	c := &cobra.Command{
		Use:   "import [HOST...]",
		Short: "write a configuration from the servers that hosts have configured",
		Long: `Write a configuration with the servers of all hosts, or of some, on standard
output. mcpwire servers lists them. Nothing is started or changed.

Secrets are not copied: variables, headers and URLs that look like secrets
become env:NAME, with a comment that says where the value is. Set these variables
for the gateway. A server with a secret in its arguments is left out, with a note
on standard error, because other users can read arguments. So is a server that
only a file of the project names, such as ./.mcp.json, unless you have allowed it
before or give --trust-project: whoever wrote the project chose its command.`,
		Example: `  mcpwire gateway import > gateway.yaml
  mcpwire gateway import claude-desktop cursor > gateway.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			for _, host := range args {
				if err := servers.CheckHost("gateway import", host); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: servers.CompleteHosts,
		RunE:              func(_ *cobra.Command, args []string) error { return runGatewayImport(e, args, trusted) },
	}
	c.Flags().BoolVar(&trusted, "trust-project", false, "also import servers from a project's own file, such as ./.mcp.json")
	return c
}

func runGatewayImport(e *kit.Env, only []string, trusted bool) error {
	here, files, err := servers.Find(only...)
	if err != nil {
		return err
	}
	servers.WarnAbout(e.Stderr, files)
	im := &hostImport{here: here, trusted: trusted, redactor: capture.NewRedactor(nil), comments: map[string]string{"listWait": "for servers that have to be installed"}, byKey: map[string]*gatewayconfig.Upstream{}, secrets: map[string]string{}}
	for _, f := range files {
		for _, s := range f.Servers {
			if err := im.add(s); err != nil {
				fmt.Fprintf(e.Stderr, "mcpwire: %s of %s is left out: %s\n", safe.Line(s.Name), safe.Line(servers.Tilde(here, s.File)), safe.Line(err.Error()))
			}
		}
	}
	if len(im.upstreams) == 0 {
		return exit.Fail(exit.Unexpected, "no_servers", "mcpwire servers shows where it looks", errors.New("gateway import: no servers to import"))
	}
	text, err := (&gatewayconfig.Config{Listen: gatewayconfig.Listen{Address: gatewayconfig.DefaultAddress}, Upstreams: im.upstreams, ListWait: importedListWait}).Format(im.comments)
	if err != nil {
		return err
	}
	if _, err := gatewayconfig.Parse("gateway.yaml", text); err != nil {
		return fmt.Errorf("gateway import: a server does not fit into a configuration: %w", err)
	}
	_, err = e.Stdout.Write(append([]byte("# See doc/gateway.md. Check it: mcpwire gateway check FILE\n"), text...))
	return err
}

// importedListWait is how long lists wait for servers. Many that hosts start are installed first.
const importedListWait = gatewayconfig.Duration(30 * time.Second)

// A hostImport makes upstreams of the servers of hosts.
type hostImport struct {
	here *hosts.Env
	// trusted allows servers that only a file of the project names.
	trusted   bool
	redactor  *capture.Redactor
	upstreams gatewayconfig.Upstreams
	comments  map[string]string
	// byKey has the upstreams by what they run.
	byKey map[string]*gatewayconfig.Upstream
	// taken has the names in lower case.
	taken []string
	// secrets has the values for variables that the configuration names and hosts have in plain
	// text.
	secrets map[string]string
}

// add adds a server, or returns why it cannot be added. The same server of several hosts is added
// once.
func (im *hostImport) add(s hosts.Server) error {
	if s.Scope == hosts.ScopeProject && !im.trusted && !hosts.IsTrusted(im.here, s) {
		return errors.New("only a file of the project names it: read it, and import with --trust-project if you trust the project")
	}
	plain := s
	plain.Env, plain.Headers, plain.EnvFile = nil, nil, ""
	expanded, err := plain.Expand(im.here)
	if err != nil {
		return err
	}
	u := &gatewayconfig.Upstream{Disabled: s.Disabled, Timeouts: gatewayconfig.Timeouts{Call: gatewayconfig.Duration(time.Duration(s.TimeoutMS) * time.Millisecond)}}
	comments := map[string]string{}
	switch {
	case s.IsRemote():
		u.URL = gatewayconfig.Value{Text: expanded.URL}
		if s.Transport == hosts.TransportSSE {
			u.Transport = targets.TransportSSE
		}
	case s.Command != "":
		command := append([]string{expanded.Command}, expanded.Args...)
		if !slices.Equal(targets.MaskCommand(command), command) {
			return errors.New("an argument looks like a secret: pass it in a variable or a header instead")
		}
		u.Command, u.Cwd = command, expanded.Cwd
	default:
		return errors.New("it has neither a command nor a URL: only its host can start it")
	}
	key := fmt.Sprintf("%q", []any{expanded.URL, expanded.Cwd, s.EnvFile, u.Command, s.Env, s.Headers})
	if same := im.byKey[key]; same != nil && same.Disabled == u.Disabled {
		return nil
	}
	im.byKey[key] = u
	u.Name = im.name(s)
	where := safe.Line(servers.Tilde(im.here, s.File))
	if text := expanded.URL; text != "" && im.redactor.URL(text) != text {
		u.URL = im.variable(u, "", "URL", text)
		comments["url"] = "the URL in " + where
	}
	if err := im.addEnv(u, s, comments, where); err != nil {
		return err
	}
	im.addHeaders(u, s, comments, where)
	im.upstreams = append(im.upstreams, u)
	im.comments["upstreams."+u.Name] = "from " + s.Host + ", " + where
	for at, text := range comments {
		im.comments["upstreams."+u.Name+"."+at] = text
	}
	return nil
}

// upstreamCharacters matches what the name of an upstream cannot have.
var upstreamCharacters = lazyregexp.New(`[^A-Za-z0-9-]+`)

// maxImported limits the length of names. There is room for the name of a host.
const maxImported = 20

// name returns a name for a server that no other one has.
func (im *hostImport) name(s hosts.Server) string {
	clean := func(name string) string {
		name = strings.Trim(upstreamCharacters().ReplaceAllString(name, "-"), "-")
		return strings.Trim(name[:min(len(name), maxImported)], "-")
	}
	base := cmp.Or(clean(s.Name), "server")
	name := base
	for n := 1; slices.Contains(im.taken, strings.ToLower(name)); n++ {
		name = fmt.Sprintf("%s-%d", base, n+1)
		if host := clean(s.Host); n == 1 && host != "" {
			name = base + "-" + host[:min(len(host), 10)]
		}
	}
	im.taken = append(im.taken, strings.ToLower(name))
	return name
}

// variable returns the environment variable for a value of an upstream: preferred, or a name made
// of the upstream and what if that has another value.
func (im *hostImport) variable(u *gatewayconfig.Upstream, preferred, what, value string) gatewayconfig.Value {
	name := preferred
	if other, ok := im.secrets[name]; !variableWord().MatchString(name) || ok && other != value {
		name = strings.ToUpper(strings.Trim(notVariable().ReplaceAllString(u.Name+"_"+what, "_"), "_"))
		if name[0] >= '0' && name[0] <= '9' {
			name = "MCP_" + name
		}
	}
	im.secrets[name] = value
	return gatewayconfig.Value{Reference: gatewayconfig.Reference{Env: name}}
}

var (
	variableWord = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	notVariable  = lazyregexp.New(`[^A-Za-z0-9]+`)
)

// hostReference matches a value that is only a reference to a variable, in the notations of hosts.
var hostReference = lazyregexp.New(`^(?:\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*))$`)

// reference returns the variable that a value refers to, or "" for another value.
func reference(value string) string {
	m := hostReference().FindStringSubmatch(value)
	if m == nil {
		return ""
	}
	return m[1] + m[2] + m[3]
}

// addEnv adds the variables of a server, and those of its file.
func (im *hostImport) addEnv(u *gatewayconfig.Upstream, s hosts.Server, comments map[string]string, where string) error {
	values, from := map[string]string{}, map[string]string{}
	if s.EnvFile != "" {
		plain := hosts.Server{Name: s.Name, Host: s.Host, File: s.File, Project: s.Project, EnvFile: s.EnvFile}
		expanded, err := plain.Expand(im.here)
		if err != nil {
			return err
		}
		for name, value := range expanded.Env {
			values[name], from[name] = value, safe.Line(servers.Tilde(im.here, expanded.EnvFile))
		}
	}
	for name, value := range s.Env {
		values[name], from[name] = value, where
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if u.Env == nil {
			u.Env = gatewayconfig.Values{}
		}
		switch ref := reference(value); {
		case ref != "":
			u.Env[name] = gatewayconfig.Value{Reference: gatewayconfig.Reference{Env: ref}}
		case im.isSecret(name, value):
			u.Env[name] = im.variable(u, name, name, value)
			comments["env."+name] = "the value in " + from[name]
		case strings.Contains(value, "${") || strings.Contains(value, "{env:"):
			u.Env[name] = im.variable(u, "", name, value)
			comments["env."+name] = "the value in " + from[name] + ", with its references replaced"
		default:
			u.Env[name] = gatewayconfig.Value{Text: value}
		}
	}
	return nil
}

// addHeaders adds the headers of a server. A bearer token becomes credentials.
func (im *hostImport) addHeaders(u *gatewayconfig.Upstream, s hosts.Server, comments map[string]string, where string) {
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		value := s.Headers[name]
		if token, ok := strings.CutPrefix(value, "Bearer "); ok && strings.EqualFold(name, "Authorization") {
			ref := gatewayconfig.Reference{Env: reference(token)}
			if ref.IsZero() {
				ref = im.variable(u, "", "TOKEN", token).Reference
				comments["credentials.token"] = "the token, without Bearer, in " + where
			}
			u.Credentials = &gatewayconfig.Credentials{Token: ref}
			continue
		}
		if gatewayconfig.OwnHeader(name) {
			continue
		}
		if u.Headers == nil {
			u.Headers = gatewayconfig.Values{}
		}
		switch ref := reference(value); {
		case ref != "":
			u.Headers[name] = gatewayconfig.Value{Reference: gatewayconfig.Reference{Env: ref}}
		case im.isSecret(name, value) || strings.Contains(value, "${") || strings.Contains(value, "{env:"):
			u.Headers[name] = im.variable(u, "", name, value)
			comments["headers."+name] = "the value in " + where
		default:
			u.Headers[name] = gatewayconfig.Value{Text: value}
		}
	}
}

// isSecret reports whether a value looks like a secret, by the rules for captures. A path is not a
// secret.
func (im *hostImport) isSecret(name, value string) bool {
	return value != "" && !filepath.IsAbs(value) && im.redactor.Text(name+"="+value) != name+"="+value
}
