package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
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
		q.params = mcp.Append(nil, &p, c.ex.Features.Revision)
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

// A form is a Go type that users fill in.
type form[T any] struct {
	typed     *schema.Typed[T]
	requested json.RawMessage // its schema, in the part of JSON Schema that forms have
}

// formOf returns the form of a struct type, which is made once.
func formOf[T any](s *Server) (*form[T], error) {
	key := reflect.TypeFor[T]()
	if f, ok := s.forms.Load(key); ok {
		return f.(*form[T]), nil
	}
	typed, err := schema.Of[T](&schema.Options{AllowUnknown: true, Engine: s.opts.SchemaEngine})
	if err != nil {
		return nil, fmt.Errorf("form: %w", err)
	}
	requested, err := requestedSchema(typed.JSON())
	if err != nil {
		return nil, fmt.Errorf("form of type %v: %w", key, err)
	}
	f, _ := s.forms.LoadOrStore(key, &form[T]{typed, requested})
	return f.(*form[T]), nil
}

func (f *form[T]) check(e *era.Features) error { return checkForm(f.requested, e) }

func (f *form[T]) decode(res *mcp.ElicitResult, v *T) error {
	return checkFilled(res, f.requested, func(content []byte) error { return f.typed.Decode(content, v) })
}

// compileForm returns what the content of an accepted form is checked with.
func compileForm(p *mcp.ElicitRequestParams, features *era.Features, engine schema.Engine) (*schema.Validator, error) {
	if p.RequestedSchema == nil {
		return nil, errors.New("a form needs a requestedSchema")
	}
	if err := jsonwire.Valid(p.RequestedSchema, 0); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	if err := checkForm(p.RequestedSchema, features); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	v, err := schema.Compile(p.RequestedSchema, engine)
	if err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	return v, nil
}

// checkContent checks what was filled in.
func checkContent(v *schema.Validator, res *mcp.ElicitResult) error {
	return checkFilled(res, v.JSON(), v.Validate)
}

// checkFilled checks the content of a form that was accepted. One that was left empty may have none.
func checkFilled(res *mcp.ElicitResult, requested []byte, check func(content []byte) error) error {
	missing := res.Content == nil
	if missing {
		res.Content = json.RawMessage(`{}`)
	}
	err := check(res.Content)
	if err != nil && missing {
		return errNoContent
	}
	if invalid, ok := errors.AsType[*schema.Error](err); ok {
		invalid.Root = "content"
	}
	if err != nil {
		return err
	}
	return checkFormats(requested, res.Content)
}

var (
	errFormObject     = errors.New(`it must have "type":"object" at its root`)
	errFormProperties = errors.New("it must have properties")
	errFormNested     = errors.New("a form has no fields but strings, numbers, booleans, and lists of which the user chooses")
	errFormList       = errors.New("clients of the revision do not let users choose several values")
)

// checkForm makes sure that a schema is flat, as those of forms are
// (https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#requested-schema). text is valid JSON.
func checkForm(text []byte, f *era.Features) error {
	if !isObjectSchema(bytes.TrimLeft(text, " \t\r\n")) {
		return errFormObject
	}
	properties := jsonwire.Lookup(text, "properties")
	if len(properties) == 0 || properties[0] != '{' {
		return errFormProperties
	}
	members := jsonwire.ObjectMembers(properties)
	for members.Next() {
		if err := checkField(members.Value(), f); err != nil {
			return fmt.Errorf("property %q: %w", clip(members.KeyString()), err)
		}
	}
	return nil
}

func checkField(field []byte, f *era.Features) error {
	if field[0] != '{' {
		return errFormNested
	}
	switch string(jsonwire.Lookup(field, "type")) {
	case `"string"`, `"number"`, `"integer"`, `"boolean"`:
		return nil
	case `"array"`:
		items := jsonwire.Lookup(field, "items")
		if len(items) == 0 || items[0] != '{' || jsonwire.Lookup(items, "enum") == nil && jsonwire.Lookup(items, "anyOf") == nil {
			return errFormNested
		}
		if !f.MultiSelect {
			return errFormList
		}
		return nil
	}
	return errFormNested
}

// fieldKeywords are those that the fields of forms have. What else a Go type says of them is checked when the answer is decoded.
var fieldKeywords = []string{"type", "title", "description", "default", "enum", "enumNames", "oneOf", "minLength", "maxLength", "format", "minimum", "maximum",
	"minItems", "maxItems", "items"}

// requestedSchema makes the schema of a struct, as package schema writes it, that of a form.
func requestedSchema(text []byte) (json.RawMessage, error) {
	if !isObjectSchema(text) || jsonwire.Lookup(text, "properties") == nil {
		return nil, errors.New("it must be a struct")
	}
	dst := []byte(`{"type":"object","properties":{`)
	members := jsonwire.ObjectMembers(jsonwire.Lookup(text, "properties"))
	for first := true; members.Next(); first = false {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), members.RawKey()...), `":`...)
		if members.Value()[0] != '{' {
			return nil, fmt.Errorf("property %q: %w", members.KeyString(), errFormNested)
		}
		dst = appendField(dst, members.Value())
	}
	dst = append(dst, '}')
	if required := jsonwire.Lookup(text, "required"); required != nil {
		dst = append(append(dst, `,"required":`...), required...)
	}
	return append(dst, '}'), nil
}

// appendField appends the schema of a field without what forms do not have. A pointer may be null in Go; a form leaves the field out.
func appendField(dst, field []byte) []byte {
	dst = append(dst, '{')
	first := true
	members := jsonwire.ObjectMembers(field)
	for members.Next() {
		key, value := members.KeyString(), members.Value()
		switch {
		case !slices.Contains(fieldKeywords, key), key == "format" && !slices.Contains(formFormats, string(value)):
			continue
		case (key == "type" || key == "enum") && value[0] == '[':
			value = withoutNull(value, key == "type")
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(jsonwire.AppendQuote(dst, key), ':'), value...)
	}
	return append(dst, '}')
}

// withoutNull returns an array without null, or, if it is to be a single value, its first other element.
func withoutNull(array []byte, single bool) []byte {
	dst := []byte{'['}
	elements := jsonwire.ArrayElements(array)
	for elements.Next() {
		switch v := elements.Value(); {
		case string(v) == "null", string(v) == `"null"`:
		case single:
			return v
		default:
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = append(dst, v...)
		}
	}
	return append(dst, ']')
}

var formFormats = []string{`"email"`, `"uri"`, `"date"`, `"date-time"`}

// checkFormats holds the strings of the content against the formats of the schema, which are annotations in JSON Schema but meant in forms.
func checkFormats(schema, content []byte) error {
	properties := jsonwire.Lookup(schema, "properties")
	members := jsonwire.ObjectMembers(content)
	for members.Next() {
		v := members.Value()
		if v[0] != '"' {
			continue
		}
		field := jsonwire.Lookup(properties, members.KeyString())
		if len(field) == 0 || field[0] != '{' {
			continue
		}
		format := string(jsonwire.Lookup(field, "format"))
		if !slices.Contains(formFormats, format) {
			continue
		}
		if !hasFormat(format, unquote(v)) {
			return fmt.Errorf("content.%s: expected the format %s", clip(members.KeyString()), format[1:len(format)-1])
		}
	}
	return nil
}

func hasFormat(format, s string) bool {
	var err error
	switch format {
	case `"email"`:
		name, host, ok := strings.Cut(s, "@")
		if i := strings.LastIndexByte(s, '@'); i >= 0 {
			name, host = s[:i], s[i+1:]
		}
		return ok && name != "" && host != "" && !strings.ContainsAny(s, " \t\r\n")
	case `"uri"`:
		var u *url.URL
		u, err = url.Parse(s)
		return err == nil && u.Scheme != ""
	case `"date"`:
		_, err = time.Parse(time.DateOnly, s)
	case `"date-time"`:
		_, err = time.Parse(time.RFC3339, strings.ToUpper(s))
	}
	return err == nil
}

// maxURLElicitations is how many pages that its client was sent to a session remembers.
const maxURLElicitations = 256

// rememberElicitation remembers that the client was told of an elicitation. The oldest is forgotten if there are too many.
func (s *session) rememberElicitation(id string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.urlElicitations) == maxURLElicitations {
		s.urlElicitations = slices.Delete(s.urlElicitations, 0, 1)
	}
	s.urlElicitations = append(s.urlElicitations, id)
}

// ElicitationComplete tells the client that was sent to a web page with that elicitation id that the user is done there: the id is the ElicitationID
// of the question, or of the error [mcp.URLElicitationRequired]. It does nothing for an id that it does not know: of a client that has gone, of a
// revision without such ids (all but 2025-11-25), of more than 256 questions ago. It does not wait for anybody.
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#completion-notifications-for-url-mode-elicitation)
func (s *Server) ElicitationComplete(id string) {
	s.elicitationCompleteLocal(id)
	s.bus.publish(Event{Kind: ElicitationDone, Name: id})
}

func (s *Server) elicitationCompleteLocal(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if i := slices.Index(sess.urlElicitations, id); i >= 0 {
			sess.urlElicitations = slices.Delete(sess.urlElicitations, i, i+1)
			sess.pending.elicitations = append(sess.pending.elicitations, id)
			sess.startNotifierLocked()
		}
	}
}

func (s *session) notifyElicitationComplete(id string) {
	s.notify(mcp.NotificationElicitationComplete, mcp.Append(nil, &mcp.ElicitationCompleteNotificationParams{ElicitationID: id}, mcp.RevisionNone))
}

// convertURLRequired deals with the error by which a handler sends the user to web pages before it can do anything. It exists in one revision
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#url-elicitation-required-error). In modern ones it becomes questions;
// where there is no such thing, or the client has not declared it, the text of the failure says where to go.
func (c *Call) convertURLRequired(head, out []byte, err error) ([]byte, error) {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code != mcp.CodeURLElicitationRequired {
		return out, err
	}
	pages, err := requiredElicitations(e)
	if err != nil {
		return head, fmt.Errorf("error %d of a handler: %w", e.Code, err)
	}
	if c.ex.Modern {
		if rd := c.inputRound(); rd != nil {
			return c.elicitRequired(rd, head, e, pages)
		}
	}
	if !c.ex.ElicitationIDs || !c.Supports(URLElicitation) {
		return c.failRequest(head, urlRequiredText(e, pages))
	}
	for _, p := range pages {
		c.session.rememberElicitation(p.ElicitationID)
	}
	return head, e
}

// requiredElicitations reads what the error asks for.
func requiredElicitations(e *jsonrpc.Error) ([]mcp.ElicitRequestParams, error) {
	var data mcp.URLElicitationRequiredData
	if err := data.UnmarshalJSON(e.Data); err != nil {
		return nil, err
	}
	for i := range data.Elicitations {
		p := &data.Elicitations[i]
		if p.Mode != mcp.ElicitModeURL || p.ElicitationID == "" || p.Message == "" {
			return nil, fmt.Errorf("elicitations[%d]: it needs the mode url, an elicitationId and a message", i)
		}
		if err := checkURL(p.URL); err != nil {
			return nil, fmt.Errorf("elicitations[%d]: %w", i, err)
		}
	}
	if len(data.Elicitations) == 0 {
		return nil, errors.New("elicitations are missing")
	}
	return data.Elicitations, nil
}

// elicitRequired asks for the pages, unless the user has said no before. A handler that requires a page once more, though the user agreed to visit it, has it
// asked once more: accepting does not say that the user is done there. The keys are not the elicitation ids, since a handler may make new ones in each run.
func (c *Call) elicitRequired(rd *inputRound, head []byte, e *jsonrpc.Error, pages []mcp.ElicitRequestParams) ([]byte, error) {
	rs := c.InputRequests()
	for i, p := range pages {
		key := "required page " + strconv.Itoa(i+1)
		switch rd.dropResponse(key) {
		case mcp.ElicitActionDecline, mcp.ElicitActionCancel:
			return c.failRequest(head, "the user did not agree: "+urlRequiredText(e, pages))
		}
		rs.Elicit(key, &p)
	}
	return head, rs.Wait(c)
}

// failRequest says that the request cannot be done as things are: by a tool in words for the model.
func (c *Call) failRequest(head []byte, text string) ([]byte, error) {
	if c.method == mcp.MethodToolsCall {
		return c.appendFailure(head, text), nil
	}
	return head, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", text)
}

func urlRequiredText(e *jsonrpc.Error, pages []mcp.ElicitRequestParams) string {
	lines := []string{cmp.Or(e.Message, "the user has to visit a web page first")}
	for _, p := range pages {
		lines = append(lines, p.Message+" "+p.URL)
	}
	return strings.Join(lines, "\n")
}

// dropResponse takes out the answer to a question and returns what the user did; "" if there is none.
func (rd *inputRound) dropResponse(key string) string {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	got := rd.answers[key]
	if got == nil {
		return ""
	}
	delete(rd.answers, key)
	res, err := readElicitResult(got.text)
	if err != nil {
		return ""
	}
	return res.Action
}
