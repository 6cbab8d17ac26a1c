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
	"mcpwire/internal/auth/egress"
	"mcpwire/mcp"
	"mcpwire/oauth"
	"mcpwire/streamable"
)

// manualRedirect is a redirect URI at which no server listens.
const manualRedirect = "http://127.0.0.1:3118/callback"

// eras are the eras in which most tests run.
var eras = []struct {
	name     string
	revision mcp.Revision
}{
	{"modern", mcp.LatestRevision},
	{"legacy", mcp.LatestLegacyRevision},
}

// A siteUser is a user of a site, with a browser and an MCP client.
type siteUser struct {
	t       *testing.T
	site    *site
	auth    *oauth.Client
	browser *http.Client

	toSite   *recorder // requests to the site, with their tokens
	toIssuer *recorder // requests for metadata, registrations and tokens

	mu      sync.Mutex
	queries []url.Values // the queries of the authorization requests
}

// newSiteUser returns a user. change, if not nil, changes the options of the client.
func newSiteUser(t *testing.T, s *site, user string, change func(*siteUser, *oauth.ClientOptions)) *siteUser {
	t.Helper()
	v := &siteUser{t: t, site: s, toSite: &recorder{next: newTransport(t)}}
	v.toIssuer = &recorder{next: egress.NewTransport(&egress.Options{AllowLoopback: true})}
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

// newBrowser returns a browser in which the user is logged in at the issuer. It follows no
// redirects to other hosts.
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

// authorize opens an authorization URL, and returns the redirect URI with the response of the
// issuer.
func (v *siteUser) authorize(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	v.mu.Lock()
	v.queries = append(v.queries, u.Query())
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
		return "", fmt.Errorf("authorization: status %d without a redirect: %s", resp.StatusCode, page)
	}
	return location.String(), nil
}

// manual returns a prompter whose user copies the redirect URI.
func (v *siteUser) manual(redirect string) oauth.ManualPrompter {
	return oauth.ManualPrompter{RedirectURI: redirect, Visit: v.authorize}
}

// loopback returns a prompter that listens for the browser's redirect.
func (v *siteUser) loopback() oauth.LoopbackPrompter {
	return oauth.LoopbackPrompter{Timeout: 10 * time.Second, Browse: func(ctx context.Context, address string) error {
		callback, err := v.authorize(ctx, address)
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
			return fmt.Errorf("redirect to the client: status %d", resp.StatusCode)
		}
		return nil
	}}
}

// logins returns the queries of the authorization URLs that the user opened.
func (v *siteUser) logins() []url.Values {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.queries)
}

// dial connects to the site with a revision.
func (v *siteUser) dial(revision mcp.Revision) (*client.Client, error) {
	rt, err := v.auth.Transport(v.site.url, v.toSite)
	if err != nil {
		return nil, err
	}
	transport := streamable.NewTransport(v.site.url, &streamable.TransportOptions{HTTPClient: &http.Client{Transport: rt}})
	c, err := client.Dial(v.t.Context(), transport, &client.Options{Revisions: []mcp.Revision{revision}})
	if err != nil {
		return nil, err
	}
	v.t.Cleanup(func() { c.Close() })
	return c, nil
}

// mustDial is dial that fails the test on an error.
func (v *siteUser) mustDial(revision mcp.Revision) *client.Client {
	v.t.Helper()
	c, err := v.dial(revision)
	if err != nil {
		v.t.Fatalf("dial: %v", err)
	}
	if c.Revision() != revision {
		v.t.Fatalf("revision = %v, want %v", c.Revision(), revision)
	}
	return c
}

// whoami calls the tool whoami.
func (v *siteUser) whoami(c *client.Client) identity {
	v.t.Helper()
	got, err := client.CallTool[identity](v.t.Context(), c, "whoami", nil)
	if err != nil {
		v.t.Fatalf("whoami: %v", err)
	}
	return got
}

// A recordedRequest is a request with the status of its response.
type recordedRequest struct {
	method, url string
	header      http.Header
	form        url.Values // the body as a form
	body        string
	status      int
}

// A recorder is a transport that records requests.
type recorder struct {
	next http.RoundTripper

	mu  sync.Mutex
	all []recordedRequest
}

func newTransport(t *testing.T) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	seen := recordedRequest{method: req.Method, url: req.URL.String(), header: req.Header.Clone()}
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
		seen.form, _ = url.ParseQuery(seen.body) // other bodies have no members that tests look up
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

// matching returns the requests for which f returns true.
func (r *recorder) matching(f func(recordedRequest) bool) (found []recordedRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seen := range r.all {
		if f(seen) {
			found = append(found, seen)
		}
	}
	return found
}

// grants returns the number of successful token requests with a grant_type.
func (v *siteUser) grants(kind string) int {
	return len(v.toIssuer.matching(func(r recordedRequest) bool { return r.form.Get("grant_type") == kind && r.status == http.StatusOK }))
}

// registrations returns the number of registration requests.
func (v *siteUser) registrations() int {
	return len(v.toIssuer.matching(func(r recordedRequest) bool { return strings.HasSuffix(r.url, "/reg") }))
}

// last returns the last successful request to the site with a token.
func (v *siteUser) last() recordedRequest {
	v.t.Helper()
	all := v.toSite.matching(func(r recordedRequest) bool {
		return r.method == http.MethodPost && r.header.Get("Authorization") != "" && r.status < 300
	})
	if len(all) == 0 {
		v.t.Fatal("successful requests with a token = 0, want at least 1")
	}
	return all[len(all)-1]
}

// token returns the token of the last successful request.
func (v *siteUser) token() string {
	v.t.Helper()
	_, token, _ := strings.Cut(v.last().header.Get("Authorization"), " ")
	return token
}
