package shape

import (
	"slices"
	"strconv"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// Check returns how a message differs from what the revision says of it: nothing, if it does not. It returns at most MaxFindings, in the order in which
// they stand in the message, and takes time that grows with the body's length and no faster. A message of an unknown revision, and one whose method no
// revision has, has no problem.
//
// The specification's pages have the last word on shapes, e.g. https://modelcontextprotocol.io/specification/2026-07-28/basic.
func Check(rev mcp.Revision, m Message) []Finding {
	if !slices.Contains(mcp.Revisions(), rev) {
		return nil
	}
	c := &checker{rev: rev}
	msg := lookup(m.Method)
	switch m.Kind {
	case Request, Notification:
		if msg != nil && c.method(msg, m) {
			c.params(msg, m.Body)
		}
	case Result:
		c.bodyName = "the result"
		if msg != nil {
			c.bodyName = "the result of " + msg.name
		}
		if c.valid(m.Body) {
			c.result(msg, m.Body)
		}
	case ErrorObject:
		c.bodyName = "an error"
		if c.valid(m.Body) {
			c.errorObject(m.Body)
		}
	}
	return c.findings
}

// CheckType returns how a value differs from a type by the specification's name, such as "Tool". ok is false if the revision has no such type.
func CheckType(rev mcp.Revision, name string, value []byte) (findings []Finding, ok bool) {
	n, found := defIndex(name)
	if !found || !defs[n].in.has(rev) {
		return nil, false
	}
	c := &checker{rev: rev, bodyName: name}
	if c.valid(value) {
		c.definition(value, n, nil)
	}
	return c.findings, true
}

// A checker collects the problems of one message.
type checker struct {
	rev      mcp.Revision
	bodyName string // what the body is, in words
	findings []Finding
}

func (c *checker) full() bool { return len(c.findings) >= MaxFindings }

func (c *checker) report(at *path, code Code, typ, message string) {
	if !c.full() {
		c.findings = append(c.findings, Finding{Pointer: at.pointer(), Code: code, Message: message, Type: typ})
	}
}

// valid complains of a body that is not JSON. What has passed may be walked.
func (c *checker) valid(body []byte) bool {
	if err := jsonwire.Valid(body, 0); err != nil {
		c.report(nil, Malformed, "", c.bodyName+": "+err.Error())
		return false
	}
	return true
}

// method checks whether the revision has the method, and lets that side send it. It reports whether the params' shape is known.
func (c *checker) method(msg *message, m Message) bool {
	senders := msg.client | msg.server
	switch {
	case senders.has(c.rev):
	case msg.input.has(c.rev):
		c.report(nil, NotInRevision, "", msg.name+" is not a request of "+c.rev.String()+": there it is part of a result that is input_required")
	default:
		c.report(nil, NotInRevision, "", c.rev.String()+" has no "+msg.name+": it is of "+revisionList(senders.list()))
	}
	if !senders.has(c.rev) {
		c.findings[0].Has = senders.list()
		return false
	}
	if msg.notification != (m.Kind == Notification) {
		is, not := "a request", "a notification, which has no id"
		if msg.notification {
			is, not = "a notification", "a request with an id"
		}
		c.report(nil, WrongKind, "", msg.name+" is "+is+", and was sent as "+not)
	}
	switch {
	case m.Dir == ToServer && !msg.client.has(c.rev):
		c.report(nil, WrongDirection, "", msg.name+" is sent by servers, and a client sent it")
	case m.Dir == ToClient && !msg.server.has(c.rev):
		c.report(nil, WrongDirection, "", msg.name+" is sent by clients, and a server sent it")
	}
	return true
}

func (c *checker) params(msg *message, body []byte) {
	e, ok := c.pick(msg.params)
	if !ok {
		return
	}
	c.bodyName = "params of " + msg.name
	typ := defs[exprs[e].ref].name
	if body == nil {
		if !msg.bare.has(c.rev) {
			c.report(nil, Missing, typ, `"params" is missing: `+msg.name+" needs it")
		}
		return
	}
	if c.valid(body) {
		c.value(body, e, nil, typ)
	}
}

// pick returns the first variant that the revision has.
func (c *checker) pick(all []variant) (ref uint16, ok bool) {
	for _, v := range all {
		if v.in.has(c.rev) {
			return v.is, true
		}
	}
	return 0, false
}

// result checks a result against the type that the method and its own resultType ask for.
func (c *checker) result(msg *message, body []byte) {
	name := "Result"
	var others []string
	if msg != nil {
		for _, v := range msg.results {
			if v.in.has(c.rev) {
				others = append(others, defs[exprs[v.is].ref].name)
			}
		}
	}
	if len(others) > 0 {
		name = others[0]
	}
	text, isString := stringMember(body, "resultType")
	switch {
	case c.rev.Modern() && isString && text == mcp.ResultTypeInputRequired:
		name = "InputRequiredResult"
	case c.rev.Modern() && isString && text == "task":
		switch {
		case slices.Contains(others, "ExtensionCreateTaskResult"):
			name = "ExtensionCreateTaskResult"
		case msg == nil || msg.extension == 0:
			return
		}
	case c.rev.Modern() && isString && text != mcp.ResultTypeComplete:
		return // an extension's, and who knows what it looks like
	case slices.Contains(others, "CreateTaskResult") && member(body, "task") != nil && !c.hasRequired(name, body):
		name = "CreateTaskResult"
	}
	n, _ := defIndex(name)
	c.definition(body, n, nil)
	if name == "InputRequiredResult" && isObject(body) && member(body, "inputRequests") == nil && member(body, "requestState") == nil {
		c.report(nil, Missing, name, `"inputRequests" and "requestState" are missing: `+name+" needs one of them")
	}
}

// hasRequired reports whether an object has any of the members that a type needs.
func (c *checker) hasRequired(name string, body []byte) bool {
	n, _ := defIndex(name)
	return slices.ContainsFunc(defs[n].fields, func(f field) bool { return f.need.has(c.rev) && member(body, f.name) != nil })
}

// errorObject checks an error object, and its data if the code says what that is.
func (c *checker) errorObject(body []byte) {
	n, _ := defIndex("Error")
	c.definition(body, n, nil)
	code, err := strconv.Atoi(string(member(body, "code")))
	if err != nil {
		return
	}
	for i := range failures {
		f := &failures[i]
		if f.code != code || !f.in.has(c.rev) || !f.has {
			continue
		}
		data := member(body, "data")
		switch {
		case data != nil:
			c.value(data, f.data, &path{key: "data", named: true}, f.name)
		case f.need:
			c.report(nil, Missing, f.name, `"data" is missing: error `+strconv.Itoa(code)+" needs it")
		}
	}
}

// member returns the value of a member, the last if it stands twice, or nil.
func member(obj []byte, name string) (value []byte) {
	if !isObject(obj) {
		return nil
	}
	members := jsonwire.ObjectMembers(obj)
	for members.Next() {
		if members.KeyIs(name) {
			value = members.Value()
		}
	}
	return value
}

func stringMember(obj []byte, name string) (text string, ok bool) {
	value := member(obj, name)
	if jsonKind(value) != KindString {
		return "", false
	}
	return jsonwire.UnquoteString(value[1 : len(value)-1]), true
}
