package shape

import "mcpwire/mcp"

// A Method is what the revisions say of a request or notification.
type Method struct {
	Name         string
	Notification bool
	msg          *message
}

// Methods returns all methods of all revisions and of the tasks extension, by name.
func Methods() []Method {
	all := make([]Method, len(messages))
	for i := range messages {
		all[i] = Method{messages[i].name, messages[i].notification, &messages[i]}
	}
	return all
}

// MethodOf returns a method by its name on the wire. ok is false if no revision has it.
func MethodOf(name string) (m Method, ok bool) {
	msg := lookup(name)
	if msg == nil {
		return Method{}, false
	}
	return Method{msg.name, msg.notification, msg}, true
}

// Revisions returns where the method is a message, or part of a result that is input_required, the oldest first.
func (m Method) Revisions() []mcp.Revision {
	return (m.msg.client | m.msg.server | m.msg.input).list()
}

// FromClient reports whether clients send it.
func (m Method) FromClient(r mcp.Revision) bool { return m.msg.client.has(r) }

// FromServer reports whether servers send it.
func (m Method) FromServer(r mcp.Revision) bool { return m.msg.server.has(r) }

// Input reports whether it is no message of the revision, but part of a result that is input_required.
func (m Method) Input(r mcp.Revision) bool { return m.msg.input.has(r) }

// Extension reports whether it is part of an extension in the revision, and not of the protocol itself.
func (m Method) Extension(r mcp.Revision) bool { return m.msg.extension.has(r) }

// Params returns what the params look like. required reports whether they must be there; ok is false if the revision does not have the method.
func (m Method) Params(r mcp.Revision) (t Type, required, ok bool) {
	for _, v := range m.msg.params {
		if v.in.has(r) {
			return Type{r, exprs[v.is]}, !m.msg.bare.has(r), true
		}
	}
	return Type{}, false, false
}

// Results returns what may answer a request, the usual one first. There is none if the revision does not have the method, and for notifications.
func (m Method) Results(r mcp.Revision) []Type {
	var all []Type
	for _, v := range m.msg.results {
		if v.in.has(r) {
			all = append(all, Type{r, exprs[v.is]})
		}
	}
	return all
}
