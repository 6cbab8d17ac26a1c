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
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// Elicit asks the user through the client to fill in a form or, if p.Mode is "url", to visit a web
// page (https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation). The result's
// Action says what the user did. Declining or dismissing is a response, not an error. There is
// content only if the user accepted a form; it is valid for p.RequestedSchema.
//
// In modern revisions the handler RUNS AGAIN FROM ITS BEGINNING to get the response; see
// [InputRequests.Wait] for that and for the errors. key identifies the input request within the
// call. Each run must ask the same under it: if the message or the schema changes, the user is
// asked again.
//
// A form must not ask for secrets. Data that the user enters in a web page does not pass through
// the client. Accepting only means that the user agreed to go there: the page must check that it is
// the same user and report the result to the server. For clients of 2025-11-25, pass
// p.ElicitationID to [Server.ElicitationComplete] then. An empty one is generated.
//
// Elicit does not modify or keep p.
func (c *Call) Elicit(ctx context.Context, key string, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return requestInput(ctx, c, func(q *InputRequests) *Reply[*mcp.ElicitResult] { return q.Elicit(key, p) })
}

// ElicitURL is [Call.Elicit] for a web page. The URL must be https, or http on this machine, and
// the same in each run of the handler. Take its random parts from [Once].
//
// A handler may return [mcp.URLElicitationRequired] instead. Clients of 2025-11-25 get this error.
// Clients of 2026-07-28 are asked, and the handler runs again when the user has agreed; if the user
// is not done yet by then, they are asked again. Older clients get an error that names the page.
func (c *Call) ElicitURL(ctx context.Context, key, message, url string) (*mcp.ElicitResult, error) {
	return requestInput(ctx, c, func(q *InputRequests) *Reply[*mcp.ElicitResult] { return q.ElicitURL(key, message, url) })
}

// ElicitURL adds the input request of [Call.ElicitURL].
func (rs *InputRequests) ElicitURL(key, message, url string) *Reply[*mcp.ElicitResult] {
	return rs.Elicit(key, &mcp.ElicitRequestParams{Mode: mcp.ElicitModeURL, Message: message, URL: url})
}

// Elicit adds the input request of [Call.Elicit].
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
			if err := checkFilled(res, form.JSON(), form.Validate); err != nil {
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
	errInputTask = errors.New("an input request cannot be a task of the client")
	errAction    = errors.New("action must be accept, decline or cancel")
	errNoContent = errors.New("accepted, but the content is missing")
)

// elicit completes and adds the request.
func (rs *InputRequests) elicit(q *inputRequest, p mcp.ElicitRequestParams, err error) {
	c := rs.call
	switch {
	case err != nil:
	case p.Message == "":
		err = errNoMessage
	case p.Task != nil:
		err = errInputTask
	default:
		err = checkMeta(p.Meta)
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
		err = fmt.Errorf("mode %q: want form or url", p.Mode)
	}
	if err == nil {
		q.params = mcp.Append(nil, &p, c.ex.Features.Revision)
	}
	rs.add(q, err)
}

// checkURL checks that a web page can be visited, that it is protected on its way over a network,
// and that its URL contains no credentials.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("url: %w", err)
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback.IsHost(u.Hostname())) || u.Hostname() == "":
		return errors.New("url: it must begin with https:// and name a host; http:// is for a page of this machine")
	case u.User != nil:
		return errors.New("url: it must not contain a user name or a password")
	}
	if err := checkURI(text); err != nil { // url.Parse accepts more than RFC 3986
		return fmt.Errorf("url: %w", err)
	}
	return nil
}

// readElicitResult decodes a response. It drops the content of a response that is not accepted.
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

// An Answer is a user's response to a form.
type Answer[T any] struct {
	// Action is what the user did.
	Action mcp.ElicitAction
	// Value is the content of the form, if the user accepted.
	Value T
}

// Accepted reports whether the user accepted and Value is set.
func (a Answer[T]) Accepted() bool { return a.Action == mcp.ElicitActionAccept }

// Elicit asks the user to fill in a form with the fields of the struct T. Fields may be strings,
// numbers, booleans, times, strings with an enum, and slices of those to select several values.
// Names, titles, descriptions, bounds, formats and defaults come from the tags (see package
// [schema]). Optional fields are pointers or have omitempty or a default. ctx must derive from a
// [Call]. As with [Call.Elicit], the handler RUNS AGAIN to get the response.
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
	return requestInput(ctx, c, func(q *InputRequests) *Reply[Answer[T]] { return Form[T](q, key, message) })
}

var errNoCall = errors.New("the context does not belong to a call")

// Form adds the input request of [Elicit].
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
			err = checkFilled(res, f.requested, func(content []byte) error { return f.typed.Decode(content, &a.Value) })
			if err != nil {
				return err
			}
		}
		r.value = a
		return nil
	}
	qs.elicit(q, mcp.ElicitRequestParams{Mode: mcp.ElicitModeForm, Message: message, RequestedSchema: f.requested}, checkForm(f.requested, qs.call.ex.Features))
	return r
}

// A form is a Go type that users fill in.
type form[T any] struct {
	typed *schema.Typed[T]
	// requested is the schema of the type, reduced to the JSON Schema subset of forms.
	requested json.RawMessage
}

// formOf returns the form of a struct type.
func formOf[T any](s *Server) (*form[T], error) {
	key := reflect.TypeFor[T]()
	if f, ok := s.inputs.forms.Load(key); ok {
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
	f, _ := s.inputs.forms.LoadOrStore(key, &form[T]{typed, requested})
	return f.(*form[T]), nil
}

// compileForm returns the validator for the content of an accepted form.
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

// checkFilled checks the content of an accepted form. An empty form may have no content.
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
	errFormNested     = errors.New("a form has only fields for strings, numbers, booleans, and lists of choices")
	errFormList       = errors.New("clients of this revision cannot show a choice of several values")
)

// checkForm checks that a schema is flat, as forms require
// (https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#requested-schema).
// text must be valid JSON.
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
			return fmt.Errorf("property %q: %w", clip.String(members.KeyString(), 100), err)
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

// fieldKeywords are the keywords of form fields. Other constraints of a Go type are checked when
// the response is decoded.
var fieldKeywords = []string{"type", "title", "description", "default", "enum", "enumNames", "oneOf", "minLength", "maxLength", "format", "minimum", "maximum",
	"minItems", "maxItems", "items"}

// requestedSchema converts a struct's schema from package schema to the schema of a form.
func requestedSchema(text []byte) (json.RawMessage, error) {
	if !isObjectSchema(text) || jsonwire.Lookup(text, "properties") == nil {
		return nil, errors.New("it must be a struct")
	}
	var err error
	dst := era.Rewrite([]byte(`{"type":"object","properties":`), jsonwire.Lookup(text, "properties"), func(m *jsonwire.Members) []byte {
		if m.Value()[0] != '{' {
			err = fmt.Errorf("property %q: %w", m.KeyString(), errFormNested)
		}
		return formField(m.Value())
	}, nil)
	if err != nil {
		return nil, err
	}
	if required := jsonwire.Lookup(text, "required"); required != nil {
		dst = append(append(dst, `,"required":`...), required...)
	}
	return append(dst, '}'), nil
}

// formField returns the schema of a field without keywords that forms lack. It removes null: a Go
// pointer may be null, but a form leaves the field out.
func formField(field []byte) []byte {
	return era.Rewrite(nil, field, func(m *jsonwire.Members) []byte {
		key, value := m.KeyString(), m.Value()
		switch {
		case !slices.Contains(fieldKeywords, key), key == "format" && !slices.Contains(formFormats, string(value)):
			return nil
		case (key == "type" || key == "enum") && value[0] == '[':
			value = era.RewriteArray(nil, value, notNull)
		}
		if types := jsonwire.ArrayElements(value); key == "type" && types.Next() {
			value = types.Value()
		}
		return value
	}, nil)
}

// notNull returns an element of a type or an enum, or nil for null.
func notNull(element []byte) []byte {
	if string(element) == "null" || string(element) == `"null"` {
		return nil
	}
	return element
}

var formFormats = []string{`"email"`, `"uri"`, `"date"`, `"date-time"`}

// checkFormats checks the strings of the content against the formats of the schema. JSON Schema
// treats formats as annotations, but forms mean them.
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
		if !hasFormat(format, jsonwire.Text(v)) {
			return fmt.Errorf("content.%s: expected the format %s", clip.String(members.KeyString(), 100), format[1:len(format)-1])
		}
	}
	return nil
}

func hasFormat(format, s string) bool {
	var err error
	switch format {
	case `"email"`:
		i := strings.LastIndexByte(s, '@')
		return i > 0 && i < len(s)-1 && !strings.ContainsAny(s, " \t\r\n")
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

// elicitations are the elicitations with web pages that a session has sent its client to, by id.
type elicitations struct {
	mu  sync.Mutex
	ids []string
}

// maxURLElicitations limits the elicitation ids that a session remembers.
const maxURLElicitations = 256

// add stores an id. It drops the oldest if there are too many.
func (es *elicitations) add(id string) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if len(es.ids) == maxURLElicitations {
		es.ids = slices.Delete(es.ids, 0, 1)
	}
	es.ids = append(es.ids, id)
}

// remove removes an id and reports whether it was there.
func (es *elicitations) remove(id string) bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	i := slices.Index(es.ids, id)
	if i >= 0 {
		es.ids = slices.Delete(es.ids, i, i+1)
	}
	return i >= 0
}

// ElicitationComplete notifies the client that the user has finished an elicitation with a web
// page. id is the ElicitationID of the input request or of [mcp.URLElicitationRequired]. An unknown
// id is ignored: that of a client that has gone, of a revision other than 2025-11-25, or of more
// than 256 elicitations ago. It does not block.
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#completion-notifications-for-url-mode-elicitation)
func (s *Server) ElicitationComplete(id string) {
	s.sessions.elicitationDone(id)
	s.bus.publish(event{Kind: eventElicitation, Name: id})
}

// convertURLRequired converts the error with which a handler sends the user to web pages first.
// Only one revision has it
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#url-elicitation-required-error).
// In modern revisions it becomes input requests. In other revisions, or if the client has not
// declared the feature, the text of the failure names the pages.
func (im *inputManager) convertURLRequired(c *Call, head, out []byte, err error) ([]byte, error) {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code != mcp.CodeURLElicitationRequired {
		return out, err
	}
	pages, err := requiredPagesOf(e)
	if err != nil {
		return head, fmt.Errorf("error %d of a handler: %w", e.Code, err)
	}
	if c.ex.Modern {
		if rd := im.roundOf(c); rd != nil {
			return pages.ask(c, rd, head)
		}
	}
	if !c.ex.ElicitationIDs || !c.Supports(URLElicitation) {
		return c.results().fail(head, pages.text())
	}
	for _, p := range pages.list {
		c.session.elicitations.add(p.ElicitationID)
	}
	return head, e
}

// requiredPages are the pages of an [mcp.URLElicitationRequired] error.
type requiredPages struct {
	err  *jsonrpc.Error
	list []mcp.ElicitRequestParams
}

func requiredPagesOf(e *jsonrpc.Error) (*requiredPages, error) {
	var data mcp.URLElicitationRequiredData
	if err := data.UnmarshalJSON(e.Data); err != nil {
		return nil, err
	}
	for i := range data.Elicitations {
		p := &data.Elicitations[i]
		if p.Mode != mcp.ElicitModeURL || p.ElicitationID == "" || p.Message == "" {
			return nil, fmt.Errorf("elicitations[%d]: it needs mode url, an elicitationId and a message", i)
		}
		if err := checkURL(p.URL); err != nil {
			return nil, fmt.Errorf("elicitations[%d]: %w", i, err)
		}
	}
	if len(data.Elicitations) == 0 {
		return nil, errors.New("elicitations are missing")
	}
	return &requiredPages{e, data.Elicitations}, nil
}

// ask asks for the pages unless the user has declined before. If a handler requires a page again
// after the user has agreed, the user is asked again, because accepting doesn't mean that the user
// is done. The keys are not the elicitation ids, since a handler may generate new ones in each run.
func (rp *requiredPages) ask(c *Call, rd *inputRound, head []byte) ([]byte, error) {
	rs := c.InputRequests()
	for i, p := range rp.list {
		key := "required page " + strconv.Itoa(i+1)
		switch rd.dropResponse(key) {
		case mcp.ElicitActionDecline, mcp.ElicitActionCancel:
			return c.results().fail(head, "the user did not accept: "+rp.text())
		}
		rs.Elicit(key, &p)
	}
	return head, rs.Wait(c)
}

// text returns a text that names the pages.
func (rp *requiredPages) text() string {
	lines := []string{cmp.Or(rp.err.Message, "the user must open a web page first")}
	for _, p := range rp.list {
		lines = append(lines, p.Message+" "+p.URL)
	}
	return strings.Join(lines, "\n")
}

// dropResponse removes the response under a key and returns its action, or "".
func (rd *inputRound) dropResponse(key string) mcp.ElicitAction {
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
