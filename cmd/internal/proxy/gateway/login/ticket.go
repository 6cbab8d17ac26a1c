package login

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mcpwire/auth"
)

// With Options.Ring, the id of a page and the cookie of an attempt are sealed texts, which each
// gateway with the same keys can open: a browser may be at another gateway in each step. Without
// it, they are random.

const (
	purposePage    = "gateway login page 1"
	purposeAttempt = "gateway login attempt 1"
	// maxPageID limits the bytes of the id of a page, and maxTicket those of a cookie.
	maxPageID, maxTicket = 1500, 3800
	// maxSkew is how far the clocks of gateways may differ.
	maxSkew = time.Minute
)

// A pageTicket is what the id of a page contains.
type pageTicket struct {
	Upstream string `json:"upstream"`
	User     string `json:"user"`
	// Server is that of serverID.
	Server string `json:"server"`
	// Created is in milliseconds since 1970.
	Created int64  `json:"created"`
	Random  string `json:"random"`
}

// An attemptTicket is what the cookie of an attempt contains.
type attemptTicket struct {
	Page string `json:"page"`
	// Nonce is that of the login to the gateway. It is empty in the second step, the login to the
	// upstream.
	Nonce    string `json:"nonce,omitempty"`
	State    string `json:"state"`
	Verifier string `json:"verifier"`
	// ProofKey is that of the attempt.
	ProofKey string `json:"proofKey,omitempty"`
	// Status, Header and Token are a rejection.
	Status int      `json:"status,omitempty"`
	Header []string `json:"header,omitempty"`
	Token  []byte   `json:"token,omitempty"`
}

// seal returns the sealed JSON text of v.
func (l *Logins) seal(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	text, _, err := l.opts.Ring.Seal(nil, purpose, plain, l.scope())
	return string(text), err
}

// open opens a text of seal. It reports false if it was not sealed with a key of this gateway.
func (l *Logins) open(text string, limit int, purpose string, v any) bool {
	if l.opts.Ring == nil {
		return false
	}
	plain, _, err := l.opts.Ring.Open(text, limit, purpose, l.scope())
	return err == nil && json.Unmarshal(plain, v) == nil
}

// scope returns what a sealed text is valid for: gateways with the same public URL that know in the
// same way who opens a page.
func (l *Logins) scope() []byte {
	scope := l.url
	if i := l.identity; i != nil {
		scope = strings.Join([]string{l.url, i.Issuer, i.ID, i.Claim}, "\x00")
	}
	return []byte(scope)
}

// serverID returns a text that differs for upstreams with another server or authorization server.
func (u *Upstream) serverID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{u.opts.Server, u.opts.Issuer, u.opts.ID}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// newPageID returns the id of a new page.
func (l *Logins) newPageID(a *account, now time.Time) (string, error) {
	if l.opts.Ring == nil {
		return rand.Text(), nil
	}
	id, err := l.seal(purposePage, pageTicket{Upstream: a.up.opts.Name, Server: a.up.serverID(), User: a.user, Created: now.UnixMilli(), Random: rand.Text()})
	if err == nil && len(id) > maxPageID {
		err = errors.New("the name of the user is too long for a link")
	}
	return id, err
}

// adopt returns the page of another gateway with the same keys, or nil if the id is not that of
// one, or is no longer valid.
func (l *Logins) adopt(id string) *page {
	var t pageTicket
	if !l.open(id, maxPageID, purposePage, &t) {
		return nil
	}
	created := time.UnixMilli(t.Created)
	age := time.Since(created)
	if age >= pageLife || age < -maxSkew {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages.byID[id]; p != nil {
		return p
	}
	u := l.upstreams[t.Upstream]
	if u == nil || u.serverID() != t.Server {
		return nil
	}
	a, err := l.accountLocked(u, t.User, principalOf(t.User))
	if err != nil {
		return nil
	}
	p, err := l.addPageLocked(id, a, created)
	if err != nil {
		l.opts.Logger.Warn("a login of another gateway was not continued", "upstream", t.Upstream, "user", t.User, "error", err)
		return nil
	}
	return p
}

// principalOf returns the principal of a user whose requests reach another gateway, for the audit.
func principalOf(user string) *auth.Principal {
	if user == localUser {
		return nil
	}
	issuer, subject, _ := strings.Cut(user, " ")
	// They are escaped, see auth.Principal.ID.
	for _, text := range []*string{&issuer, &subject} {
		if plain, err := url.PathUnescape(*text); err == nil {
			*text = plain
		}
	}
	return &auth.Principal{Issuer: issuer, Subject: subject}
}

// end removes a page whose user has logged in, for good. It reports if it was there.
func (l *Logins) end(p *page) bool {
	if _, err := l.used.add(p.id); err != nil {
		l.opts.Logger.Error("a link that was used is valid until it expires", "error", err)
	}
	return l.remove(p)
}

// ticket returns the cookie of an attempt.
func (a *attempt) ticket() (string, error) {
	if a.l.opts.Ring == nil {
		return rand.Text(), nil
	}
	t := attemptTicket{Page: a.page.id, State: a.state, Verifier: a.verifier, ProofKey: a.proofKey.Reveal()}
	if id := a.identification; id != nil {
		t.Nonce, t.State, t.Verifier = id.nonce, id.state, id.verifier
	}
	if r := a.rejection; r != nil {
		with := t
		with.Status, with.Header, with.Token = r.status, r.header, r.token[:]
		if text, err := a.l.seal(purposeAttempt, with); err != nil || len(text) <= maxTicket {
			return text, err
		}
		// Without it, another gateway asks the upstream.
	}
	return a.l.seal(purposeAttempt, t)
}

// restore returns the attempt to which the response of an authorization server belongs, if another
// gateway has sent the request, and nil otherwise. identified is as in takeState.
func (l *Logins) restore(r *http.Request, state string, identified bool) *attempt {
	c, err := r.Cookie(l.cookieName())
	if err != nil || state == "" {
		return nil
	}
	var t attemptTicket
	if !l.open(c.Value, maxTicket, purposeAttempt, &t) || (t.Nonce == "") != identified || subtle.ConstantTimeCompare([]byte(t.State), []byte(state)) != 1 {
		return nil
	}
	l.mu.Lock()
	own := l.states[state] != nil
	l.mu.Unlock()
	if own || l.used.has(state) {
		return nil
	}
	p := l.find(t.Page)
	if p == nil {
		return nil
	}
	a := l.newAttempt(p)
	a.cookie = sha256.Sum256([]byte(c.Value))
	if len(t.Token) == sha256.Size {
		a.rejection = &rejection{t.Status, t.Header, [sha256.Size]byte(t.Token)}
	}
	if identified {
		a.restored, a.state, a.verifier, a.proofKey = true, t.State, t.Verifier, auth.NewSecret(t.ProofKey)
	} else {
		if l.identity == nil {
			return nil
		}
		meta, err := l.identity.metadata(r.Context())
		if err != nil {
			l.opts.Logger.Warn("a login of another gateway was not continued", "upstream", p.account.up.opts.Name, "user", p.account.user, "error", err)
			return nil
		}
		a.identification = &identification{meta: meta, state: t.State, nonce: t.Nonce, verifier: t.Verifier}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.starts++; p.starts > maxStarts || l.closed {
		return nil
	}
	return a
}
