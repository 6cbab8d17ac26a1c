package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mcpwire/internal/net/loopback"
)

const (
	maxFetchBytes = 256 << 10        // of metadata, key sets and introspection responses, in bytes
	fetchTimeout  = 10 * time.Second // for the whole request
)

// newFetchClient returns a client for the resource server's own requests. It follows no redirects,
// which could lead anywhere with secrets, and uses no cookies. The addresses come from the
// configuration, or from metadata at such addresses, so private addresses are allowed.
func newFetchClient(c *http.Client) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	}
	if own.Transport == nil {
		own.Transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    8,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  fetchTimeout,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Jar = nil
	return &own
}

// A statusError is a response with a status other than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// fetchBody sends req and returns the body of the response, which must have status 200. Errors
// contain neither the URL's query nor the request's body.
func fetchBody(c *http.Client, req *http.Request) (body []byte, contentType string, err error) {
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, "", fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("%s: %w", req.URL.Host, statusError(resp.StatusCode))
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxFetchBytes+1))
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	if len(body) > maxFetchBytes {
		return nil, "", fmt.Errorf("%s: response of more than %d bytes", req.URL.Host, maxFetchBytes)
	}
	contentType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return body, contentType, nil
}

// fetchDocument fetches a document.
func fetchDocument(ctx context.Context, c *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	body, _, err := fetchBody(c, req)
	return body, err
}

// checkEndpoint parses address. It must be an absolute URL without user, password and fragment, and
// use https, or http with a loopback host.
func checkEndpoint(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, fmt.Errorf("%q is not an absolute URL", address)
	case u.User != nil:
		return nil, errors.New("the URL has a user name or password")
	case u.Fragment != "" || strings.Contains(address, "#"):
		return nil, fmt.Errorf("%q has a fragment", address)
	case u.Scheme == "https", u.Scheme == "http" && loopback.IsHost(u.Hostname()):
		return u, nil
	}
	return nil, fmt.Errorf("%q does not use https", address)
}
