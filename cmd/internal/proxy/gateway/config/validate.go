package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mcpwire/auth"
	"mcpwire/capture"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/lazyregexp"
)

// upstreamName matches names of upstreams. They are part of the names of tools, which hosts limit
// to 64 bytes.
var upstreamName = lazyregexp.New(upstreamPattern)

const upstreamPattern = `^[A-Za-z0-9]([A-Za-z0-9-]|_[A-Za-z0-9-])*$`

// maxUpstreamName limits the length of the name of an upstream.
const maxUpstreamName = 32

// itemName matches the names that an item may be renamed to.
var itemName = lazyregexp.New(itemPattern)

const itemPattern = `^[A-Za-z0-9_.-]{1,96}$`

// validate reports what the types of the values cannot say.
func (c *Config) validate() {
	v := &validator{c, c.file, capture.NewRedactor(nil), map[string]string{}}
	v.listen()
	v.auth()
	v.admin()
	v.login()
	if _, ok := c.file.positions["upstreams"]; ok && c.Upstreams != nil && len(c.Upstreams) == 0 {
		v.errorf("upstreams", "upstreams has no upstream: add one, such as files: {command: [npx, -y, \"@modelcontextprotocol/server-filesystem\", /data]}")
	}
	first := map[string]*Upstream{}
	for _, u := range c.Upstreams {
		if other := first[strings.ToLower(u.Name)]; other != nil {
			v.keyErrorf(join("upstreams", u.Name), "the names of upstreams %q and %q differ in case only: rename one", other.Name, u.Name)
		}
		first[strings.ToLower(u.Name)] = u
		v.upstream(join("upstreams", u.Name), u)
	}
	for i, view := range c.Views {
		v.view(fmt.Sprintf("views[%d]", i), view)
	}
	for _, of := range []*string{&c.Pins, &c.Capture} {
		*of = below(c.file.dir, *of)
	}
	if c.Audit != "stderr" {
		c.Audit = below(c.file.dir, c.Audit)
	}
	v.burst("limits.perCaller", c.Limits.PerCaller.Rate, c.Limits.PerCaller.Burst)
	v.burst("limits.upstream", c.Limits.Upstream.Rate, c.Limits.Upstream.Burst)
}

// A validator checks a decoded configuration.
type validator struct {
	c        *Config
	file     *file
	redactor *capture.Redactor
	// renamed has the path of each new name of a tool or prompt.
	renamed map[string]string
}

// errorf reports an error at a value.
func (v *validator) errorf(path, format string, args ...any) {
	v.file.errorf(v.file.at(path), format, args...)
}

// keyErrorf reports an error at a key.
func (v *validator) keyErrorf(path, format string, args ...any) {
	v.file.errorf(v.file.key(path), format, args...)
}

// given reports whether the file has a value.
func (v *validator) given(path string) bool {
	_, ok := v.file.positions[path]
	return ok
}

// SocketAddress parses unix:PATH and tcp:HOST:PORT.
func SocketAddress(s string) (kind, where string, ok bool) {
	kind, where, ok = strings.Cut(s, ":")
	return kind, where, ok && where != "" && (kind == "unix" || kind == "tcp" && strings.Contains(where, ":"))
}

// isLocal reports whether other machines cannot reach an address HOST:PORT.
func isLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return host == "" || loopback.IsHost(host)
}

// address reports an invalid HOST:PORT.
func (v *validator) address(path, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /") {
		v.errorf(path, "%s is %q: want HOST:PORT, such as 127.0.0.1:8080", path, clip.Characters(address, 80))
		return false
	}
	return true
}

func (v *validator) listen() {
	l := &v.c.Listen
	if l.Address == "" {
		l.Address = DefaultAddress
	}
	if l.Path == "" {
		l.Path = DefaultPath
	}
	kind, where, socket := SocketAddress(l.Address)
	if socket || l.Address == "stdio" {
		for _, name := range []string{"path", "sse", "tls", "hosts", "origins", "behind", "sessionTimeout"} {
			if v.given("listen." + name) {
				v.keyErrorf("listen."+name, "listen.%s is for HTTP, and listen.address is %s", name, clip.Characters(l.Address, 80))
			}
		}
	}
	switch {
	case l.Address == "stdio":
	case socket && kind == "unix":
		l.Address = "unix:" + below(v.file.dir, where)
	case socket:
		if v.address("listen.address", where) && !isLocal(where) && !l.AllowRemote {
			v.errorf("listen.address", "other machines can reach %s, and a socket has no authentication: listen at 127.0.0.1, or set listen.allowRemote", where)
		}
	default:
		if v.address("listen.address", l.Address) && !isLocal(l.Address) && v.c.Auth == nil && !l.AllowRemote {
			v.errorf("listen.address", "other machines can reach %s without a token: add auth, listen at 127.0.0.1, or set listen.allowRemote", l.Address)
		}
	}
	if v.c.Auth != nil && (socket || l.Address == "stdio") {
		v.keyErrorf("auth", "auth is for HTTP, and listen.address is %s", clip.Characters(l.Address, 80))
	}
	for i, host := range l.Hosts {
		if strings.ContainsAny(host, "/ ") || host == "" {
			v.errorf(fmt.Sprintf("listen.hosts[%d]", i), "%q is not a host name, such as mcp.example.com", clip.Characters(host, 80))
		}
	}
	for i, origin := range l.Origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
			v.errorf(fmt.Sprintf("listen.origins[%d]", i), "%q is not an origin, such as https://app.example.com", clip.Characters(origin, 80))
		}
	}
	if _, err := l.Proxies(); err != nil {
		v.errorf("listen.behind", "listen.behind: %v", err)
	}
	if l.SSE && (l.Path == "/sse" || l.Path == "/messages") {
		v.errorf("listen.path", "listen.path is %s, which is a path of listen.sse", l.Path)
	}
}

// Proxies returns the networks of Behind.
func (l *Listen) Proxies() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range l.Behind {
		prefix, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network, such as 10.0.0.0/8", clip.Characters(text, 60))
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

func (v *validator) auth() {
	a := v.c.Auth
	if a == nil {
		return
	}
	switch {
	case v.given("auth.token") && v.given("auth.issuers"):
		v.keyErrorf("auth.token", "auth.token and auth.issuers exclude each other")
	case !v.given("auth.token") && len(a.Issuers) == 0:
		v.errorf("auth", "auth needs a token or issuers")
	case !v.given("auth.token") && a.Resource == "":
		v.errorf("auth", "auth.issuers needs auth.resource, the public URL of the gateway")
	case v.given("auth.token") && len(a.Scopes) > 0:
		v.errorf("auth.scopes", "auth.scopes needs auth.issuers: a fixed token has no scopes")
	}
	if a.Resource != "" {
		canonical, err := auth.CanonicalResource(a.Resource)
		if err != nil {
			v.errorf("auth.resource", "auth.resource: %v", err)
		} else {
			a.Resource = canonical
		}
	}
	for i, issuer := range a.Issuers {
		at := fmt.Sprintf("auth.issuers[%d]", i)
		v.url(at+".url", issuer.URL)
		if issuer.JWKS != "" {
			v.url(at+".jwks", issuer.JWKS)
			if issuer.Introspection != nil {
				v.keyErrorf(at+".jwks", "%s.jwks and introspection exclude each other", at)
			}
		}
		if issuer.Introspection != nil {
			v.url(at+".introspection.endpoint", issuer.Introspection.Endpoint)
		}
	}
}

// url reports what is not the URL of an HTTP server. https is required except on this machine,
// where secrets would go.
func (v *validator) url(path, text string) {
	if text == "" {
		return // reported as missing
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		v.errorf(path, "%s is not a URL, such as https://login.example.com", path)
	case u.User != nil:
		v.errorf(path, "%s has a user name or password in it", path)
	case u.Scheme == "http" && !loopback.IsHost(u.Hostname()):
		v.errorf(path, "%s needs https: over http anyone on the network path could read secrets", path)
	}
}

func (v *validator) admin() {
	a := &v.c.Admin
	if a.Address == "" {
		return
	}
	if v.address("admin.address", a.Address) && !isLocal(a.Address) && !a.AllowRemote {
		v.errorf("admin.address", "other machines can reach %s: listen at 127.0.0.1, or set admin.allowRemote", a.Address)
	}
	if _, port, _ := net.SplitHostPort(a.Address); a.Address == v.c.Listen.Address && port != "0" {
		v.errorf("admin.address", "admin and listen have the same address")
	}
}

// onlyFor lists the keys of an upstream that are for some kinds only.
var onlyFor = []struct{ key, kinds string }{
	{"args", "command"}, {"env", "command"}, {"inherit", "command"}, {"cwd", "command"}, {"framing", "command socket"},
	{"transport", "url"}, {"headers", "url"}, {"tls", "url"}, {"credentials", "url"},
}

func (v *validator) upstream(path string, u *Upstream) {
	if !upstreamName().MatchString(u.Name) || len(u.Name) > maxUpstreamName {
		v.keyErrorf(path, "%q cannot be the name of an upstream: want up to 32 letters, digits, hyphens and single underscores, such as files", clip.Characters(u.Name, 60))
	}
	var kinds []string
	for _, kind := range []string{"command", "url", "socket"} {
		if v.given(path + "." + kind) {
			kinds = append(kinds, kind)
		}
	}
	switch len(kinds) {
	case 0:
		if v.file.unknown[path] {
			return // the unknown key was probably meant
		}
		v.keyErrorf(path, "upstream %s needs a command, a url or a socket", u.Name)
		return
	case 1:
	default:
		v.keyErrorf(path+"."+kinds[1], "upstream %s has %s: want only one of them", u.Name, strings.Join(kinds, " and "))
		return
	}
	for _, only := range onlyFor {
		if v.given(path+"."+only.key) && !slices.Contains(strings.Fields(only.kinds), kinds[0]) {
			v.keyErrorf(path+"."+only.key, "%s does not apply to an upstream with a %s", only.key, kinds[0])
		}
	}
	switch kinds[0] {
	case "command":
		v.command(path, u)
	case "url":
		v.remote(path, u)
	case "socket":
		kind, where, ok := SocketAddress(u.Socket)
		if !ok {
			v.errorf(path+".socket", "%s.socket is %q: want unix:PATH or tcp:HOST:PORT", path, clip.Characters(u.Socket, 80))
		}
		if kind == "unix" {
			u.Socket = "unix:" + below(v.file.dir, where)
		}
	}
	v.rename(path+".rename", u)
	v.burst(path+".limits", u.Limits.Rate, u.Limits.Burst)
}

// burst reports a burst without a rate.
func (v *validator) burst(path string, rate float64, burst int) {
	if burst > 0 && rate == 0 && v.given(path+".burst") {
		v.keyErrorf(path+".burst", "%s.burst needs a rate", path)
	}
}

func (v *validator) command(path string, u *Upstream) {
	if len(u.Command) == 0 && v.given(path+".command") {
		v.errorf(path+".command", "%s.command is empty: want the program, and its arguments", path)
	}
	if len(u.Command) == 1 && strings.ContainsAny(u.Command[0], " \t") && !filepath.IsAbs(u.Command[0]) {
		v.errorf(path+".command", "%s.command is one program with a space in its name: write a list, such as [node, server.js]", path)
	}
	for _, name := range sortedKeys(u.Env) {
		value, at := u.Env[name], join(path+".env", name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			v.keyErrorf(at, "%q cannot be the name of a variable", clip.Characters(name, 60))
		case value.Text != "" && !isPath(value.Text) && v.redactor.Text(name+"="+value.Text) != name+"="+value.Text:
			v.secret(at)
		}
	}
	v.arguments(path, u)
	secrets := v.c.secretVariables()
	for i, name := range u.Inherit {
		at := fmt.Sprintf("%s.inherit[%d]", path, i)
		switch {
		case !inheritedName().MatchString(name):
			v.errorf(at, "%q is neither the name of a variable nor the beginning of names and *, such as AWS_*", clip.Characters(name, 60))
		case environ.Match(name, secrets):
			v.errorf(at, "%s: %s has a secret of the gateway, which servers do not inherit: if this one needs it, write env: {%s: \"env:%s\"}", at, name, name, name)
		}
	}
	u.Cwd = below(v.file.dir, u.Cwd)
}

// arguments reports secrets in the arguments of a command, which all users of the machine can read.
func (v *validator) arguments(path string, u *Upstream) {
	before := ""
	for i, arg := range slices.Concat(u.Command, u.Args) {
		flag, at := strings.TrimLeft(before, "-"), fmt.Sprintf("%s.command[%d]", path, i)
		if n := i - len(u.Command); n >= 0 {
			at = fmt.Sprintf("%s.args[%d]", path, n)
		}
		_, value, isHeader := strings.Cut(arg, ":")
		value = strings.TrimSpace(value)
		isHeader = isHeader && (flag == "H" || strings.EqualFold(flag, "header")) && before != flag
		switch {
		case isPath(arg) || harmlessArgument().MatchString(arg):
		case v.redactor.Text(arg) != arg, strings.Contains(arg, "://") && v.redactor.URL(arg) != arg,
			flag != before && !strings.Contains(before, "=") && v.redactor.Text(flag+"="+arg) != flag+"="+arg,
			isHeader && v.redactor.Args([]string{value})[0] != value:
			v.errorf(at, "%s looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there", at)
		}
		before = arg
	}
}

// harmlessArgument matches arguments that are no secrets where their names say so, and those with a
// variable in place of the secret.
var harmlessArgument = lazyregexp.New(`^(none|auto|true|false|env|oauth2?|basic|bearer|jwt|[0-9]{1,6})$|\$\{?[A-Za-z_]`)

// inheritedName matches what Inherit may have.
var inheritedName = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_()]*\*?|\*)$`)

// secret reports a secret in plain text.
func (v *validator) secret(at string) {
	v.errorf(at, "%s looks like a secret in plain text: put it into an environment variable and write env:NAME, or into a file and write file:PATH", at)
}

// isPath reports whether a value is a path, which is no secret even where its name is one.
func isPath(s string) bool {
	return filepath.IsAbs(s) || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../")
}

// OwnHeader reports whether the protocol itself sets a header.
func OwnHeader(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return strings.HasPrefix(name, "Mcp-") || slices.Contains([]string{
		"Accept", "Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Host", "Last-Event-Id",
	}, name)
}

const headerCharacters = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func (v *validator) remote(path string, u *Upstream) {
	plain := false
	if text := u.URL.Text; text != "" {
		parsed, err := url.Parse(text)
		switch {
		case err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http":
			v.errorf(path+".url", "%s.url is not a URL, such as https://example.com/mcp", path)
			return
		case parsed.User != nil || v.redactor.URL(text) != text:
			v.errorf(path+".url", "%s.url looks like it has a secret in it: put the URL into an environment variable and write env:NAME", path)
		}
		plain = parsed.Scheme == "http" && !loopback.IsHost(parsed.Hostname())
	}
	first := map[string]string{}
	for _, name := range sortedKeys(u.Headers) {
		value, at := u.Headers[name], join(path+".headers", name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case name == "" || strings.Trim(name, headerCharacters) != "":
			v.keyErrorf(at, "%q cannot be the name of a header", clip.Characters(name, 60))
		case OwnHeader(name):
			v.keyErrorf(at, "%s: the protocol itself has this header", at)
		case first[canonical] != "":
			v.keyErrorf(at, "%s and %s are the same header", first[canonical], name)
		case canonical == "Authorization" && u.Credentials != nil:
			v.keyErrorf(at, "%s and credentials exclude each other", at)
		case strings.ContainsFunc(value.Text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			v.errorf(at, "%s has control characters", at)
		case value.Text != "" && v.redactor.Text(name+"="+value.Text) != name+"="+value.Text:
			v.secret(at)
		}
		first[canonical] = name
	}
	if c := u.Credentials; c != nil {
		v.credentials(path+".credentials", c, plain)
	}
}

func (v *validator) credentials(path string, c *Credentials, plain bool) {
	var kinds []string
	for _, kind := range []string{"token", "client", "exchange", "login"} {
		if v.given(path + "." + kind) {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) == 0:
		v.errorf(path, "%s needs a token, client, exchange or login", path)
	case len(kinds) > 1:
		v.keyErrorf(path+"."+kinds[1], "%s has %s: want only one of them", path, strings.Join(kinds, " and "))
	case plain:
		v.errorf(path, "%s needs an https URL: over http anyone on the network path could read the token", path)
	}
	if c.Client != nil {
		v.url(path+".client.issuer", c.Client.Issuer)
	}
	if c.Login != nil {
		v.upstreamLogin(path+".login", c.Login)
	}
	if c.Exchange != nil {
		v.url(path+".exchange.issuer", c.Exchange.Issuer)
		if (c.Exchange.ID == "") != c.Exchange.Secret.IsZero() {
			v.errorf(path+".exchange", "%s.exchange: id and secret need each other", path)
		}
		if v.c.Auth == nil || len(v.c.Auth.Issuers) == 0 {
			v.keyErrorf(path+".exchange", "%s.exchange needs auth.issuers: without them, callers have no token to exchange", path)
		}
	}
}

// login reports who could log in for somebody else, and where the pages cannot be.
func (v *validator) login() {
	l, a := &v.c.Login, v.c.Auth
	if l.Store != "" && l.Store != "memory" {
		l.Store = below(v.file.dir, l.Store)
	}
	if l.Address != "" && v.address("login.address", l.Address) && !isLocal(l.Address) && l.Identity == nil {
		v.errorf("login.address", "other machines can reach %s: add login.identity, or listen at 127.0.0.1", l.Address)
	}
	if l.Identity != nil {
		v.url("login.identity.issuer", l.Identity.Issuer)
		if l.Identity.Issuer != "" && (a == nil || !slices.ContainsFunc(a.Issuers, func(i Issuer) bool { return i.URL == l.Identity.Issuer })) {
			v.errorf("login.identity.issuer", "login.identity.issuer is none of auth.issuers: callers and browsers must log in at the same one")
		}
	}
	if l.URL != "" {
		u, err := url.Parse(l.URL)
		if err == nil && u.Path == "/" && u.RawQuery == "" {
			l.URL = strings.TrimSuffix(l.URL, "/")
			u.Path = ""
		}
		v.url("login.url", l.URL)
		if err == nil && (u.Path != "" || u.RawQuery != "" || u.Fragment != "") {
			v.errorf("login.url", "login.url has a path or a query: want only the beginning, such as https://mcp.example.com")
		}
	}
	if !v.c.HasLogins() {
		return
	}
	kind, where, socket := SocketAddress(v.c.Listen.Address)
	if !socket {
		where = v.c.Listen.Address
	}
	local := where == "stdio" || kind == "unix" && socket || isLocal(where)
	switch {
	case l.Identity != nil:
	case a != nil && len(a.Issuers) > 0:
		v.errorf("auth", "credentials.login needs login.identity with auth.issuers, so that nobody can log in for somebody else: add login: {identity: {issuer: ..., id: ...}}")
	case !local:
		v.errorf("listen.address", "credentials.login needs auth.issuers and login.identity where other machines can connect, so that nobody can log in for somebody else")
	case !v.isLocalURL(l.URL) || a != nil && l.URL == "" && !v.isLocalURL(a.Resource):
		v.errorf("login.url", "credentials.login needs auth.issuers and login.identity if the gateway has a public URL, so that nobody can log in for somebody else")
	}
}

// isLocalURL reports whether a URL is that of this machine, or "".
func (v *validator) isLocalURL(text string) bool {
	u, err := url.Parse(text)
	return text == "" || err == nil && loopback.IsHost(u.Hostname())
}

// upstreamLogin reports parts of credentials.login that need others.
func (v *validator) upstreamLogin(path string, l *UpstreamLogin) {
	v.url(path+".issuer", l.Issuer)
	v.url(path+".authorizationEndpoint", l.AuthorizationEndpoint)
	v.url(path+".tokenEndpoint", l.TokenEndpoint)
	switch {
	case l.ID != "" && l.Issuer == "":
		v.keyErrorf(path+".id", "%s.id needs issuer: an id belongs to one authorization server", path)
	case l.ID == "" && !l.Secret.IsZero():
		v.keyErrorf(path+".secret", "%s.secret needs id", path)
	case (l.AuthorizationEndpoint == "") != (l.TokenEndpoint == ""):
		v.errorf(path, "%s: authorizationEndpoint and tokenEndpoint need each other", path)
	case l.TokenEndpoint != "" && (l.Issuer == "" || l.ID == ""):
		v.errorf(path, "%s: tokenEndpoint needs issuer and id", path)
	}
}

// rename reports new names that cannot be.
func (v *validator) rename(path string, u *Upstream) {
	for _, name := range sortedKeys(u.Rename) {
		to, at := u.Rename[name], join(path, name)
		prefix, _, _ := strings.Cut(to, "__")
		switch {
		case to == "": // reported as empty
		case name == "":
			v.keyErrorf(at, "%s has no name to replace", at)
		case !itemName().MatchString(to):
			v.errorf(at, "%s is %q: want up to 96 letters, digits, underscores, hyphens and dots", at, clip.Characters(to, 60))
		case v.renamed[to] != "":
			v.errorf(at, "%s and %s are both renamed to %s", v.renamed[to], at, to)
		case to != prefix && v.c.Upstream(prefix) != nil:
			v.errorf(at, "%s is %s, which looks like a name of upstream %s: use a name without two underscores", at, to, prefix)
		}
		v.renamed[to] = at
	}
}

func (v *validator) view(path string, view View) {
	if v.c.Auth == nil && v.given(path+".match") {
		v.keyErrorf(path+".match", "%s.match needs auth: without it, callers have neither claims nor scopes", path)
	}
	if len(view.Allow)+len(view.Deny) == 0 {
		v.errorf(path, "%s neither allows nor denies anything: add allow, such as [\"*\"]", path)
	}
}
