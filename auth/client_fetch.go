package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits on requests for metadata and tokens. They hold with every transport; a [GuardedTransport] has its own.
const (
	clientFetchTimeout  = 10 * time.Second
	maxClientFetchBytes = 256 << 10
)

// A fetcher sends the requests that authorization takes.
type fetcher struct {
	rt http.RoundTripper
	// loopback allows http to the machine itself.
	loopback bool
}

// A reply is a response that was read to its end.
type httpResponse struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request and reads the response. It does not follow redirects.
func (f *fetcher) do(ctx context.Context, req *http.Request) (*httpResponse, error) {
	if err := f.checkURL(req.URL); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clientFetchTimeout)
	defer cancel()
	resp, err := f.rt.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, f.transportError(req, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxClientFetchBytes+1))
	if err != nil {
		return nil, f.transportError(req, err)
	}
	if len(body) > maxClientFetchBytes {
		return nil, fmt.Errorf("%w: %s answered with more than %d bytes", ErrUntrusted, req.URL.Host, maxClientFetchBytes)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, fmt.Errorf("%w: %s answered with a redirect", ErrUntrusted, req.URL.Host)
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return nil, fmt.Errorf("%w: %s answered with status %d", ErrUnreachable, req.URL.Host, resp.StatusCode)
	}
	return &httpResponse{resp.StatusCode, resp.Header, body}, nil
}

// transportError describes an error of the transport. The caller's own context, if it has ended, is the reason.
func (f *fetcher) transportError(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return req.Context().Err()
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, req.URL.Host, err)
}

// get asks for a document. A status of 4xx means that there is none: found is false then.
func (f *fetcher) get(ctx context.Context, address string) (body []byte, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, false, fmt.Errorf("%w: a malformed URL", ErrUntrusted)
	}
	req.Header.Set("Accept", "application/json")
	r, err := f.do(ctx, req)
	if err != nil {
		return nil, false, err
	}
	if r.status != http.StatusOK {
		return nil, false, nil
	}
	// Sites that answer every path with their front page have no metadata.
	if t := r.header.Get("Content-Type"); strings.HasPrefix(t, "text/html") {
		return nil, false, nil
	}
	return r.body, true, nil
}

// post sends a body and returns whatever is answered, but for redirects and what says that the server is not available.
func (f *fetcher) post(ctx context.Context, address, contentType string, body []byte, header http.Header) (*httpResponse, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: a malformed URL", ErrUntrusted)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	return f.do(ctx, req)
}

// checkURL says whether requests may go to a URL that somebody else chose.
func (f *fetcher) checkURL(u *url.URL) error {
	if u.Host == "" || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%w: a URL that is not absolute, or has a password or a fragment", ErrUntrusted)
	}
	if u.Scheme == "https" || u.Scheme == "http" && f.loopback && isLoopbackHost(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%w: %s is not https", ErrUntrusted, printable(u.Scheme+"://"+u.Host, 200))
}

// checkEndpoint is checkURL for text.
func (f *fetcher) checkEndpoint(name, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %s is not a URL", ErrUntrusted, name)
	}
	if err := f.checkURL(u); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// decodeObject decodes a JSON object. Errors of the decoder are not passed on: they can quote what is secret.
func decodeObject(body []byte, v any) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("%w: not a JSON object", ErrUntrusted)
	}
	if json.Unmarshal(body, v) != nil {
		return fmt.Errorf("%w: malformed JSON, or members of other types than they should be", ErrUntrusted)
	}
	return nil
}
