package mock

import (
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An entry is a recorded request with all that came of it.
type exchange struct {
	n, responseN uint64   // of its events
	session      *session // that it is of; nil for those without one
	modern       bool
	revision     mcp.Revision // that it says; none before the modern ones
	method       string
	matchKey     matchKey
	mask         *mask

	steps       []step        // before the answer
	response    frame         // of the response
	hasResponse bool          // there is an answer
	failed      bool          // it is an error
	delay       time.Duration // before the answer
	trailing    []step        // that came by themselves, before the client's next request

	params    string // canonical, cut; for messages
	status    int    // that HTTP refused it with, without an answer
	cancelled bool   // by the client

	// For reading.
	lastAt time.Duration // when the event before was
	id     jsonrpc.ID
}

// A step is a message of the server that is no answer.
type step struct {
	n          uint64
	delay      time.Duration // since what precedes it
	text       frame
	method     string
	isRequest  bool
	requestID  string    // the id that it had
	responded  bool      // the client has answered
	outOfBand  bool      // it belongs to no request, but came while one was under way
	progressOf *exchange // whose progress it reports
	cancels    string    // the id of the question that it takes back
}

// A session is a recorded one.
type session struct {
	capture    string
	number     uint64
	http       bool
	client     string // name
	revision   mcp.Revision
	initialize *exchange // initialize
	modern     bool      // it has requests of a modern revision that were answered
}

// A shape is what a request is matched by.
type matchKey struct {
	target       string
	params       sum // without _meta, and without what a further round has more
	meta         sum // what is left of _meta without what differs from call to call
	isInputRound bool
	state        sum
	inputs       sum
}

const (
	inputResponses = "inputResponses"
	requestState   = "requestState"
)

// matchKeyOf returns the shape of a request. params is valid JSON, or nil.
func matchKeyOf(method string, params []byte, m *mask) matchKey {
	if !era.IsObject(params) {
		return matchKey{params: sumOf(params, m)}
	}
	var meta, inputs, state []byte
	for o := jsonwire.ObjectMembers(params); o.Next(); {
		switch {
		case o.KeyIs("_meta"):
			meta = o.Value()
		case o.KeyIs(inputResponses):
			inputs = o.Value()
		case o.KeyIs(requestState):
			state = o.Value()
		}
	}
	s := matchKey{target: targetOf(method, params)}
	if mayHaveRounds(method) {
		s.inputs, s.state = sumOf(inputs, m.member(inputResponses)), sumOf(state, m.member(requestState))
		s.isInputRound = inputs != nil || state != nil
	}
	rest := era.Rewrite(nil, params, func(o *jsonwire.Members) []byte {
		if o.KeyIs("_meta") || s.isInputRound && (o.KeyIs(inputResponses) || o.KeyIs(requestState)) {
			return nil
		}
		return o.Value()
	}, nil)
	if len(rest) > len("{}") {
		s.params = sumOf(rest, m)
	}
	s.meta = metaSum(meta, m.member("_meta"))
	return s
}

// mayHaveRounds reports whether a server may want input for a request of the method.
func mayHaveRounds(method string) bool {
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet || method == mcp.MethodResourcesRead
}

// volatile are the members of _meta that differ from call to call, or from client to client.
var volatile = map[string]bool{
	mcp.MetaProgressToken: true, mcp.MetaProtocolVersion: true, mcp.MetaClientCapabilities: true, mcp.MetaClientInfo: true, mcp.MetaLogLevel: true,
	"traceparent": true, "tracestate": true, "baggage": true,
}

func metaSum(meta []byte, m *mask) sum {
	if !era.IsObject(meta) {
		return sum{}
	}
	rest := era.Rewrite(nil, meta, func(o *jsonwire.Members) []byte {
		if volatile[o.KeyString()] {
			return nil
		}
		return o.Value()
	}, nil)
	if len(rest) <= len("{}") {
		return sum{}
	}
	return sumOf(rest, m)
}

// targetOf returns the tool, prompt, resource or task that a request is about.
func targetOf(method string, params []byte) string {
	if name := era.NameParam(method); name != "" {
		return era.LookupString(params, name)
	}
	switch method {
	case mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return era.LookupString(params, "uri")
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return era.LookupString(params, "taskId")
	case mcp.MethodComplete:
		if name := era.LookupString(params, "ref", "name"); name != "" {
			return name
		}
		return era.LookupString(params, "ref", "uri")
	}
	return ""
}

// isModern reports whether a request says its revision itself.
func isModern(params []byte) bool {
	return era.IsObject(params) && era.Lookup(params, "_meta", mcp.MetaProtocolVersion) != nil
}

// revisionOf returns the revision that a request says.
func revisionOf(params []byte) mcp.Revision {
	r, _ := mcp.ParseRevision(era.LookupString(params, "_meta", mcp.MetaProtocolVersion))
	return r
}

// tokenOf returns the text of the token by which progress of a request is reported, nil if there is to be none.
func tokenOf(m *jsonrpc.Message) []byte {
	if !era.IsObject(m.Params) {
		return nil
	}
	return era.Lookup(m.Params, "_meta", mcp.MetaProgressToken)
}
