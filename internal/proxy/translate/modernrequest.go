package translate

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A modernRequest is a pending request of a modern client.
type modernRequest struct {
	request
	key          requestKey
	principal    string
	client       era.Client
	logLevel     mcp.LoggingLevel
	call         *modernCall
	subscription *modernSubscription
	// onFinish is called when the request is removed; nil means nothing.
	onFinish func()
}

// A requestKey identifies a request. Over HTTP, ids are only unique to a client.
type requestKey struct {
	stream uint64
	id     string
}

// A modernRequests holds the pending requests of modern clients.
type modernRequests struct {
	*core
	session *era.Session
	server  *legacyServer
	byKey   map[requestKey]*modernRequest
}

func newModernRequests(c *core, server *legacyServer) *modernRequests {
	return &modernRequests{
		core: c, server: server, byKey: make(map[requestKey]*modernRequest),
		session: era.NewSession(era.Config{Revisions: []mcp.Revision{c.opts.Modern}, Custom: unknownMethod}),
	}
}

// unknownMethod reports if no revision has the method. The server may still know it.
func unknownMethod(method []byte) bool {
	return !slices.ContainsFunc(mcp.Revisions(), func(r mcp.Revision) bool { return era.Of(r).HasMethod(method) })
}

// add adds a request of a client. It returns nil if it has rejected the request.
func (mr *modernRequests) add(m *jsonrpc.Message, stream uint64) *modernRequest {
	r := &modernRequest{request: request{id: m.ID.Clone(), method: string(m.Method), cause: mr.cause}, key: requestKey{stream, m.ID.Key()}, principal: mr.opts.PrincipalOf(stream)}
	var refused *jsonrpc.Error
	switch {
	case mr.byKey[r.key] != nil:
		refused = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is in flight")
	case len(mr.byKey) >= mr.opts.Limits.Requests+mr.opts.Limits.Subscriptions:
		refused = errOverloaded
	}
	if refused != nil {
		mr.emit(Out{To: Downstream, Stream: stream, Final: true, Message: jsonrpc.AppendError(nil, r.id, refused, false), Rule: "refused"})
		return nil
	}
	mr.byKey[r.key] = r
	ex, err := mr.session.Open(&rpc.Request{Message: *m})
	if err != nil {
		mr.refuse(r, err)
		return nil
	}
	if r.size = len(ex.Meta.Text()) + 2*len(r.id); !mr.reserve(r.size) {
		r.size = 0
		mr.fail(r, errOverloaded, "refused")
		return nil
	}
	r.client = era.Client{Info: ex.Client.Info, Capabilities: ex.Client.Capabilities}
	r.logLevel = ex.Meta.LogLevel
	r.progressToken = ex.Meta.ProgressToken // r.progressToken owns its memory
	return r
}

// reserveFor counts bytes stored for a request. It fails the request at the limit.
func (mr *modernRequests) reserveFor(r *modernRequest, n int) bool {
	if !mr.reserve(n) {
		mr.fail(r, errOverloaded, "refused")
		return false
	}
	r.size += n
	return true
}

// finish removes a request.
func (mr *modernRequests) finish(r *modernRequest) {
	if mr.byKey[r.key] == r {
		delete(mr.byKey, r.key)
		mr.reserved -= r.size
	}
	r.finished = true
	if r.onFinish != nil {
		r.onFinish()
	}
	if r.call != nil && r.call.req == r {
		r.call.req = nil
	}
	r.call = nil
}

// respond answers the client with a complete result.
func (mr *modernRequests) respond(r *modernRequest, result []byte, rule string, of ...uint64) {
	info := mr.server.short
	if r.method == mcp.MethodDiscover {
		info = mr.server.info
	}
	mr.sendResult(r, era.ResultToModern(nil, result, r.method, info, mr.opts.Hints), rule, of...)
}

// sendResult answers the client with an unchanged result.
func (mr *modernRequests) sendResult(r *modernRequest, result []byte, rule string, of ...uint64) {
	if r.finished {
		return
	}
	mr.finish(r)
	mr.emit(Out{To: Downstream, Stream: r.key.stream, Final: true, Message: jsonrpc.AppendResult(nil, r.id, result), Rule: rule, Causes: of})
}

// fail answers the client with an error.
func (mr *modernRequests) fail(r *modernRequest, e *jsonrpc.Error, rule string) {
	mr.failWith(r, e, httpStatus(e), rule)
}

// refuse answers a request that its revision does not allow.
func (mr *modernRequests) refuse(r *modernRequest, err error) {
	e := jsonrpc.ErrorOf(err)
	status := httpStatus(e)
	var form *era.FormError
	if errors.As(err, &form) {
		status = http.StatusBadRequest
	}
	mr.failWith(r, e, status, "")
}

// failWith answers the client with an error and an HTTP status.
func (mr *modernRequests) failWith(r *modernRequest, e *jsonrpc.Error, status int, rule string) {
	if r.finished {
		return
	}
	mr.finish(r)
	mr.emit(Out{To: Downstream, Stream: r.key.stream, Final: true, Status: status, Message: jsonrpc.AppendError(nil, r.id, e, false), Rule: rule})
}

// httpStatus returns the HTTP status of an error from a modern server. Zero means 200.
func httpStatus(e *jsonrpc.Error) int {
	switch {
	case e.Code == jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case era.IsModernError(e):
		return http.StatusBadRequest
	}
	return 0
}

// sortedKeys returns the keys in the order of their streams and ids.
func sortedKeys(m map[requestKey]*modernRequest) []requestKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b requestKey) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.id, b.id))
	})
}
