package login

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/internal/test/issuer"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// eras are the revisions that clients and upstreams of the tests speak.
var eras = []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newIssuer returns an authorization server. The value of the browser's cookie with a name is the
// user.
func newIssuer(t testing.TB, cookie string) *issuer.Issuer {
	i := issuer.Start(t)
	i.Refresh = true
	i.User = func(r *http.Request) string {
		c, err := r.Cookie(cookie)
		if err != nil {
			return ""
		}
		return c.Value
	}
	i.Clients = map[string]string{"gateway-web": "", "gateway": "secret"}
	i.AuthMethods("none", "client_secret_basic")
	i.Metadata["/.well-known/openid-configuration"] = i.Document()
	return i
}

const testResource = "https://gw.example.com/mcp"

// A recorder records all bytes of requests to a handler. Requests for the tool delete need the
// scope admin.
type recorder struct {
	h    http.Handler
	as   *issuer.Issuer
	mu   sync.Mutex
	text bytes.Buffer
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	fmt.Fprintf(&r.text, "%s %s\n", req.Method, req.URL)
	_ = req.Header.Write(&r.text)
	r.text.Write(body)
	r.mu.Unlock()
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok && strings.Contains(string(body), `"delete"`) {
		if p, err := r.as.Verify(req.Context(), token); err == nil && !p.HasScopes("admin") {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="admin"`)
			w.WriteHeader(http.StatusForbidden)
			return
		}
	}
	r.h.ServeHTTP(w, req)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// A world has a gateway, with an upstream that needs a login, and its authorization servers.
type world struct {
	t        testing.TB
	idp, as  *issuer.Issuer
	logins   *Logins
	gateway  *gateway.Gateway
	url      string
	upstream *recorder
	up       UpstreamOptions
	options  Options
	// pages serves the pages instead of logins, unless it is nil.
	pages http.Handler

	mu      sync.Mutex
	records []string
}

// A worldOption changes the options of a world.
type worldOption func(*world, *Options, *UpstreamOptions)

// newWorld returns a world whose upstream speaks a revision.
func newWorld(t testing.TB, revision mcp.Revision, change ...worldOption) *world {
	w := &world{t: t, idp: newIssuer(t, "idp"), as: newIssuer(t, "as")}
	srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{revision}})
	t.Cleanup(func() { srv.Close(context.Background()) })
	must(t, server.AddTool(srv, "whoami", "", func(ctx context.Context, _ struct{}) (string, error) { return auth.PrincipalOf(ctx).Subject, nil }))
	must(t, server.AddTool(srv, "delete", "", func(context.Context, struct{}) (string, error) { return "deleted", nil }))
	must(t, server.AddPrompt(srv, mcp.Prompt{Name: "hello"}, func(ctx context.Context, _ struct{}) (string, error) { return auth.PrincipalOf(ctx).Subject, nil }))
	up := httptest.NewUnstartedServer(nil)
	server := "http://" + up.Listener.Addr().String() + "/mcp"
	guard, err := auth.NewGuard(&auth.GuardOptions{Resource: server, Verifier: w.as, AuthorizationServers: []string{w.as.URL}, DPoP: &auth.DPoPOptions{}})
	must(t, err)
	h, err := streamable.NewHandler(srv, &streamable.Options{Guard: guard})
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	for _, path := range guard.MetadataPaths() {
		mux.Handle(path, guard.Metadata())
	}
	w.upstream = &recorder{h: mux, as: w.as}
	w.serve(up, w.upstream, h)

	front := httptest.NewUnstartedServer(nil)
	w.url = "http://" + front.Listener.Addr().String()
	o := &Options{URL: w.url, Identity: &config.LoginIdentity{Issuer: w.idp.URL, ID: "gateway-web"}}
	w.up = UpstreamOptions{Name: "up", Server: server}
	for _, c := range change {
		c(w, o, &w.up)
	}
	w.options = *o
	w.logins, err = New(o)
	must(t, err)
	t.Cleanup(w.logins.Close)
	w.logins.Notify(w.note, func(name string, at time.Time, of func(context.Context) bool) { w.gateway.LoginChanged(name, at, of) })
	u, err := w.logins.Upstream(w.up)
	must(t, err)
	w.front(front, o, u)
	return w
}

// front serves the gateway.
func (w *world) front(front *httptest.Server, o *Options, u *Upstream) {
	t := w.t
	transport := streamable.NewTransport(w.up.Server, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: u.Transport(ownTransport(t))}})
	var err error
	w.gateway, err = gateway.New(&gateway.Options{ListWait: time.Minute, Audit: w.note, Upstreams: []gateway.Upstream{
		{Name: "up", PerPrincipal: true, Login: u, Bridge: bridge.Options{HTTP: true, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }}},
	}})
	must(t, err)
	t.Cleanup(func() { w.gateway.Close() })
	opts := &streamable.Options{}
	if o.Identity != nil {
		opts.Guard, err = auth.NewGuard(&auth.GuardOptions{Resource: testResource, Verifier: w.idp.Verifier(t, testResource), AuthorizationServers: []string{w.idp.URL}})
		must(t, err)
	}
	h, err := streamable.NewHandler(&relay.Server{Handler: w.gateway}, opts)
	must(t, err)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc(Path, func(rw http.ResponseWriter, r *http.Request) {
		if w.pages != nil {
			w.pages.ServeHTTP(rw, r)
			return
		}
		w.logins.ServeHTTP(rw, r)
	})
	w.serve(front, mux, h)
}

func (w *world) serve(s *httptest.Server, h http.Handler, stop *streamable.Handler) {
	s.Config.Handler = h
	s.Start()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		stop.Shutdown(ctx)
		s.CloseClientConnections()
		s.Close()
	})
}

func (w *world) note(r *gateway.CallRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", auth.PrincipalOf(r.Context).ID(), r.Method, r.Name, r.Outcome)))
}

// noted returns the records, without the issuer.
func (w *world) noted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, r := range w.records {
		list = append(list, strings.TrimPrefix(r, w.idp.URL+" "))
	}
	return list
}

func ownTransport(t testing.TB) *http.Transport {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// dial connects a client. show opens login pages; nil means that the client cannot. notify may be
// nil.
func (w *world) dial(token string, revision mcp.Revision, show func(url string) mcp.ElicitAction, notify func(method, params string)) *client.Client {
	w.t.Helper()
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	o := &client.Options{Revisions: []mcp.Revision{revision}}
	if show != nil {
		o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeURL}
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: show(p.URL)}, nil
		}
	}
	if notify != nil {
		o.OnNotification = func(method string, params json.RawMessage) { notify(method, string(params)) }
	}
	c, err := client.Dial(w.t.Context(), streamable.NewTransport(w.url+"/mcp", &streamable.TransportOptions{Header: header, HTTPClient: &http.Client{Transport: ownTransport(w.t)}}), o)
	must(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	return c
}

// A browser is the browser of a user of the gateway, who may be another user at the upstream.
type browser struct {
	t testing.TB
	*http.Client
	// visited has the URLs of all requests.
	visited []*url.URL
}

func (w *world) browser(user, upstreamUser string) *browser {
	jar, err := cookiejar.New(nil)
	must(w.t, err)
	b := &browser{t: w.t, Client: &http.Client{Jar: jar, Transport: ownTransport(w.t)}}
	b.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		b.visited = append(b.visited, req.URL)
		return nil
	}
	at, err := url.Parse(w.url)
	must(w.t, err)
	for name, value := range map[string]string{"idp": user, "as": upstreamUser} {
		if value != "" {
			jar.SetCookies(at, []*http.Cookie{{Name: name, Value: value, Path: "/"}}) // cookies do not depend on ports
		}
	}
	return b
}

// open opens a URL and returns the status and the page.
func (b *browser) open(address string) (int, string) {
	b.t.Helper()
	resp, err := b.Get(address)
	must(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return resp.StatusCode, string(body)
}

// login opens a login page and follows its link.
func (b *browser) login(address string) (int, string) {
	b.t.Helper()
	status, page := b.open(address)
	_, rest, ok := strings.Cut(page, `<a href="`)
	if !ok {
		return status, page
	}
	next, _, _ := strings.Cut(rest, `"`)
	return b.open(next)
}
