package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
)

// A Filters has the filters of one upstream. Resource templates are resources.
type Filters struct {
	Tools, Prompts, Resources config.Filter
}

// maxViews limits the views that are kept.
const maxViews = 4096

// Views decides what each caller may see and use, by rules, which are the views of a configuration,
// and by the filters of its upstreams.
//
// The patterns of a rule are compared with UPSTREAM__NAME, where NAME is the server's own name of a
// tool or prompt, the URI of a resource, or a URI template, and those of a filter with NAME. In a
// pattern, "*" stands for any text, and a backslash makes the next character literal. Case counts.
// Claims that are objects match nothing.
//
// All rules that match a caller count. An item is visible if one of them allows it and none of them
// denies it; the order does not matter. So a caller that no rule matches sees nothing. The filters
// of an upstream hide items from everybody.
type Views struct {
	rules   []viewRule
	filters map[string]*upstreamFilter
	// digest tells these rules and filters from others in the keys of views.
	digest string

	mu    sync.RWMutex
	views map[string]*View // by their keys
}

// A ViewsError is an error in the configuration of views. Path is that of the value.
type ViewsError struct {
	Path string
	Err  error
}

func (e *ViewsError) Error() string { return e.Path + ": " + e.Err.Error() }

// NewViews returns the views of the rules, and of the filters by the name of the upstream, or a
// *[ViewsError]. Without rules, every caller sees all that the filters let through.
func NewViews(rules []config.View, filters map[string]Filters) (*Views, error) {
	v := &Views{filters: map[string]*upstreamFilter{}, views: map[string]*View{}}
	allows := false
	for i, r := range rules {
		c, err := compileRule(r)
		if err != nil {
			return nil, &ViewsError{fmt.Sprintf("views[%d]", i), err}
		}
		v.rules = append(v.rules, c)
		allows = allows || len(c.allow) > 0
	}
	if len(rules) > 0 && !allows {
		return nil, &ViewsError{"views", errors.New(`no rule allows anything, so nobody sees anything: add allow: ["*"] to a rule`)}
	}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		c, err := compileFilters(filters[name])
		if err != nil {
			return nil, &ViewsError{"upstreams." + name, err}
		}
		if c != nil {
			v.filters[name] = c
		}
	}
	text, err := json.Marshal([]any{rules, filters})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	v.digest = hex.EncodeToString(sum[:8])
	return v, nil
}

// Of returns the view of the caller of ctx, a [*View]. It is a gateway.Options.View.
func (v *Views) Of(ctx context.Context) gateway.View { return v.of(ctx) }

func (v *Views) of(ctx context.Context) *View {
	p := auth.PrincipalOf(ctx)
	var array [64]byte
	key := append(array[:0], v.digest...)
	for i := range v.rules {
		if v.rules[i].matches(p) {
			key = strconv.AppendInt(append(key, ' '), int64(i), 10)
		}
	}
	v.mu.RLock()
	view := v.views[string(key)]
	v.mu.RUnlock()
	if view != nil {
		return view
	}
	view = v.newView(string(key), p)
	v.mu.Lock()
	defer v.mu.Unlock()
	if kept := v.views[view.key]; kept != nil {
		return kept
	}
	if len(v.views) < maxViews {
		v.views[view.key] = view
	}
	return view
}

// newView combines the rules that match a principal.
func (v *Views) newView(key string, p *auth.Principal) *View {
	view := &View{everything: len(v.rules) == 0, filters: v.filters, key: key}
	for i := range v.rules {
		if v.rules[i].matches(p) {
			view.allow = append(view.allow, v.rules[i].allow...)
			view.deny = append(view.deny, v.rules[i].deny...)
		}
	}
	return view
}

// A View is what one caller, or several with the same rules, may see and use. It is immutable.
type View struct {
	key         string
	everything  bool
	allow, deny []pattern
	filters     map[string]*upstreamFilter
}

// Key returns a text that is equal for views that allow the same, so that lists can be cached. It
// contains nothing of the caller.
func (w *View) Key() string { return w.key }

// Allows implements gateway.View.
//
// A URI must be allowed both as it is written and as a server may read it, with escapes decoded and
// dot segments resolved, so that file:///public/../secret does not pass as public. It must not be
// denied with scheme and host in their usual form either, such as file:///secret for file:/secret,
// or as a server that reads only a part of it may take it, see partReadings. The same is true of
// URI templates, because clients name them for completion.
func (w *View) Allows(kind gateway.Kind, upstream, name string) bool {
	if w.everything && w.filters[upstream] == nil {
		return true
	}
	if !w.allows(kind, upstream, name) {
		return false
	}
	return kind != gateway.KindResource && kind != gateway.KindTemplate || w.allowsReadings(upstream, name)
}

// AllowsSome reports whether the view may show something of an upstream, so that its callers need
// to log in. It does not know what the upstream has.
func (w *View) AllowsSome(upstream string) bool {
	prefix := []byte(upstream + gateway.Separator)
	return w.everything || slices.ContainsFunc(w.allow, func(p pattern) bool {
		literal := p.parts[0]
		return bytes.HasPrefix(literal, prefix) || len(p.parts) > 1 && bytes.HasPrefix(prefix, literal)
	})
}

func (w *View) allows(kind gateway.Kind, upstream, name string) bool {
	f := w.filters[upstream]
	if f != nil && !f[kind].allows(name) {
		return false
	}
	if w.everything {
		return true
	}
	if kind == gateway.KindTemplate {
		kind = gateway.KindResource
	}
	var array [256]byte
	full := append(append(append(array[:0], upstream...), gateway.Separator...), name...)
	return matchesAny(w.allow, kind, full) && !matchesAny(w.deny, kind, full)
}

// denies reports whether a URI is denied, whatever is allowed.
func (w *View) denies(upstream, uri string) bool {
	if f := w.filters[upstream]; f != nil && f[gateway.KindResource].denies(uri) {
		return true
	}
	return matchesAny(w.deny, gateway.KindResource, []byte(upstream+gateway.Separator+uri))
}

// maxEscapes is how often escapes in a URI may be nested.
const maxEscapes = 3

// allowsReadings reports whether a URI that is allowed as it is written is also allowed in the ways
// in which a server may read it. Servers differ in whether they split off the query before or after
// they decode escapes, in whether they ignore white space as web browsers do, and in where a path
// begins.
func (w *View) allowsReadings(upstream, uri string) bool {
	written := uri
	for range maxEscapes + 1 {
		for _, form := range []string{uri, withoutBreaks(uri)} {
			for _, query := range []bool{true, false} {
				reading := cleanURI(form, query, true)
				if reading != written && !w.allows(gateway.KindResource, upstream, reading) {
					return false
				}
				plain := cleanURI(plainOrigin(form), query, true)
				if plain != reading && w.denies(upstream, plain) {
					return false
				}
				if slices.ContainsFunc(partReadings(plain, query), func(part string) bool { return w.denies(upstream, part) }) {
					return false
				}
				if !hasNoHost(form) {
					continue
				}
				if reading := cleanURI(form, query, false); reading != written && !w.allows(gateway.KindResource, upstream, reading) {
					return false
				}
			}
		}
		plain := unescape(uri)
		if plain == uri {
			return true
		}
		uri = plain
	}
	return false
}

// withoutBreaks returns a URI without what the URL standard of web browsers, and so the class URL
// of JavaScript, ignores: tabs and line breaks, and control characters and spaces at both ends.
func withoutBreaks(uri string) string {
	uri = strings.TrimFunc(uri, func(r rune) bool { return r <= ' ' })
	if !strings.ContainsAny(uri, "\t\r\n") {
		return uri
	}
	return strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(uri)
}

// unescape decodes the valid escapes of a URI.
func unescape(uri string) string {
	if !strings.Contains(uri, "%") {
		return uri
	}
	var b []byte
	for i := 0; i < len(uri); i++ {
		if uri[i] == '%' && i+2 < len(uri) {
			if c, err := hex.DecodeString(uri[i+1 : i+3]); err == nil {
				b = append(b, c...)
				i += 2
				continue
			}
		}
		b = append(b, uri[i])
	}
	return string(b)
}

// cleanURI resolves the dot segments and empty segments in the path of a URI. With query, what
// follows a question mark or a number sign is not part of the path. With host, the path begins
// after the host; many servers take notes://a/b for the path a/b, which has none.
func cleanURI(uri string, query, host bool) string {
	uri = strings.ReplaceAll(uri, `\`, "/")
	start, p, ok := strings.Cut(uri, ":")
	if !ok {
		return uri
	}
	start += ":"
	tail := ""
	if i := strings.IndexAny(p, "?#"); query && i >= 0 {
		p, tail = p[:i], p[i:]
	}
	if after, ok := strings.CutPrefix(p, "//"); ok {
		start, p = start+"//", after
		if host {
			name, rest, ok := strings.Cut(p, "/")
			if !ok {
				return uri
			}
			start, p = start+name+"/", rest
		}
	} else if after, ok := strings.CutPrefix(p, "/"); ok {
		start, p = start+"/", after
	} else if !hasDotSegment(p) {
		return uri // such as urn:x//y, which has no path
	}
	cleaned := path.Clean("/" + p)[1:]
	if strings.HasSuffix(p, "/") && cleaned != "" {
		cleaned += "/"
	}
	return start + cleaned + tail
}

// partReadings returns the URIs that mean the same as uri for a server that takes only the path of
// a URI, or the host as the first segment of a path, as many do: /a/b of file://x/a/b, and host/a
// of notes://host/a. They have the numbers of slashes that people write. URIs of the web have none.
// With query, what follows a question mark or a number sign is not part of the path.
func partReadings(uri string, query bool) (list []string) {
	scheme, rest, ok := strings.Cut(uri, ":")
	if _, web := defaultPorts[scheme]; web || !ok {
		return nil
	}
	if i := strings.IndexAny(rest, "?#"); query && i >= 0 {
		rest = rest[:i]
	}
	add := func(p string, slashes ...string) {
		for _, s := range slashes {
			list = append(list, scheme+":"+s+path.Clean("/" + p)[1:])
		}
	}
	if after, ok := strings.CutPrefix(rest, "//"); ok && !strings.HasPrefix(after, "/") {
		host, p, _ := strings.Cut(after, "/")
		host, _, _ = strings.Cut(host[strings.LastIndexByte(host, '@')+1:], ":")
		add(p, "", "/", "///")
		rest = host + "/" + p
	}
	add(rest, "", "/", "//", "///")
	return list
}

// hasDotSegment reports whether a path has a segment of one or two dots.
func hasDotSegment(p string) bool {
	p = "/" + p + "/"
	return strings.Contains(p, "/./") || strings.Contains(p, "/../")
}

// hasNoHost reports whether a server may read the text after the slashes of a URI as a path.
func hasNoHost(uri string) bool {
	scheme, rest, ok := strings.Cut(uri, "://")
	_, web := defaultPorts[strings.ToLower(scheme)]
	return ok && !web && !strings.HasPrefix(rest, "/")
}

// defaultPorts has the default ports of the schemes whose URIs always have a host, whatever number
// of slashes follows the colon.
var defaultPorts = map[string]string{"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21"}

// plainOrigin returns a URI with scheme and host in the form that most people write: in lower case,
// without a user, a default port or a dot at the end, and for files on this machine without a host:
// file:/x and file://localhost/x are file:///x (RFC 8089).
func plainOrigin(uri string) string {
	scheme, rest, ok := strings.Cut(strings.ReplaceAll(uri, `\`, "/"), ":")
	if !ok {
		return uri
	}
	scheme = strings.ToLower(scheme)
	after, hasHost := strings.CutPrefix(rest, "//")
	port, web := defaultPorts[scheme]
	switch {
	case web:
		after = strings.TrimLeft(rest, "/")
	case hasHost:
	case scheme == "file":
		return "file:///" + strings.TrimPrefix(rest, "/")
	default:
		return scheme + ":" + rest
	}
	n := len(after)
	if i := strings.IndexAny(after, "/?#"); i >= 0 {
		n = i
	}
	host := strings.ToLower(after[:n])
	if web {
		host = host[strings.LastIndexByte(host, '@')+1:]
		host = strings.TrimSuffix(strings.TrimSuffix(host, port), ".")
	} else if scheme == "file" && host == "localhost" {
		host = ""
	}
	return scheme + "://" + host + after[n:]
}

// An upstreamFilter has the compiled filters by kind.
type upstreamFilter [gateway.KindTemplate + 1]itemFilter

// An itemFilter is a compiled filter.
type itemFilter struct{ allow, deny []pattern }

// compileFilters returns nil if nothing is filtered.
func compileFilters(f Filters) (*upstreamFilter, error) {
	var c upstreamFilter
	some := false
	for _, one := range []struct {
		kind   gateway.Kind
		name   string
		filter config.Filter
	}{
		{gateway.KindTool, "tools", f.Tools}, {gateway.KindPrompt, "prompts", f.Prompts},
		{gateway.KindResource, "resources", f.Resources}, {gateway.KindTemplate, "resources", f.Resources},
	} {
		var err error
		if c[one.kind].allow, err = compileAll(one.filter.Allow); err != nil {
			return nil, fmt.Errorf("%s: allow: %w", one.name, err)
		}
		if c[one.kind].deny, err = compileAll(one.filter.Deny); err != nil {
			return nil, fmt.Errorf("%s: deny: %w", one.name, err)
		}
		some = some || len(one.filter.Allow)+len(one.filter.Deny) > 0
	}
	if !some {
		return nil, nil
	}
	return &c, nil
}

// allows reports whether the filter lets an item through.
func (f *itemFilter) allows(name string) bool {
	if len(f.allow)+len(f.deny) == 0 {
		return true
	}
	text := []byte(name)
	matches := func(p pattern) bool { return p.match(text) }
	return (len(f.allow) == 0 || slices.ContainsFunc(f.allow, matches)) && !f.denies(name)
}

// denies reports whether the filter hides an item, whatever it allows.
func (f *itemFilter) denies(name string) bool {
	text := []byte(name)
	return slices.ContainsFunc(f.deny, func(p pattern) bool { return p.match(text) })
}

// A viewRule is a compiled rule.
type viewRule struct {
	claims      []claimMatch
	scopes      []string
	principals  [][]pattern
	allow, deny []pattern
}

// A claimMatch is a condition for one claim.
type claimMatch struct {
	name string
	// path are the names below the claim.
	path   []string
	values []pattern
}

func compileRule(r config.View) (c viewRule, err error) {
	if c.allow, err = compilePatterns("allow", r.Allow); err != nil {
		return c, err
	}
	if c.deny, err = compilePatterns("deny", r.Deny); err != nil {
		return c, err
	}
	return c, c.compileMatch(r.Match)
}

func (c *viewRule) compileMatch(m config.Match) (err error) {
	for name, values := range m.Claims {
		cm := claimMatch{name: name}
		if strings.HasPrefix(name, "/") {
			parts := strings.Split(name[1:], "/")
			for i := range parts {
				parts[i] = jsonpointer.Unescape(parts[i])
			}
			cm.name, cm.path = parts[0], parts[1:]
		}
		if cm.name == "" || len(values) == 0 {
			return fmt.Errorf("claim %q: the name or the value is missing", name)
		}
		if cm.values, err = compileAll(values); err != nil {
			return fmt.Errorf("claim %q: %w", name, err)
		}
		c.claims = append(c.claims, cm)
	}
	for _, s := range m.Scopes {
		if s == "" || strings.ContainsAny(s, " \"\\") {
			return fmt.Errorf("%q is not a scope", s)
		}
	}
	c.scopes = m.Scopes
	for _, text := range m.Principals {
		parts := strings.Split(text, " ")
		if len(parts) > 3 {
			return fmt.Errorf("principal %q: want SUBJECT, ISSUER SUBJECT or ISSUER SUBJECT CLIENT", text)
		}
		ps, err := compileAll(parts)
		if err != nil {
			return fmt.Errorf("principal %q: %w", text, err)
		}
		c.principals = append(c.principals, ps)
	}
	return nil
}

// matches reports whether the rule is for the principal, which may be nil.
func (c *viewRule) matches(p *auth.Principal) bool {
	if len(c.claims)+len(c.scopes)+len(c.principals) == 0 {
		return true
	}
	if p == nil || !p.HasScopes(c.scopes...) {
		return false
	}
	for i := range c.claims {
		if !c.claims[i].matches(p) {
			return false
		}
	}
	return len(c.principals) == 0 || c.matchesID(p.ID())
}

// matchesID reports whether the id of a principal is one of the rule's.
func (c *viewRule) matchesID(id string) bool {
	parts := append(strings.SplitN(id, " ", 3), "", "")
	return slices.ContainsFunc(c.principals, func(ps []pattern) bool {
		own := parts
		if len(ps) == 1 { // the subject alone
			own = parts[1:]
		}
		for i := range ps {
			if !ps[i].match([]byte(own[i])) {
				return false
			}
		}
		return true
	})
}

// matches reports whether a claim of the principal has one of the values.
func (m *claimMatch) matches(p *auth.Principal) bool {
	value := []byte(p.Claims[m.name])
	if len(m.path) > 0 {
		value = jsonwire.Lookup(value, m.path...)
	}
	if len(value) == 0 || value[0] != '[' {
		return m.matchesValue(value)
	}
	for all := jsonwire.ArrayElements(value); all.Next(); {
		if m.matchesValue(all.Value()) {
			return true
		}
	}
	return false
}

// matchesValue reports whether one JSON value that is neither array nor object nor null has one of
// the values.
func (m *claimMatch) matchesValue(value []byte) bool {
	var text []byte
	switch {
	case len(value) == 0, value[0] == '{', value[0] == '[', value[0] == 'n':
		return false
	case value[0] == '"' && bytes.IndexByte(value, '\\') < 0:
		text = value[1 : len(value)-1]
	case value[0] == '"':
		text = []byte(jsonwire.Text(value))
	default:
		text = value
	}
	return slices.ContainsFunc(m.values, func(p pattern) bool { return p.match(text) })
}

// A pattern is a compiled pattern.
type pattern struct {
	// kind is used only if oneKind is set.
	kind    gateway.Kind
	oneKind bool
	// parts are the literal texts between the stars. A pattern without a star has one part.
	parts [][]byte
}

// compilePatterns compiles the patterns of a rule, which may name a kind.
func compilePatterns(what string, texts []string) (list []pattern, err error) {
	for _, text := range texts {
		var kind gateway.Kind
		oneKind := false
		for _, k := range []gateway.Kind{gateway.KindTool, gateway.KindPrompt, gateway.KindResource} {
			if rest, ok := strings.CutPrefix(text, k.String()+":"); ok {
				kind, oneKind, text = k, true, rest
				break
			}
		}
		p, err := compilePattern(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		p.kind, p.oneKind = kind, oneKind
		list = append(list, p)
	}
	return list, nil
}

// compileAll compiles patterns without a kind.
func compileAll(texts []string) (list []pattern, err error) {
	for _, text := range texts {
		p, err := compilePattern(text)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// compilePattern compiles a pattern without a kind.
func compilePattern(text string) (p pattern, err error) {
	var part []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '*':
			p.parts, part = append(p.parts, part), nil
			continue
		case '\\':
			if i++; i == len(text) {
				return p, fmt.Errorf("the pattern %q ends with a backslash", text)
			}
		}
		part = append(part, text[i])
	}
	p.parts = append(p.parts, part)
	return p, nil
}

func matchesAny(list []pattern, kind gateway.Kind, text []byte) bool {
	for i := range list {
		if (!list[i].oneKind || list[i].kind == kind) && list[i].match(text) {
			return true
		}
	}
	return false
}

// match reports whether the whole text matches. It takes the first place of each part, which is
// enough since stars are the only wildcard.
func (p *pattern) match(text []byte) bool {
	last := len(p.parts) - 1
	if last == 0 {
		return bytes.Equal(text, p.parts[0])
	}
	text, ok := bytes.CutPrefix(text, p.parts[0])
	if !ok {
		return false
	}
	for _, part := range p.parts[1:last] {
		i := bytes.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return bytes.HasSuffix(text, p.parts[last])
}
