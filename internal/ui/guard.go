package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy is what the page may do: load its own files, talk to its own server, and show pictures and play sounds that it was given. No inline script or style runs, whatever captured data
// manages to become part of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// cookiePrefix is followed by the port, since cookies belong to a host with all its ports, and there may be two of us.
const cookiePrefix = "mcpwire-"

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if !s.hostAllowed(r.Host) {
		writeError(w, http.StatusForbidden, "this is not the name of this host")
		return
	}
	if r.URL.Path == "/" && r.URL.Query().Has("token") {
		s.logIn(w, r)
		return
	}
	if !isOwnRequest(r) {
		writeError(w, http.StatusForbidden, "requests of other sites are not answered")
		return
	}
	if !s.hasCookie(r) {
		s.writeUnauthorized(w, r)
		return
	}
	slots := s.requests
	if r.URL.Path == streamPath {
		slots = s.streams
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		writeBusy(w)
		return
	}
	t := &timedWriter{ResponseWriter: w}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &timedBody{ReadCloser: r.Body, w: t}
	}
	s.mux.ServeHTTP(t, r)
}

// setSecurityHeaders sets the headers that every answer has.
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

// hostAllowed judges a Host header. A page can have its own name point to this machine (DNS rebinding), and would then be of the same origin as we are; an address, or localhost, it
// cannot. Addresses of other machines are good only if those were let in.
func (s *Server) hostAllowed(hostport string) bool {
	host, _ := splitHost(hostport)
	if s.hosts[host] {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr.Unmap().IsLoopback() || s.opts.AllowRemote)
}

// splitHost returns the name, in lower case, and the port, which may be "".
func splitHost(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]"), ""
	}
	return lowerHost(host), port
}

func lowerHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// isOwnRequest reports whether a request is the page's, or the user's own. The pages of another port of this machine are of the same site, but strangers nevertheless.
func isOwnRequest(r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Values("Origin")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		// Following a link to the page is harmless: it has no data in it, and cannot be framed.
		if r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
			return true
		}
		return (site == "" || site == "none" || site == "same-origin") && (len(origin) == 0 || sameOrigin(origin, r.Host))
	}
	if site == "" && len(origin) == 0 || r.Header.Get("X-Mcpwire") != "1" {
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

// logIn gives the cookie to who knows the token.
func (s *Server) logIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !equalSecrets(r.URL.Query().Get("token"), s.token) {
		s.writeUnauthorized(w, r)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: s.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		// The link was on a page. Browsers would not send a strict cookie along a redirect that another site has begun, but do for a page's own reload.
		writeNotePage(w, http.StatusOK, `<meta http-equiv="refresh" content="0;url=/">`, "One moment", "The live view is being opened.")
	default:
		h := w.Header()
		h.Set("Location", "/")
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
func (s *Server) hasCookie(r *http.Request) bool {
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if equalSecrets(c.Value, s.session) {
			return true
		}
	}
	return false
}

// equalSecrets compares secrets in a time that says nothing about them, not even their lengths.
func equalSecrets(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// writeUnauthorized answers who is not known: the user with a page.
func (s *Server) writeUnauthorized(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		writeError(w, http.StatusUnauthorized, "open the address that mcpwire watch has printed")
		return
	}
	writeNotePage(w, http.StatusUnauthorized, "", "Not open", "Open the address that mcpwire watch --web has printed, with its token. Each run has another one.")
}

// writeNotePage answers with a small page. Its texts are constants.
func writeNotePage(w http.ResponseWriter, status int, head, title, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(`<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">` + head +
		"<title>" + title + " – mcpwire</title><h1>" + title + "</h1><p>" + text + "</p></html>\n"))
}
