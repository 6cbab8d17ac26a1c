package gateway

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Login knows which callers have logged in to an upstream. Its methods may be called by many
// goroutines at once.
type Login interface {
	// LoggedIn reports if requests of the caller of ctx can be sent to the upstream. It must be
	// quick.
	LoggedIn(ctx context.Context) bool
	// Refused reports if the upstream has refused a request of the caller of ctx that needs another
	// login, since Refused was last called.
	Refused(ctx context.Context) bool
	// Pending returns the page with an id where the caller of ctx can still log in, or nil.
	Pending(ctx context.Context, id string) *LoginPage
	// Page returns the page where the caller of ctx can log in. Until the caller has done so, or
	// the page expires, it returns the same page. Its error is for the client.
	Page(ctx context.Context) (*LoginPage, error)
}

// A LoginPage is a web page where a caller logs in to an upstream.
type LoginPage struct {
	// ID identifies the page. It is no secret.
	ID string
	// URL is where the user finds the page.
	URL string
	// Host names the upstream to the user.
	Host string
	// Done is closed when the user has logged in.
	Done <-chan struct{}
	// Expires is when the page expires.
	Expires time.Time
}

const (
	// loginTool is the own name of the tool that an upstream has while its caller must log in: its
	// real tools are not known then.
	loginTool = "log_in"
	// loginWait is how long the retry of a call waits for a user who has agreed to log in. Clients
	// give up after a minute.
	loginWait = 25 * time.Second
	// loginPoll is how often it looks whether the user has logged in at another gateway.
	loginPoll = 2 * time.Second
	// maxLoginWaits limits the pages that a legacy session waits for.
	maxLoginWaits = 32
	// purposeLogin is the purpose of request states that are answered by a login.
	purposeLogin = "gateway login 1"
	// inputLogin is the key of the input request.
	inputLogin = "login"
)

// mustLogIn reports if the caller of ctx must log in to the upstream first.
func (u *upstream) mustLogIn(ctx context.Context) bool {
	l := u.conf.Load().Login
	return l != nil && !l.LoggedIn(ctx)
}

// allowsLogin reports if a view shows the tool to log in.
func allowsLogin(view View, upstream string) bool {
	return view == nil || view.Allows(KindTool, upstream, loginTool) || allowsSome(view, upstream)
}

// allowsSome reports if a view may show something of an upstream, whose catalog is not known.
func allowsSome(view View, upstream string) bool {
	v, ok := view.(interface{ AllowsSome(upstream string) bool })
	return ok && v.AllowsSome(upstream)
}

// loginItem returns the tool to log in to an upstream.
func (ix *index) loginItem(i int) visibleItem {
	u := ix.st.upstreams[i]
	name := ix.nameOf(i, &item{own: loginTool})
	raw := jsonwire.AppendQuote([]byte(`{"name":`), name)
	raw = jsonwire.AppendQuote(append(raw, `,"title":`...), "Log in to "+u.name)
	raw = jsonwire.AppendQuote(append(raw, `,"description":`...),
		"Returns the page where the user logs in to "+u.name+". Its other tools are listed after the login.")
	raw = append(raw, `,"inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true}}`...)
	return visibleItem{upstream: i, own: loginTool, name: name, raw: raw, sum: maphash.Bytes(seed, raw), login: true}
}

// LoginChanged says that users have logged in to an upstream, or out of it, at a time. It ends the
// connections that were made before, of the callers for whom of returns true; of gets a context
// with the caller. Clients are notified if the lists that they see have changed.
func (g *Gateway) LoginChanged(upstream string, at time.Time, of func(context.Context) bool) {
	u := g.state.Load().byName[upstream]
	if u == nil {
		return
	}
	u.mu.Lock()
	for _, be := range u.backends {
		if be.created.Before(at) && of(be.base) {
			u.removeLocked(be)
		}
	}
	u.mu.Unlock()
	g.generation.Add(1)
	g.announcer.changed()
}

// A loginError is the error of a call whose caller must log in to the upstream first.
type loginError struct {
	upstream  string
	principal string
	page      *LoginPage
	// final says that the client must not be asked again in this call.
	final bool
}

// Error returns a text for clients that cannot show the page themselves.
func (e *loginError) Error() string {
	return fmt.Sprintf("%s needs the user to log in: open %s in a browser, then try again", e.upstream, e.page.URL)
}

// message returns a text for clients that show the page.
func (e *loginError) message() string {
	return fmt.Sprintf("Log in to %s (%s), so that its tools can be used on your behalf.", e.upstream, e.page.Host)
}

// passLogin returns the frame of a call to send, or a *loginError if the caller must log in first.
// If the call is the retry of one that was answered so, it waits for the login.
func (g *Gateway) passLogin(ctx context.Context, c *call, login Login) ([]byte, error) {
	frame, id, action := c.frame, "", ""
	if c.era == bridge.EraModern {
		frame, id, action = g.openLogin(ctx, c.upstream, frame)
	}
	if action != "" && action != string(mcp.ElicitActionAccept) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the user did not agree to log in to " + c.upstream.name}
	}
	var page *LoginPage
	if action != "" {
		if page = login.Pending(ctx, id); page != nil || !login.LoggedIn(ctx) {
			waitForLogin(ctx, login, page)
			page = login.Pending(ctx, id)
		}
	}
	if page == nil && login.LoggedIn(ctx) {
		return frame, nil
	}
	return nil, loginRequired(ctx, c.upstream, login, frame)
}

// loginRequired returns the *loginError for a call of the caller of ctx, or the error if there is
// no page.
func loginRequired(ctx context.Context, u *upstream, login Login, frame []byte) error {
	page, err := login.Page(ctx)
	if err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: u.name + ": " + err.Error()}
	}
	// An input round of the upstream cannot be continued after the login.
	inRound := jsonedit.Locate(frame, "params", "requestState").Found()
	return &loginError{upstream: u.name, principal: auth.PrincipalOf(ctx).ID(), page: page, final: inRound}
}

// afterLogin returns the error for a call that has failed because the caller must log in again, or
// nil. response is the response to frame, if there is one.
func (g *Gateway) afterLogin(ctx context.Context, u *upstream, frame, response []byte, failed error) error {
	login := u.conf.Load().Login
	if login == nil || failed == nil && !jsonedit.Locate(response, "error").Found() || ctx.Err() != nil {
		return nil
	}
	if refused := login.Refused(ctx); !refused && login.LoggedIn(ctx) {
		return nil
	}
	return loginRequired(ctx, u, login, frame)
}

// waitForLogin waits for a limited time until the user has logged in at a page. Without a page, it
// waits until the user has logged in at another gateway.
func waitForLogin(ctx context.Context, login Login, page *LoginPage) {
	var done <-chan struct{}
	if page != nil {
		done = page.Done
	}
	elsewhere := !login.LoggedIn(ctx)
	timer := time.NewTimer(loginWait)
	defer timer.Stop()
	ticker := time.NewTicker(loginPoll)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			if elsewhere && login.LoggedIn(ctx) {
				return
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// loginData returns what the request state of a login is valid for.
func loginData(upstream, principal string) []byte {
	return append(append([]byte(upstream), 0), principal...)
}

// openLogin returns a request without the response to the gateway's own input request, the id of
// the page, and what the user answered: an action, or "" if the request does not belong to a login.
func (g *Gateway) openLogin(ctx context.Context, u *upstream, frame []byte) (_ []byte, id, action string) {
	if !bytes.Contains(frame, []byte(`"requestState"`)) {
		return frame, "", ""
	}
	text, _ := jsonrpc.ID(jsonedit.Locate(frame, "params", "requestState").Of(frame)).Text()
	plain, _, err := g.ring.Open(text, maxState, purposeLogin, loginData(u.name, auth.PrincipalOf(ctx).ID()))
	if err != nil {
		return frame, "", "" // a state of the upstream
	}
	action = era.LookupString(frame, "params", "inputResponses", inputLogin, "action")
	if action == "" {
		action = string(mcp.ElicitActionCancel)
	}
	params := jsonedit.Locate(frame, "params")
	members := []byte{'{'}
	for m := jsonwire.ObjectMembers(params.Of(frame)); m.Next(); {
		if m.KeyIs("requestState") || m.KeyIs("inputResponses") {
			continue
		}
		if len(members) > 1 {
			members = append(members, ',')
		}
		members = append(append(jsonwire.AppendQuote(members, m.KeyString()), ':'), m.Value()...)
	}
	return jsonedit.Splice(frame, params, append(members, '}')), string(plain), action
}

// appendToolText appends a result of tools/call.
func (g *Gateway) appendToolText(dst []byte, clientEra bridge.Era, id jsonrpc.ID, text string, failed bool) []byte {
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), id...), `,"result":{"content":[{"type":"text","text":`...)
	dst = append(jsonwire.AppendQuote(dst, text), `}]`...)
	if failed {
		dst = append(dst, `,"isError":true`...)
	}
	if clientEra != bridge.EraModern {
		return append(dst, "}}"...)
	}
	return append(g.state.Load().identity.End(dst, era.Of(mcp.LatestRevision)), '}')
}

// answerLogin appends the response to a request whose caller must log in. byURL says that the
// client can show web pages.
func (g *Gateway) answerLogin(dst []byte, clientEra bridge.Era, byURL bool, m *jsonrpc.Message, e *loginError) ([]byte, error) {
	method := string(m.Method)
	_, asTask := m.Param("task")
	switch {
	case byURL && clientEra == bridge.EraModern && !e.final && slices.Contains(roundMethods, method):
		return g.appendLoginRound(dst, m.ID, e)
	case byURL && clientEra != bridge.EraModern:
		required := mcp.URLElicitationRequired(mcp.ElicitRequestParams{Message: e.message(), URL: e.page.URL, ElicitationID: e.page.ID})
		required.Message = e.Error()
		return jsonrpc.AppendError(dst, m.ID, required, false), nil
	case method == mcp.MethodToolsCall && !asTask:
		// Models see results, and not errors.
		return g.appendToolText(dst, clientEra, m.ID, e.Error(), true), nil
	}
	data := append(jsonwire.AppendQuote([]byte(`{"reason":"login required","url":`), e.page.URL), '}')
	return jsonrpc.AppendError(dst, m.ID, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: e.Error(), Data: data}, false), nil
}

// roundMethods are the methods whose result may request input.
var roundMethods = []string{mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead}

// appendLoginRound appends a result that requests the client to show the page.
func (g *Gateway) appendLoginRound(dst []byte, id jsonrpc.ID, e *loginError) ([]byte, error) {
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), id...), `,"result":{"inputRequests":{"`+inputLogin+`":{"method":"`+mcp.MethodElicit+`","params":{"mode":"url","message":`...)
	dst = jsonwire.AppendQuote(dst, e.message())
	dst = jsonwire.AppendQuote(append(dst, `,"url":`...), e.page.URL)
	dst = append(dst, `}}},"requestState":"`...)
	dst, _, err := g.ring.Seal(dst, purposeLogin, []byte(e.page.ID), loginData(e.upstream, e.principal))
	if err != nil {
		return dst, err
	}
	return append(g.state.Load().identity.EndAs(append(dst, '"'), era.Of(mcp.LatestRevision), mcp.ResultTypeInputRequired), '}'), nil
}

// showsPages reports if a modern client can show web pages.
func showsPages(m *jsonrpc.Message) bool {
	meta, _ := m.Param("_meta")
	return era.Lookup(meta, mcp.MetaClientCapabilities, "elicitation", "url") != nil
}

// showsPages reports if the client can show web pages, and knows the error that requires it.
func (s *session) showsPages() bool {
	s.mu.Lock()
	params := s.params
	s.mu.Unlock()
	revision, ok := mcp.ParseRevision(era.LookupString(params, "protocolVersion"))
	return ok && era.Of(revision).ElicitationIDs && era.Lookup(params, "capabilities", "elicitation", "url") != nil
}

// announceLogin notifies the client when the user has logged in at a page.
func (s *session) announceLogin(page *LoginPage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.logins[page.ID] || len(s.logins) >= maxLoginWaits {
		return
	}
	sparse.Set(&s.logins, page.ID, true)
	started := s.g.running.Start(func() {
		timer := time.NewTimer(time.Until(page.Expires))
		defer timer.Stop()
		select {
		case <-page.Done:
			params := append(jsonwire.AppendQuote([]byte(`{"elicitationId":`), page.ID), '}')
			done := jsonrpc.AppendNotification(nil, mcp.NotificationElicitationComplete, params)
			_ = s.send(done, bridge.Provenance{}) // the session may have ended
		case <-timer.C:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		delete(s.logins, page.ID)
		s.mu.Unlock()
	})
	if !started {
		delete(s.logins, page.ID)
	}
}
