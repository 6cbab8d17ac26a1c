package web

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An access decides which requests may use the server, see the package comment.
type access struct {
	allowRemote bool
	// token is the token in the URL that the user opens.
	token string
	// session is the value of the cookie. Browsers send it to all ports of this host.
	session string
	// key is the value of the header X-Mcpwire, which only the page knows.
	key string
}

func newAccess(opts *Options) access {
	a := access{allowRemote: opts.AllowRemote, token: cmp.Or(opts.Token, NewToken())}
	a.session, a.key = derive("cookie", a.token), derive("key", a.token)
	return a
}

// derive returns a secret for a use. It reveals neither secret nor the secrets for other uses.
func derive(use, secret string) string {
	sum := sha256.Sum256([]byte("mcpwire watch " + use + " " + secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// NewToken returns a random token for [Options]: 256 bits as text.
func NewToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// cookiePrefix is followed by the port, because all ports of a host share their cookies and
// several servers may run.
const cookiePrefix = "mcpwire-"

// permits reports whether a request may be served. Otherwise it has written the response, also for
// the request with which the user opens the page.
func (a *access) permits(w http.ResponseWriter, r *http.Request) bool {
	setSecurityHeaders(w.Header())
	switch {
	case !a.hostAllowed(r.Host):
		writeError(w, http.StatusForbidden, "the Host header does not name this host")
	case r.URL.Path == "/" && r.URL.Query().Has("token"):
		a.logIn(w, r)
	case !isOwnRequest(r):
		writeError(w, http.StatusForbidden, "requests of other sites are rejected")
	case !a.hasCookie(r) || strings.HasPrefix(r.URL.Path, "/api/") && !a.hasKey(r):
		a.writeUnauthorized(w, r)
	default:
		return true
	}
	return false
}

// policy lets the page load its own files, connect to its own server and show images and play
// audio from captures. It allows no inline script or style, so that captured data in the page
// cannot run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// setSecurityHeaders sets the headers of every response.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Embedder-Policy", "require-corp")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// hostAllowed checks a Host header. It prevents DNS rebinding: a page can make its own name
// resolve to this machine and would then have our origin, but it cannot do that with localhost or
// an address. Non-loopback addresses are allowed only with AllowRemote.
func (a *access) hostAllowed(hostport string) bool {
	host, _ := splitHost(hostport)
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr.Unmap().IsLoopback() || a.allowRemote)
}

// splitHost returns the host in lower case, and the port or "".
func splitHost(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]"), ""
	}
	return lowerHost(host), port
}

func lowerHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// isOwnRequest reports whether a request comes from our page or from the user. Pages on other
// ports of this machine are same-site, but are rejected too.
func isOwnRequest(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Values("Origin")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		// Following a link to the page is harmless: it carries no data, and the page cannot be
		// framed.
		if r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
			return true
		}
		return (site == "" || site == "none" || site == "same-origin") && (len(origin) == 0 || sameOrigin(origin, r.Host))
	}
	if site == "" && len(origin) == 0 || r.Header.Get("X-Mcpwire") == "" {
		return false
	}
	return (site == "" || site == "same-origin") && (len(origin) == 0 || sameOrigin(origin, r.Host))
}

func sameOrigin(origin []string, host string) bool {
	if len(origin) != 1 {
		return false
	}
	u, err := url.Parse(origin[0])
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

// logIn sets the cookie for a request with the token, and gives the page its key in an address that
// keeps the fragment. The page removes the key from the address.
func (a *access) logIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !equalSecrets(r.URL.Query().Get("token"), a.token) {
		a.writeUnauthorized(w, r)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: a.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		// The link was on another page. Browsers do not send a strict cookie with a redirect that
		// another site started, but they do after a reload by the page itself.
		writeNotePage(w, http.StatusOK, `<meta http-equiv="refresh" content="0;url=/?key=`+a.key+`">`, "One moment", "The live view is being opened.")
	default:
		h := w.Header()
		h.Set("Location", "/?key="+a.key)
		w.WriteHeader(http.StatusSeeOther)
	}
}

func cookieName(r *http.Request) string {
	_, port := splitHost(r.Host)
	for _, c := range port {
		if c < '0' || c > '9' {
			return cookiePrefix
		}
	}
	return cookiePrefix + port
}

// hasCookie reports whether a request has the cookie.
func (a *access) hasCookie(r *http.Request) bool {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if equalSecrets(c.Value, a.session) {
			return true
		}
	}
	return false
}

// hasKey reports whether a request has the key, or a ticket for its path. The cookie alone is worth
// nothing, since any other server of this host may have it.
func (a *access) hasKey(r *http.Request) bool {
	if equalSecrets(r.Header.Get("X-Mcpwire"), a.key) {
		return true
	}
	given := r.URL.Query().Get("ticket")
	until, _, _ := strings.Cut(given, ".")
	n, err := strconv.ParseInt(until, 10, 64)
	return err == nil && r.Method == http.MethodGet && time.Now().Unix() <= n && equalSecrets(given, a.ticket(r.URL.Path, n))
}

// ticketTime is how long a ticket can be used.
const ticketTime = time.Minute

// ticket returns a text that permits GET requests for a path until a Unix time.
func (a *access) ticket(path string, until int64) string {
	text := strconv.FormatInt(until, 10)
	return text + "." + derive("ticket "+a.key+" "+text, path)
}

// serveTicket returns a ticket for requests that cannot have a header: links, and EventSource.
func (a *access) serveTicket(w http.ResponseWriter, r *http.Request) error {
	u, err := url.Parse(r.URL.Query().Get("path"))
	if err != nil {
		return fail(http.StatusBadRequest, "path is not a path")
	}
	return writeJSON(w, map[string]string{"ticket": a.ticket(u.Path, time.Now().Add(ticketTime).Unix())})
}

// equalSecrets compares secrets in constant time, even if their lengths differ.
func equalSecrets(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// writeUnauthorized responds to a request without the cookie.
func (a *access) writeUnauthorized(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		writeError(w, http.StatusUnauthorized, "open the address that mcpwire watch --web printed")
		return
	}
	writeNotePage(w, http.StatusUnauthorized, "", "Not open", "Open the address that mcpwire watch --web printed, with its token. Each run has a new one.")
}

// writeNotePage responds with a small page. Its texts must not need escapes.
func writeNotePage(w http.ResponseWriter, status int, head, title, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(`<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">` + head +
		"<title>" + title + " – mcpwire</title><h1>" + title + "</h1><p>" + text + "</p></html>\n"))
}
