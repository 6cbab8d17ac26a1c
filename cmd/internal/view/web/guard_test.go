package web_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
	"mcpwire/internal/net/httpserve"
)

// TestAccess shows that for each rule there is a request that nothing else would refuse.
func TestAccess(t *testing.T) {
	s := serve(t, nil, nil)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	u := s.base
	cookie := ""
	for _, c := range s.client.Jar.Cookies(mustURL(t, u)) {
		cookie = c.String()
	}
	s.client.Jar, s.keyless = nil, true // each request says for itself what it has
	const read, write = "/api/tools", "/api/diff"
	key := "X-Mcpwire: " + s.server.Key()
	bare := []string{"Cookie: " + cookie}
	mine := append([]string{key}, bare...)
	ours := append([]string{"Origin: " + u}, mine...)
	later := time.Now().Add(time.Minute).Unix()
	with := func(base []string, more ...string) []string { return append(append([]string{}, base...), more...) }
	for _, tt := range []struct {
		name, method, path string
		headers            []string
		want               int
	}{
		{"with the cookie", "GET", read, mine, 200},
		{"without", "GET", read, nil, 401},
		{"with another value", "GET", read, []string{key, "Cookie: mcpwire-" + port + "=x"}, 401},
		{"with an empty value", "GET", read, []string{key, "Cookie: mcpwire-" + port + "="}, 401},
		{"with the cookie of another port", "GET", read, []string{key, "Cookie: " + strings.Replace(cookie, port, "1", 1)}, 401},
		{"one of two cookies", "GET", read, []string{key, "Cookie: mcpwire-" + port + "=x; " + cookie}, 200},
		{"only with the key", "GET", read, []string{key}, 401},
		{"only with the cookie", "GET", read, bare, 401},
		{"with the cookie as the key", "GET", read, with(bare, "X-Mcpwire: "+cookie[strings.Index(cookie, "=")+1:]), 401},
		{"with the token as the key", "GET", read, with(bare, "X-Mcpwire: "+s.server.Token()), 401},
		{"with the value of before", "GET", read, with(bare, "X-Mcpwire: 1"), 401},
		{"the stream with the cookie", "GET", "/api/stream", bare, 401},
		{"a download with the cookie", "GET", "/api/save", bare, 401},
		{"a ticket with the cookie", "GET", "/api/ticket?path=" + read, bare, 401},
		{"with a ticket", "GET", read + "?ticket=" + s.server.TicketUntil(read, later), bare, 200},
		{"with a ticket and without the cookie", "GET", read + "?ticket=" + s.server.TicketUntil(read, later), nil, 401},
		{"with a ticket for another path", "GET", read + "?ticket=" + s.server.TicketUntil("/api/save", later), bare, 401},
		{"with a ticket that is over", "GET", read + "?ticket=" + s.server.TicketUntil(read, time.Now().Unix()-1), bare, 401},
		{"with a ticket whose time was changed", "GET", read + "?ticket=9" + s.server.TicketUntil(read, later), bare, 401},
		{"with a part of a ticket", "GET", read + "?ticket=" + strconv.FormatInt(later, 10), bare, 401},
		{"a post with a ticket", "POST", write + "?ticket=" + s.server.TicketUntil(write, later), with(bare, "Origin: "+u, "X-Mcpwire: 1"), 401},
		{"the page without", "GET", "/", nil, 401},
		{"the page", "GET", "/", bare, 200},
		{"a file without", "GET", "/static/main.css", nil, 401},
		{"a file", "GET", "/static/main.css", bare, 200},
		{"what is no file of the page", "GET", "/static/tokens.css", mine, 404},
		{"the stream without", "GET", "/api/stream", nil, 401},
		{"a file above", "GET", "/static/..%2fserver.go", mine, 404},

		{"the token", "GET", "/?token=" + s.server.Token(), nil, 303},
		{"another token", "GET", "/?token=" + strings.Repeat("A", 43), mine, 401},
		{"no token", "GET", "/?token=", mine, 401},
		{"the token elsewhere", "GET", "/api/tools?token=" + s.server.Token(), nil, 401},
		{"the token, posted", "POST", "/?token=" + s.server.Token(), with(ours), 401},

		{"localhost", "GET", read, with(mine, "Host: localhost:"+port), 200},
		{"LOCALHOST.", "GET", read, with(mine, "Host: LOCALHOST.:"+port), 200},
		{"another loopback address", "GET", read, with(mine, "Host: 127.9.9.9:"+port), 200},
		{"IPv6", "GET", read, with(mine, "Host: [::1]:"+port), 200},
		{"this host by name", "GET", read, with(mine, "Host: LocalHost.:"+port), 200},
		{"a rebound name", "GET", read, with(mine, "Host: evil.example:"+port), 403},
		{"a name that ends in ours", "GET", read, with(mine, "Host: localhost.evil.example:"+port), 403},
		{"another machine's address", "GET", read, with(mine, "Host: 192.0.2.1:"+port), 403},
		{"a rebound name with the token", "GET", "/?token=" + s.server.Token(), []string{"Host: evil.example:" + port}, 403},

		{"another site", "GET", read, with(mine, "Sec-Fetch-Site: cross-site"), 403},
		{"another port", "GET", read, with(mine, "Sec-Fetch-Site: same-site"), 403},
		{"the page itself", "GET", read, with(mine, "Sec-Fetch-Site: same-origin"), 200},
		{"typed by the user", "GET", read, with(mine, "Sec-Fetch-Site: none"), 200},
		{"another origin", "GET", read, with(mine, "Origin: http://evil.example"), 403},
		{"a link to the page", "GET", "/", with(mine, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 200},
		{"a link to data", "GET", read, with(mine, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 403},
		{"the page in a frame", "GET", "/", with(mine, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), 403},
		{"the page as a script", "GET", "/static/main.js", with(mine, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"), 403},

		{"a post", "POST", write, ours, 404},
		{"a post without the header", "POST", write, with(bare, "Origin: "+u), 403},
		{"a post with another value", "POST", write, with(bare, "Origin: "+u, "X-Mcpwire: 1"), 401},
		{"a post that says nothing of its origin", "POST", write, mine, 403},
		{"a post of the same origin", "POST", write, with(mine, "Sec-Fetch-Site: same-origin"), 404},
		{"a post of another site", "POST", write, with(ours, "Sec-Fetch-Site: cross-site"), 403},
		{"a post of another port", "POST", write, with(ours, "Sec-Fetch-Site: same-site"), 403},
		{"a post of no site", "POST", write, with(ours, "Sec-Fetch-Site: none"), 403},
		{"a post of another origin", "POST", write, with(mine, "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"), 403},
		{"a post of the null origin", "POST", write, with(mine, "Origin: null"), 403},
		{"a post of two origins", "POST", write, with(ours, "Origin: http://evil.example"), 403},
		{"a post of another port's origin", "POST", write, with(mine, "Origin: http://127.0.0.1:1"), 403},
		{"a post without the cookie", "POST", write, []string{key, "Origin: " + u}, 401},
		{"a method that is not there", "DELETE", read, ours, 404},
		{"reading by a post", "POST", read, ours, 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := ""
			if tt.method == http.MethodPost {
				body = `{"a":1,"b":2}`
			}
			s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			got := s.do(tt.method, tt.path, body, tt.headers...)
			if got.status != tt.want {
				t.Errorf("status %d, want %d: %s", got.status, tt.want, got.body)
			}
			if got.status != http.StatusOK && got.status != http.StatusSeeOther && tt.path != "/" && !strings.HasPrefix(tt.path, "/?") {
				if !strings.HasPrefix(got.body, `{"error":{"message":"`) || got.header.Get("Content-Type") != "application/json; charset=utf-8" {
					t.Errorf("the error is %s", got.body)
				}
			}
			checkHardened(t, got.header)
		})
	}
}

// checkHardened checks what every answer has, whatever it is.
func checkHardened(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; " +
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := h.Get("Cache-Control"); got != "no-store" && (got != "no-cache" || h.Get("ETag") == "") {
		t.Errorf("Cache-Control is %q", got)
	}
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("there is a %s", name)
		}
	}
}

func TestCookie(t *testing.T) {
	s := serveStrange(t, nil, nil)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	got := s.get("/?token=" + s.server.Token())
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/?key="+s.server.Key() {
		t.Errorf("status %d to %q, want 303 to / with the key", got.status, got.header.Get("Location"))
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.base, "http://"))
	cookie := got.header.Get("Set-Cookie")
	name, rest, _ := strings.Cut(cookie, "=")
	value, attributes, _ := strings.Cut(rest, "; ")
	if name != "mcpwire-"+port || attributes != "Path=/; HttpOnly; SameSite=Strict" {
		t.Errorf("the cookie is %q", cookie)
	}
	if key := s.server.Key(); len(key) != 43 || key == value || key == s.server.Token() {
		t.Errorf("the key %q is no secret of its own with 256 bits", key)
	}
	if len(value) != 43 || value == s.server.Token() {
		t.Errorf("its value %q is no secret of its own with 256 bits", value)
	}
	// A link on a page: browsers keep a strict cookie back along a redirect that another site has
	// begun.
	got = s.get("/?token="+s.server.Token(), "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
	if got.status != http.StatusOK || got.header.Get("Set-Cookie") == "" || !strings.Contains(got.body, `http-equiv="refresh" content="0;url=/?key=`+s.server.Key()+`"`) || strings.Contains(got.body, s.server.Token()) {
		t.Errorf("from another site, status %d: %s", got.status, got.body)
	}
	if got := s.get("/?token=wrong"); got.status != http.StatusUnauthorized || got.header.Get("Set-Cookie") != "" {
		t.Errorf("with the wrong token, status %d, cookie %q", got.status, got.header.Get("Set-Cookie"))
	}
}

func TestSecretsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 8 {
		s := web.New(watch.New(nil), nil)
		if len(s.Token()) != 43 || seen[s.Token()] {
			t.Errorf("the token is %q", s.Token())
		}
		seen[s.Token()] = true
	}
}

func TestRemoteAddress(t *testing.T) {
	for _, tt := range []struct {
		name    string
		opts    *web.Options
		want    error
		address string
	}{
		{"refused", nil, httpserve.ErrRemoteAddress, "0.0.0.0:0"},
		{"allowed", &web.Options{AllowRemote: true}, nil, "0.0.0.0:0"},
		{"loopback", nil, nil, "127.0.0.1:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := web.New(watch.New(nil), tt.opts)
			l, err := net.Listen("tcp", tt.address)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Serve(ctx, l); !errors.Is(err, tt.want) {
				t.Errorf("Serve: %v, want %v", err, tt.want)
			}
		})
	}
}

// TestRemoteHost shows that if other machines may connect, the addresses of this one are allowed in
// the Host header.
func TestRemoteHost(t *testing.T) {
	for remote, want := range map[bool]int{false: http.StatusForbidden, true: http.StatusUnauthorized} {
		s := web.New(watch.New(nil), &web.Options{AllowRemote: remote})
		for host, want := range map[string]int{"192.0.2.1:80": want, "evil.example": http.StatusForbidden} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = host
			s.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("remote %v: Host %s has status %d, want %d", remote, host, w.Code, want)
			}
		}
	}
}

func TestURL(t *testing.T) {
	s := web.New(watch.New(nil), nil)
	for addr, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080/?token=",
		"[::1]:8080":     "http://[::1]:8080/?token=",
		"0.0.0.0:8080":   "http://127.0.0.1:8080/?token=",
		"[::]:8080":      "http://127.0.0.1:8080/?token=",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.URL(a); got != want+s.Token() {
			t.Errorf("URL(%s) = %s, want %s…", addr, got, want)
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	s := serve(t, nil, nil)
	slots := s.server.Requests()
	for range cap(slots) {
		slots <- struct{}{}
	}
	if got := s.get("/api/tools"); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("status %d, want 503", got.status)
	}
	<-slots
	if got := s.get("/api/tools"); got.status != http.StatusOK {
		t.Errorf("with a free place, status %d", got.status)
	}
	if len(slots) != cap(slots)-1 {
		t.Errorf("%d places are taken, want %d", len(slots), cap(slots)-1)
	}
}

// TestHeavyRequestsWait shows that requests that hold payloads wait for their turn, and others do
// not.
func TestHeavyRequestsWait(t *testing.T) {
	s := serve(t, nil, nil)
	for range cap(s.server.Heavy()) {
		s.server.Heavy() <- struct{}{}
	}
	if got := s.get("/api/tools"); got.status != http.StatusOK {
		t.Errorf("status %d", got.status)
	}
	got := make(chan result, 1)
	go func() { got <- s.get("/api/row/1") }()
	for deadline := time.Now().Add(hang); len(s.server.Requests()) == 0; s.get("/api/tools") {
		if time.Now().After(deadline) {
			t.Fatal("the request does not come")
		}
	}
	select {
	case r := <-got:
		t.Errorf("status %d at once", r.status)
	default:
	}
	<-s.server.Heavy()
	if r := <-got; r.status != http.StatusNotFound {
		t.Errorf("status %d", r.status)
	}
}

func TestTooLarge(t *testing.T) {
	s := serve(t, nil, nil)
	if got := s.post("/api/diff", `{"a":1,"b":2`+strings.Repeat(" ", 1<<20)+`}`); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413: %s", got.status, got.body)
	}
	if got := s.post("/api/resend", `{"message":"`+strings.Repeat("x", 17<<20)+`"}`); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413: %s", got.status, got.body)
	}
}

func TestNotModified(t *testing.T) {
	s := serve(t, nil, nil)
	first := s.get("/static/main.css")
	if got := s.get("/static/main.css", "If-None-Match: "+first.header.Get("ETag")); got.status != http.StatusNotModified || got.body != "" {
		t.Errorf("status %d, body %q", got.status, got.body)
	}
}

// deadlines records the deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, t)
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = append(d.write, t)
	return nil
}

// TestDeadlines shows that each read of a body and each write has a deadline in the future.
func TestDeadlines(t *testing.T) {
	s := serve(t, nil, nil)
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/api/diff", strings.NewReader(`{"a":1,"b":2}`))
	r.Host = strings.TrimPrefix(s.base, "http://")
	r.Header.Set("X-Mcpwire", s.server.Key())
	r.Header.Set("Origin", s.base)
	for _, c := range s.client.Jar.Cookies(mustURL(t, s.base)) {
		r.AddCookie(c)
	}
	s.server.ServeHTTP(d, r)
	if d.Code != http.StatusNotFound || len(d.write) == 0 || time.Until(d.write[0]) <= 0 {
		t.Errorf("status %d, deadlines for writing %v", d.Code, d.write)
	}
	if len(d.read) == 0 || time.Until(d.read[0]) <= 0 {
		t.Errorf("deadlines for reading %v", d.read)
	}
}
