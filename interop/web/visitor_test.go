package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/oauth"
	"mcpwire/streamable"
)

// manualRedirect is where users are sent back to; nobody listens there.
const manualRedirect = "http://127.0.0.1:3118/callback"

// eras are the two that every scenario happens in.
var eras = []struct {
	name     string
	revision mcp.Revision
}{
	{"modern", mcp.LatestRevision},
	{"legacy", mcp.LatestLegacyRevision},
}

// A visitor is a user with a browser and an MCP client.
type visitor struct {
	t       *testing.T
	site    *site
	auth    *oauth.Client
	browser *http.Client

	toSite   *recorder // requests to the site, as they are with their tokens
	toIssuer *recorder // for metadata, registrations and tokens

	mu     sync.Mutex
	visits []url.Values // the queries that the user was sent to the issuer with
}

// newVisitor returns one whose client has the options that change leaves.
func newVisitor(t *testing.T, s *site, user string, change func(*visitor, *oauth.ClientOptions)) *visitor {
	t.Helper()
	v := &visitor{t: t, site: s, toSite: &recorder{next: newTransport(t)}}
	v.toIssuer = &recorder{next: oauth.GuardedTransport(&oauth.EgressOptions{AllowLoopback: true})}
	v.browser = newBrowser(t, s.issuer, user)
	opts := &oauth.ClientOptions{
		Grant:             oauth.AuthorizationCode{Prompter: v.manual(manualRedirect)},
		MetadataTransport: v.toIssuer,
		AllowLoopbackHTTP: true,
		Logger:            slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(v, opts)
	}
	var err error
	if v.auth, err = oauth.NewClient(opts); err != nil {
		t.Fatal(err)
	}
	return v
}

// newBrowser returns a browser in which the user has only to agree. It stops
// where it would leave the issuer.
func newBrowser(t *testing.T, is *issuer, user string) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	home, err := url.Parse(is.root)
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(home, []*http.Cookie{{Name: "user", Value: user, Path: "/"}})
	return &http.Client{Jar: jar, Timeout: 10 * time.Second, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		switch {
		case req.URL.Host != home.Host:
			return http.ErrUseLastResponse
		case len(via) > 10:
			return errors.New("too many redirects")
		}
		return nil
	}}
}

// visit follows the redirects of the issuer and returns where they lead.
func (v *visitor) visit(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	v.visits = append(v.visits, u.Query())
	v.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := v.browser.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	location, err := resp.Location()
	if err != nil {
		page, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return "", fmt.Errorf("the user is stuck on a page with status %d: %s", resp.StatusCode, page)
	}
	return location.String(), nil
}

// manual is a redirector whose user copies the URL.
func (v *visitor) manual(redirect string) oauth.ManualPrompter {
	return oauth.ManualPrompter{RedirectURI: redirect, Visit: v.visit}
}

// loopback is a redirector that listens for the user's browser.
func (v *visitor) loopback() oauth.LoopbackPrompter {
	return oauth.LoopbackPrompter{Timeout: 10 * time.Second, Browse: func(ctx context.Context, address string) error {
		callback, err := v.visit(ctx, address)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, callback, nil)
		if err != nil {
			return err
		}
		resp, err := v.browser.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the client answers the browser with status %d", resp.StatusCode)
		}
		return nil
	}}
}

// asked returns the queries of the authorization URLs that the user opened.
func (v *visitor) asked() []url.Values {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.visits)
}

// dial connects to the site in a revision.
func (v *visitor) dial(revision mcp.Revision) (*client.Client, error) {
	rt, err := v.auth.Transport(v.site.url, v.toSite)
	if err != nil {
		return nil, err
	}
	transport := streamable.Dial(v.site.url, &streamable.DialOptions{HTTPClient: &http.Client{Transport: rt}})
	c, err := client.Dial(v.t.Context(), transport, &client.Options{Revisions: []mcp.Revision{revision}})
	if err != nil {
		return nil, err
	}
	v.t.Cleanup(func() { c.Close() })
	return c, nil
}

// mustDial is dial that fails the test on an error.
func (v *visitor) mustDial(revision mcp.Revision) *client.Client {
	v.t.Helper()
	c, err := v.dial(revision)
	if err != nil {
		v.t.Fatalf("dial: %v", err)
	}
	if c.Revision() != revision {
		v.t.Fatalf("agreed on %v, want %v", c.Revision(), revision)
	}
	return c
}

// whoami calls the tool of that name.
func (v *visitor) whoami(c *client.Client) identity {
	v.t.Helper()
	got, err := client.CallTool[identity](v.t.Context(), c, "whoami", nil)
	if err != nil {
		v.t.Fatalf("whoami: %v", err)
	}
	return got
}

// A recorded is a request, and the status of its answer.
type recorded struct {
	method, url string
	header      http.Header
	form        url.Values // of the body
	body        string
	status      int
}

// A recorder is a transport that remembers.
type recorder struct {
	next http.RoundTripper

	mu  sync.Mutex
	all []recorded
}

func newTransport(t *testing.T) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	seen := recorded{method: req.Method, url: req.URL.String(), header: req.Header.Clone()}
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		seen.body = string(text)
		seen.form, _ = url.ParseQuery(seen.body) // no form: then it has nothing that is looked for
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		seen.status = resp.StatusCode
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, seen)
	return resp, err
}

// matching returns the requests that f likes.
func (r *recorder) matching(f func(recorded) bool) (found []recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seen := range r.all {
		if f(seen) {
			found = append(found, seen)
		}
	}
	return found
}

// grants counts the token requests by their grant_type that succeeded.
func (v *visitor) grants(kind string) int {
	return len(v.toIssuer.matching(func(r recorded) bool { return r.form.Get("grant_type") == kind && r.status == http.StatusOK }))
}

// registrations counts them.
func (v *visitor) registrations() int {
	return len(v.toIssuer.matching(func(r recorded) bool { return strings.HasSuffix(r.url, "/reg") }))
}

// last returns the last request to the site with a token that was let in.
func (v *visitor) last() recorded {
	v.t.Helper()
	all := v.toSite.matching(func(r recorded) bool {
		return r.method == http.MethodPost && r.header.Get("Authorization") != "" && r.status < 300
	})
	if len(all) == 0 {
		v.t.Fatal("no request with a token was let in")
	}
	return all[len(all)-1]
}

// token returns the token that the last request was let in with.
func (v *visitor) token() string {
	v.t.Helper()
	_, token, _ := strings.Cut(v.last().header.Get("Authorization"), " ")
	return token
}
