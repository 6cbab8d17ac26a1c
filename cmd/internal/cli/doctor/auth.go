package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/auth/egress"
	"mcpwire/internal/net/challenge"
	"mcpwire/internal/net/loopback"
	"mcpwire/mcp"
)

// authorization follows the chain from a 401 to the source of tokens
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization).
func (doc *doctor) authorization(ctx context.Context, r *webReply) {
	doc.report.worse(exit.Auth)
	s := doc.report.section(sectionAuth)
	s.note("the server requires authentication: HTTP 401")
	doc.report.Verdict = "the server requires authorization (HTTP 401)"
	if doc.d.Target.Header.Get("Authorization") != "" {
		l := s.bad("it rejects the given token").hint("check that the token is for this server, has not expired, and has the right scope")
		doc.report.Verdict = "the server rejects the token (HTTP 401)"
		if text := r.refusal(); text != "" {
			l.hint("the server says: %s", text)
			doc.report.Verdict += ": " + text
		}
	} else if text := r.refusal(); text != "" {
		doc.report.Verdict += ": it says: " + text
	}
	if u, err := url.Parse(doc.d.Target.URL); err == nil {
		if c := r.cause(u); c.Specific {
			s.bad("%s", safe.Clip(c.What, 240)).hint("%s", safe.Line(c.Fix))
			doc.report.Verdict += ": " + safe.Clip(c.What, 240)
		}
	}
	if r.basic() {
		s.bad("it, or a proxy in front of it, wants a user name and a password (Basic authentication)").hint("give them with --header 'Authorization: Basic …', the base64 of NAME:PASSWORD")
		doc.report.Verdict += ": with a user name and a password (Basic authentication)"
		doc.report.next(doc.mcpwire("doctor", "--header", "Authorization: Basic ${CREDENTIALS}")...)
		return
	}
	metadata := doc.challenge(s, r)
	issuers := doc.resource(ctx, s, metadata)
	if len(issuers) == 0 {
		doc.report.next(doc.mcpwire("doctor", "--header", bearer)...)
		return
	}
	if doc.issuer(ctx, s, issuers[0]) {
		s.note("mcpwire logs in with the browser if it runs on a terminal")
		doc.report.next(doc.mcpwire("info")...)
	} else {
		doc.report.next(doc.mcpwire("doctor", "--header", bearer)...)
	}
}

// refusal returns why a server rejects a token, in its own words, or "".
func (r *webReply) refusal() string {
	list, _ := challenge.Parse(r.header.Values("WWW-Authenticate")) // challenge reports the error
	for _, c := range list {
		if text := c.Params["error_description"]; text != "" {
			return safe.Clip(text, 200)
		}
	}
	return r.said()
}

// basic reports if WWW-Authenticate offers Basic authentication and nothing that MCP knows.
func (r *webReply) basic() bool {
	list, _ := challenge.Parse(r.header.Values("WWW-Authenticate"))
	has := func(scheme string) bool {
		return slices.ContainsFunc(list, func(c challenge.Challenge) bool { return c.Scheme == scheme })
	}
	return has("basic") && !has("bearer")
}

// challenge reports on WWW-Authenticate and returns the URL of the metadata that it names.
func (doc *doctor) challenge(s *doctorSection, r *webReply) string {
	values := r.header.Values("WWW-Authenticate")
	if len(values) == 0 {
		s.odd("the response has no WWW-Authenticate: clients must guess the authorization server").hint(`send WWW-Authenticate: Bearer resource_metadata="URL"`)
		return ""
	}
	list, err := challenge.Parse(values)
	if err != nil {
		s.bad("WWW-Authenticate is malformed: %s", safe.Clip(strings.Join(values, ", "), 200)).hint("quote the values of its parameters")
	}
	for _, c := range list {
		if c.Scheme != "bearer" {
			s.note("WWW-Authenticate offers %s", safe.Clip(c.Scheme, 40))
			continue
		}
		s.good("WWW-Authenticate: Bearer%s", challengeText(c.Params))
		if c.Params["resource_metadata"] == "" {
			s.note("it does not name the resource's metadata: clients try the well-known URLs")
		}
		return c.Params["resource_metadata"]
	}
	return ""
}

func challengeText(params map[string]string) string {
	text := ""
	for _, name := range []string{"error", "error_description", "scope", "resource_metadata"} {
		if v := params[name]; v != "" {
			text += " " + name + "=" + safe.Clip(v, 120)
		}
	}
	return text
}

// A resourceDocument is the protected resource metadata of a server
// (https://www.rfc-editor.org/rfc/rfc9728).
type resourceDocument struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// resource fetches the metadata of the server and returns its authorization servers.
func (doc *doctor) resource(ctx context.Context, s *doctorSection, named string) []string {
	u, err := url.Parse(doc.d.Target.URL)
	if err != nil {
		return nil
	}
	places := wellKnown(u, "oauth-protected-resource")
	if place, err := u.Parse(named); named != "" && err == nil { // it may be relative
		places = []string{place.String()}
	}
	for _, place := range places {
		var d resourceDocument
		status, err := doc.fetch(ctx, place, &d)
		if err != nil || status != http.StatusOK {
			doc.unfetched(s, named != "", place, status, err)
			continue
		}
		s.good("resource metadata: %s", targets.SafeURL(place))
		if want, err := auth.CanonicalResource(doc.d.Target.URL); err == nil {
			if got, err := auth.CanonicalResource(d.Resource); err != nil || got != want && !strings.HasPrefix(want, strings.TrimSuffix(got, "/")+"/") {
				s.bad("the metadata describes another resource: %s", safe.Clip(d.Resource, 120)).hint("resource must be the URL that clients use: %s", targets.SafeURL(want))
			}
		}
		if len(d.Servers) == 0 {
			s.bad("the metadata names no authorization server").hint("authorization_servers must have at least one")
		}
		if len(d.Scopes) > 0 {
			s.note("scopes: %s", safe.Clip(strings.Join(d.Scopes, " "), 200))
		}
		return d.Servers
	}
	s.bad("the resource metadata is missing: clients cannot find out where to get a token").hint("serve it at %s", targets.SafeURL(wellKnown(u, "oauth-protected-resource")[0]))
	return nil
}

func (doc *doctor) unfetched(s *doctorSection, named bool, place string, status int, err error) {
	line := s.note
	if named {
		line = s.bad
	}
	why := fmt.Sprintf("HTTP %d", status)
	if err != nil {
		why = safe.Clip(kit.Innermost(err).Error(), 200)
	}
	line("no metadata at %s: %s", targets.SafeURL(place), why)
}

// wellKnown returns the well-known URLs of a document about u: first with the path of u appended,
// then without it.
func wellKnown(u *url.URL, name string) []string {
	root := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/.well-known/" + name}
	if u.Path == "" || u.Path == "/" {
		return []string{root.String()}
	}
	long := root
	long.Path += u.Path
	return []string{long.String(), root.String()}
}

// An issuerDocument is the metadata of an authorization server
// (https://www.rfc-editor.org/rfc/rfc8414).
type issuerDocument struct {
	Issuer       string   `json:"issuer"`
	Authorize    string   `json:"authorization_endpoint"`
	Token        string   `json:"token_endpoint"`
	Registration string   `json:"registration_endpoint"`
	Challenges   []string `json:"code_challenge_methods_supported"`
	Documents    bool     `json:"client_id_metadata_document_supported"`
}

// issuer fetches the metadata of an authorization server and reports what a client needs. It
// returns whether a client can log in.
func (doc *doctor) issuer(ctx context.Context, s *doctorSection, issuer string) bool {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" {
		s.bad("the authorization server is not a URL: %s", safe.Clip(issuer, 120))
		return false
	}
	places := append(wellKnown(u, "oauth-authorization-server"), wellKnown(u, "openid-configuration")...)
	if u.Path != "" && u.Path != "/" {
		places = append(places, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	}
	for _, place := range places {
		var d issuerDocument
		status, err := doc.fetch(ctx, place, &d)
		if err != nil || status != http.StatusOK {
			doc.unfetched(s, false, place, status, err)
			continue
		}
		s.good("authorization server metadata: %s", targets.SafeURL(place))
		return doc.judgeIssuer(s, issuer, &d)
	}
	s.bad("the authorization server %s has no metadata", targets.SafeURL(issuer)).hint("serve it at %s", targets.SafeURL(places[0]))
	return false
}

func (doc *doctor) judgeIssuer(s *doctorSection, issuer string, d *issuerDocument) bool {
	fine := true
	wrong := func(format string, args ...any) *doctorLine {
		fine = false
		return s.bad(format, args...)
	}
	if d.Issuer != issuer {
		wrong("its issuer is %s, not %s: clients must reject that", safe.Clip(d.Issuer, 120), safe.Clip(issuer, 120)).hint("they must be identical, including a trailing slash")
	}
	if d.Authorize == "" || d.Token == "" {
		wrong("its metadata lacks authorization_endpoint or token_endpoint")
	}
	if !slices.Contains(d.Challenges, "S256") {
		wrong("code_challenge_methods_supported does not list S256: clients must stop").hint("support PKCE with S256, and list it")
	}
	switch {
	case d.Documents:
		s.good("clients may use the URL of a metadata document as their id")
	case d.Registration != "":
		s.good("clients can register themselves")
	default:
		s.odd("clients cannot register themselves").hint("register one by hand, and give its --client-id to mcpwire, and to the host if it lets you")
	}
	return fine
}

// fetch requests a document. Peers choose the URL, so only public addresses are allowed, unless the
// server runs on this machine.
func (doc *doctor) fetch(ctx context.Context, address string, into any) (int, error) {
	conf, err := doc.d.Flags.TLS()
	if err != nil {
		return 0, err
	}
	u, err := url.Parse(doc.d.Target.URL)
	if err != nil {
		return 0, err
	}
	transport := doc.metadata
	if transport == nil {
		transport = egress.NewTransport(&egress.Options{AllowLoopback: loopback.IsHost(u.Hostname()), Timeout: min(doc.wait, maxGuess), TLS: conf})
	}
	ctx, cancel := context.WithTimeout(ctx, min(doc.wait, maxGuess)+time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 256<<10))
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return resp.StatusCode, fmt.Errorf("not JSON: %w", err)
	}
	return resp.StatusCode, nil
}

// ownOrigins returns the origins of pages of the server itself and of this machine.
func ownOrigins(u *url.URL) []string {
	list := []string{u.Scheme + "://" + u.Host}
	// 6274 is the port of the MCP Inspector.
	for _, more := range []string{"http://localhost:6274", "http://127.0.0.1:6274", "null"} {
		if !slices.Contains(list, more) {
			list = append(list, more)
		}
	}
	return list
}

// origins reports which web pages may reach the server.
func (doc *doctor) origins(ctx context.Context, rev mcp.Revision, u *url.URL) {
	s := doc.report.section(sectionOrigin)
	with := func(origin string) int {
		r := doc.postHandshake(ctx, rev, func(q *http.Request) { q.Header.Set("Origin", origin) })
		return r.status
	}
	var yes, no []string
	for _, origin := range ownOrigins(u) {
		if with(origin) < 300 {
			yes = append(yes, origin)
		} else {
			no = append(no, origin)
		}
	}
	if len(yes) > 0 {
		s.note("accepted: %s", safe.Line(strings.Join(yes, " ")))
	}
	if len(no) > 0 {
		s.note("rejected: %s", safe.Line(strings.Join(no, " "))).hint("hosts in a browser need their origin allowed by the server")
	}
	foreign := with("http://foreign.invalid")
	switch {
	case foreign < 300 && loopback.IsHost(u.Hostname()):
		s.bad("pages of any site are accepted: every page that the user visits can call the tools of this server").hint("respond with 403 to an Origin that is not allowed")
	case foreign < 300:
		s.note("pages of any site are accepted")
	default:
		s.good("pages of other sites are rejected: HTTP %d", foreign)
	}
}

// forbidden reports the reason for a 403.
func (doc *doctor) forbidden(ctx context.Context, s *doctorSection, r *webReply, u *url.URL) {
	rev := newestFirst()[0]
	for _, origin := range ownOrigins(u) {
		if o := doc.postHandshake(ctx, rev, func(q *http.Request) { q.Header.Set("Origin", origin) }); o.status != 0 && o.status != http.StatusForbidden {
			s.bad("HTTP 403 to requests without Origin; with Origin %s it is %d", safe.Line(origin), o.status).hint("only browsers send Origin: the server must accept requests without one")
			doc.report.next(doc.mcpwire("doctor", "--header", "Origin: "+origin)...)
			return
		}
	}
	if o := doc.postHandshake(ctx, rev, func(q *http.Request) { q.Host = strings.Replace(u.Host, u.Hostname(), "localhost", 1) }); loopback.IsHost(u.Hostname()) && o.status != 0 && o.status != http.StatusForbidden {
		s.bad("HTTP 403 for the host %s; for localhost it is %d", safe.Line(u.Host), o.status).hint("the server accepts only some host names: use one of them in the URL, or add this one to the server's allowed hosts")
		doc.report.next(doc.elsewhereArgs(strings.Replace(u.String(), u.Hostname(), "localhost", 1), "doctor")...)
		return
	}
	doc.report.worse(exit.Auth)
	what, text := "HTTP 403: the server does not allow it", r.said()
	if text != "" {
		what += ": it says: " + text
	}
	l := s.bad("%s", what).detail(bodyLines(r)...)
	if r.header.Get("WWW-Authenticate") != "" {
		l.hint("its message: %s", safe.Clip(strings.Join(r.header.Values("WWW-Authenticate"), ", "), 200))
	} else if text != "" {
		l.hint("mcpwire does not know more than it says: see the server's log, or that of the proxy in front of it")
	} else {
		l.hint("mcpwire does not know why: a token may lack a scope, or a firewall in front of the server may block the client")
	}
	doc.report.next(doc.mcpwire("doctor", "--header", bearer)...)
}
