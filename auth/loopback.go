package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	defaultLoopbackTimeout = 3 * time.Minute
	loopbackShutdown       = time.Second
)

// loopbackPage is all that the listener ever shows. It has nothing of the request in it.
const loopbackPage = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Done</title></head>
<body><p>You can close this window and go back to the application.</p></body></html>
`

// LoopbackPrompter is a [Prompter] for users with a browser on this machine. It listens on the machine itself for one answer and stops.
// See https://www.rfc-editor.org/rfc/rfc8252#section-7.3.
type LoopbackPrompter struct {
	// Show is given the URL that the user has to open. One of Show and Browse is required.
	Show func(authorizeURL string)
	// Browse opens the URL in the user's browser, with their consent. It is called after Show and
	// may ask for the consent: the answer of a user who opens the URL otherwise is taken meanwhile,
	// and ends ctx. It must return when the browser was started or ctx has ended. It must not use a
	// shell: the URL is checked to be one of the web, but it was chosen by a server. If it fails,
	// and there is Show, the user can still open the URL.
	Browse func(ctx context.Context, authorizeURL string) error
	// Port is the port to listen on; 0 means a random one.
	Port int
	// Timeout is how long the user may take. 0 means 3 minutes.
	Timeout time.Duration
}

// Prepare implements [Prompter]: it listens, where the known redirect URIs say that is on this machine, or else on 127.0.0.1 (on ::1 if there is no
// IPv4) and on a path that nobody can guess.
func (l LoopbackPrompter) Prepare(_ context.Context, known []string) (Prompt, error) {
	if l.Show == nil && l.Browse == nil {
		return nil, errors.New("Loopback has neither Show nor Browse")
	}
	hosts, path := []string{"127.0.0.1", "::1"}, "/callback/"+rand.Text()
	if len(known) > 0 {
		if hosts, path = loopbackHosts(known); hosts == nil {
			return nil, errors.New("none of the client's redirect URIs is on this machine")
		}
	}
	r := &loopbackPrompt{opts: l, path: path, answers: make(chan string, 1)}
	if err := r.listen(hosts, l.Port); err != nil {
		return nil, err
	}
	return r, nil
}

// loopbackHosts returns the path of the first redirect URI on this machine, and the hosts of all that have this path.
func loopbackHosts(known []string) (hosts []string, path string) {
	for _, k := range known {
		u, err := url.Parse(k)
		if err != nil || u.Scheme != "http" || !isLoopbackHost(u.Hostname()) {
			continue
		}
		if hosts == nil {
			path = u.EscapedPath()
		}
		if u.EscapedPath() == path {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts, path
}

type loopbackPrompt struct {
	opts       LoopbackPrompter
	host, path string
	listeners  []net.Listener
	server     *http.Server
	serving    sync.WaitGroup
	// answers gets the one answer.
	answers chan string

	mu sync.Mutex
	// state is what an answer must have; "" while none is wanted.
	state string
}

// listen listens on the first of the hosts on which it can.
func (lp *loopbackPrompt) listen(hosts []string, port int) error {
	var errs []error
	for _, host := range hosts {
		listeners, err := listenLoopback(host, port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, p, _ := net.SplitHostPort(listeners[0].Addr().String())
		lp.host, lp.listeners = net.JoinHostPort(host, p), listeners
		return nil
	}
	return fmt.Errorf("listening for the answer: %w", errors.Join(errs...))
}

// listenLoopback listens on an address of this machine. A browser may take "localhost" for either of two, so it is listened on both, if there are both.
func listenLoopback(host string, port int) ([]net.Listener, error) {
	if host != "localhost" {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		return []net.Listener{ln}, err
	}
	ln, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		ln, err = net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
		return []net.Listener{ln}, err
	}
	_, p, _ := net.SplitHostPort(ln.Addr().String())
	if ln6, err := net.Listen("tcp6", net.JoinHostPort("::1", p)); err == nil {
		return []net.Listener{ln, ln6}, nil
	}
	return []net.Listener{ln}, nil
}

// URI implements [Prompt].
func (lp *loopbackPrompt) URI() string { return "http://" + lp.host + lp.path }

// Authorize implements [Prompt].
func (lp *loopbackPrompt) Authorize(ctx context.Context, authorizeURL string) (string, error) {
	u, err := url.Parse(authorizeURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && isLoopbackHost(u.Hostname())) {
		return "", fmt.Errorf("%w: the authorization URL is not one of the web", ErrUntrusted)
	}
	lp.mu.Lock()
	lp.state = u.Query().Get("state")
	lp.mu.Unlock()
	lp.serve()
	timeout := lp.opts.Timeout
	if timeout <= 0 {
		timeout = defaultLoopbackTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	if lp.opts.Show != nil {
		lp.opts.Show(u.String())
	}
	failed := make(chan error, 1)
	if lp.opts.Browse != nil {
		var browsing sync.WaitGroup
		defer browsing.Wait()
		browseCtx, stop := context.WithCancel(ctx)
		defer stop()
		browsing.Go(func() {
			if err := lp.opts.Browse(browseCtx, u.String()); err != nil && lp.opts.Show == nil {
				failed <- fmt.Errorf("opening the browser: %w", err)
			}
		})
	}
	select {
	case query := <-lp.answers:
		return lp.URI() + "?" + query, nil
	case err := <-failed:
		return "", err
	case <-timer.C:
		return "", fmt.Errorf("%w: no answer within %v", ErrConsentRequired, timeout)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (lp *loopbackPrompt) serve() {
	lp.server = &http.Server{
		Handler:           http.HandlerFunc(lp.handle),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      5 * time.Second,
		IdleTimeout:       time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	for _, ln := range lp.listeners {
		lp.serving.Go(func() { lp.server.Serve(ln) })
	}
}

// handle takes the one request that is an answer: to the host and the path that the redirect URI has, and to the question that was asked. All others, as
// those that a page in the user's browser can make, change nothing.
func (lp *loopbackPrompt) handle(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	if req.Host != lp.host || req.Method != http.MethodGet || req.URL.EscapedPath() != lp.path || !lp.acceptState(req.URL.Query().Get("state")) {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, loopbackPage)
	lp.answers <- req.URL.RawQuery
}

// acceptState reports whether an answer with this state is wanted. It says so once.
func (lp *loopbackPrompt) acceptState(state string) bool {
	lp.mu.Lock()
	defer lp.mu.Unlock()
	if lp.state == "" || subtle.ConstantTimeCompare([]byte(state), []byte(lp.state)) != 1 {
		return false
	}
	lp.state = ""
	return true
}

// Close implements [Prompt]. The page that answers the last request is sent first.
func (lp *loopbackPrompt) Close() error {
	if lp.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), loopbackShutdown)
		defer cancel()
		if lp.server.Shutdown(ctx) != nil {
			lp.server.Close()
		}
	}
	for _, ln := range lp.listeners {
		ln.Close()
	}
	lp.serving.Wait()
	return nil
}
