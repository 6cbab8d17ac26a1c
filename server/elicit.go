package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"

	"mcpwire/mcp"
	"mcpwire/schema"
)

// Elicit asks the user, by way of the client: to fill in a form, or, with p.Mode "url", to visit a web page
// (https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation). The result's Action says what the user did. That a user declines or
// dismisses the question is an answer and no error; there is content if and only if a form was accepted, and it is valid by p.RequestedSchema.
//
// In modern revisions the handler is RUN AGAIN FROM ITS BEGINNING to get the answer, see [InputRequests.Wait] for that and for the errors. key tells the
// question from the others of the call. Each run has to ask the same under it: if the message or the schema changed, the user is asked again.
//
// A form must not ask for secrets. What a web page asks for does not pass through the client, and accepting only means that the user agreed to go
// there: the page has to make sure that it is the same user, and to tell the server what came of it. For clients of 2025-11-25, p.ElicitationID is
// what [Server.ElicitationComplete] refers to then; it is made up if it is empty.
//
// p is not changed and not kept.
func (c *Call) Elicit(ctx context.Context, key string, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return askOne(ctx, c, func(q *InputRequests) *Reply[*mcp.ElicitResult] { return q.Elicit(key, p) })
}

// ElicitURL is [Call.Elicit] for a web page. The URL must be the same each time the handler runs: what is random in it comes from [Once].
//
// A handler may return [mcp.URLElicitationRequired] instead. Clients of 2025-11-25 get this error. Those of 2026-07-28 are asked, and the handler runs again
// when the user has agreed; if it does so before the user is done there, they are asked again. Older ones are told where the user has to go.
func (c *Call) ElicitURL(ctx context.Context, key, message, url string) (*mcp.ElicitResult, error) {
	return askOne(ctx, c, func(q *InputRequests) *Reply[*mcp.ElicitResult] { return q.ElicitURL(key, message, url) })
}

// ElicitURL adds what [Call.ElicitURL] asks.
func (rs *InputRequests) ElicitURL(key, message, url string) *Reply[*mcp.ElicitResult] {
	return rs.Elicit(key, &mcp.ElicitRequestParams{Mode: mcp.ElicitModeURL, Message: message, URL: url})
}

// Elicit adds what [Call.Elicit] asks.
func (rs *InputRequests) Elicit(key string, p *mcp.ElicitRequestParams) *Reply[*mcp.ElicitResult] {
	q := &inputRequest{key: key, method: mcp.MethodElicit}
	r := new(Reply[*mcp.ElicitResult])
	if p == nil {
		rs.add(q, errNoParams)
		return r
	}
	var form *schema.Validator
	var err error
	if p.Mode != mcp.ElicitModeURL {
		form, err = compileForm(p, rs.call.ex.Features, rs.call.session.srv.opts.SchemaEngine)
	}
	q.decode = func(text []byte) error {
		res, err := readElicitResult(text)
		if err != nil {
			return err
		}
		switch {
		case form == nil:
			res.Content = nil
		case res.Action == mcp.ElicitActionAccept:
			if err := checkContent(form, res); err != nil {
				return err
			}
		}
		r.value = res
		return nil
	}
	rs.elicit(q, *p, err)
	return r
}

var (
	errNoParams  = errors.New("it needs params")
	errNoMessage = errors.New("it needs a message for the user")
	errInputTask = errors.New("a question cannot be a task of the client")
	errAction    = errors.New("action must be accept, decline or cancel")
	errNoContent = errors.New("accepted, but the content is missing")
)

// elicit completes and adds the question.
func (rs *InputRequests) elicit(q *inputRequest, p mcp.ElicitRequestParams, err error) {
	c := rs.call
	switch {
	case err != nil:
	case p.Message == "":
		err = errNoMessage
	case p.Task != nil:
		err = errInputTask
	default:
		err = mcp.CheckMeta(p.Meta)
	}
	switch p.Mode {
	case "", mcp.ElicitModeForm:
		p.URL, p.ElicitationID = "", ""
	case mcp.ElicitModeURL:
		q.feature = URLElicitation
		p.RequestedSchema = nil
		if err == nil {
			err = checkURL(p.URL)
		}
		if !c.ex.ElicitationIDs {
			p.ElicitationID = ""
		} else if p.ElicitationID == "" {
			p.ElicitationID = rand.Text()
		}
		q.id = p.ElicitationID
	default:
		err = fmt.Errorf("mode %q: there are form and url", p.Mode)
	}
	if err == nil {
		q.params = p.AppendRevision(nil, c.ex.Features.Revision)
	}
	rs.add(q, err)
}

// checkURL makes sure that a page can be visited and that nobody is logged in by its address.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("url: %w", err)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return errors.New("url: it must begin with https:// (or http:// on this machine) and name a host")
	case u.User != nil:
		return errors.New("url: it must not hold a name or a password")
	}
	if err := checkURI(text); err != nil { // url.Parse takes more than there may be
		return fmt.Errorf("url: %w", err)
	}
	return nil
}

// readElicitResult reads an answer. What came with a question that was not accepted counts for nothing.
func readElicitResult(text []byte) (*mcp.ElicitResult, error) {
	res := new(mcp.ElicitResult)
	if err := res.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	switch res.Action {
	case mcp.ElicitActionAccept:
	case mcp.ElicitActionDecline, mcp.ElicitActionCancel:
		res.Content = nil
	default:
		return nil, errAction
	}
	return res, nil
}

// An Answer is what a user made of a form.
type Answer[T any] struct {
	Action string // accept, decline or cancel
	Value  T      // what was filled in, if it was accepted
}

// Accepted reports whether there is a value.
func (a Answer[T]) Accepted() bool { return a.Action == mcp.ElicitActionAccept }

// Elicit asks the user to fill in a form with the fields of the struct T: strings, numbers, booleans, times, and strings with a list of values, of
// which a slice lets the user choose several. Names, titles, descriptions, bounds, formats and defaults come from its tags, see
// package [schema]; fields that need not be filled in are pointers, or have omitempty or a default. ctx must stem from a [Call], whose [Call.Elicit] this is:
// the handler is RUN AGAIN to get the answer.
//
//	type delivery struct {
//		Street string `json:"street" schema:"title=Street and number,minLength=1"`
//		Speed  string `json:"speed" schema:"enum=normal|express,default=normal"`
//	}
//	to, err := server.Elicit[delivery](ctx, "delivery", "Where shall it go?")
//	if err != nil {
//		return "", err
//	}
//	if !to.Accepted() {
//		return "Nothing was ordered.", nil
//	}
func Elicit[T any](ctx context.Context, key, message string) (Answer[T], error) {
	c := CallOf(ctx)
	if c == nil {
		return Answer[T]{}, errNoCall
	}
	return askOne(ctx, c, func(q *InputRequests) *Reply[Answer[T]] { return Form[T](q, key, message) })
}

var errNoCall = errors.New("the context does not stem from a call, whose client could be asked")

// Form adds what [Elicit] asks.
func Form[T any](qs *InputRequests, key, message string) *Reply[Answer[T]] {
	r := new(Reply[Answer[T]])
	q := &inputRequest{key: key, method: mcp.MethodElicit}
	f, err := formOf[T](qs.call.session.srv)
	if err != nil {
		qs.add(q, err)
		return r
	}
	q.decode = func(text []byte) error {
		res, err := readElicitResult(text)
		if err != nil {
			return err
		}
		a := Answer[T]{Action: res.Action}
		if a.Accepted() {
			if err := f.decode(res, &a.Value); err != nil {
				return err
			}
		}
		r.value = a
		return nil
	}
	qs.elicit(q, mcp.ElicitRequestParams{Mode: mcp.ElicitModeForm, Message: message, RequestedSchema: f.requested}, f.check(qs.call.ex.Features))
	return r
}
