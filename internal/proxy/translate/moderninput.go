package translate

import (
	"bytes"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A serverRequest is a request of the legacy server. The client gets it as an input request.
type serverRequest struct {
	era.InputRequest
	cause uint64
	// id is the request id; nil if nobody waits for the response.
	id jsonrpc.ID
	// urlElicitation says that it came in a URLElicitationRequired error.
	urlElicitation bool
	// key is the key in inputRequests.
	key  string
	call *modernCall
	// principal is the principal whose call caused the request.
	principal string
	// guessed says that the request may belong to another call.
	guessed bool
	// notFor is the call that gave the request away.
	notFor *modernCall
	// task is the task that it belongs to, or nil.
	task *upstreamTask
	// timeout runs while the request is unclaimed or in task.
	timeout *timer
	size    int
}

// appendTo appends the request as a member of inputRequests. It always adds params, because some
// clients need them although the schema does not.
func (q *serverRequest) appendTo(dst []byte, key string) []byte {
	dst = jsonwire.AppendQuote(dst, key)
	dst = jsonwire.AppendQuote(append(dst, `:{"method":`...), q.Method)
	dst = append(dst, `,"params":`...)
	if q.Params == nil {
		return append(dst, "{}}"...)
	}
	return append(append(dst, q.Params...), '}')
}

// A modernInputs holds the requests of the legacy server that have no response yet.
type modernInputs struct {
	*core
	// pending holds the requests by the key of their ids.
	pending map[string]*serverRequest
	// unclaimed holds requests without a call.
	unclaimed []*serverRequest
}

// add adds a request of the server. task is the task that it names, or "". The result is nil if add
// has rejected the request.
func (mi *modernInputs) add(m *jsonrpc.Message) (q *serverRequest, task string) {
	method := string(m.Method)
	q = &serverRequest{InputRequest: era.InputRequest{Method: method, Params: m.Params}, id: m.ID.Clone(), cause: mi.cause}
	switch {
	case !era.IsInputRequest(method):
		mi.reject(q, jsonrpc.MethodNotFound(method))
		return nil, ""
	case mi.pending[q.id.Key()] != nil:
		mi.reject(q, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: a request with this id is in flight"))
		return nil, ""
	case len(mi.pending) >= mi.opts.Limits.InputRequests:
		mi.reject(q, internalError("too many pending input requests"))
		return nil, ""
	case len(q.Params) > 0 && !era.IsObject(q.Params):
		mi.reject(q, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params must be an object"))
		return nil, ""
	}
	task = era.LookupString(q.Params, "_meta", mcp.MetaRelatedTask, "taskId")
	converted, err := q.Convert(mi.modern, "")
	if err != nil {
		mi.reject(q, q.Refusal(err.Error()))
		return nil, ""
	}
	q.InputRequest = era.InputRequest{Method: method, Params: bytes.Clone(converted.Params)}
	if q.size = len(q.Params) + 2*len(q.id); !mi.reserve(q.size) {
		mi.reject(q, internalError("too many pending input requests"))
		return nil, ""
	}
	mi.pending[q.id.Key()] = q
	return q, task
}

// addUnclaimed keeps a server request without a call for at most wait.
func (mi *modernInputs) addUnclaimed(q *serverRequest, wait time.Duration) {
	mi.unclaimed = append(mi.unclaimed, q)
	q.timeout = mi.after(wait, func() {
		mi.removeUnclaimed(q)
		mi.reject(q, q.Refusal("a modern client can only be sent input requests during a request, and it had none in flight"))
	})
	mi.drop("waits for a request of the client")
}

func (mi *modernInputs) removeUnclaimed(q *serverRequest) {
	mi.timers.stop(q.timeout)
	mi.unclaimed = without(mi.unclaimed, q)
}

// isPending reports if a server request has no response yet.
func (mi *modernInputs) isPending(q *serverRequest) bool {
	return q.id != nil && mi.pending[q.id.Key()] == q
}

// remove removes a server request from the pending ones.
func (mi *modernInputs) remove(q *serverRequest) {
	if mi.isPending(q) {
		delete(mi.pending, q.id.Key())
		mi.reserved -= q.size
	}
	mi.timers.stop(q.timeout)
}

// removeAll removes all server requests, because the server is gone.
func (mi *modernInputs) removeAll() {
	for _, q := range mi.pending {
		mi.timers.stop(q.timeout)
		mi.reserved -= q.size
		q.id = nil
	}
	clear(mi.pending)
	mi.unclaimed = nil
}

// reject answers a server request with an error.
func (mi *modernInputs) reject(q *serverRequest, e *jsonrpc.Error) {
	mi.remove(q)
	if q.id != nil {
		mi.emit(Out{To: Upstream, Message: jsonrpc.AppendError(nil, q.id, e, false), Rule: "refused"})
	}
}

// respond answers a server request with a result.
func (mi *modernInputs) respond(q *serverRequest, result []byte, rule string) {
	mi.remove(q)
	if q.id != nil {
		mi.emit(Out{To: Upstream, Message: jsonrpc.AppendResult(nil, q.id, result), Rule: rule})
	}
}

// cancel answers a server request for a client that will not answer it.
func (mi *modernInputs) cancel(q *serverRequest) {
	if q.Method == mcp.MethodElicit {
		mi.respond(q, []byte(`{"action":"cancel"}`), "the client disconnected")
		return
	}
	mi.reject(q, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client did not respond"})
}

// canceled handles the cancellation of a server request.
func (mi *modernInputs) canceled(m *jsonrpc.Message) {
	id, _, _ := era.Cancellation{}.Target(m)
	q := mi.pending[id.Key()]
	if id == nil || q == nil {
		mi.drop("nothing to cancel")
		return
	}
	mi.remove(q)
	mi.removeUnclaimed(q)
	if q.task != nil {
		delete(q.task.inputs, q.key)
	}
	if c := q.call; c != nil {
		c.unsentInputs = without(c.unsentInputs, q)
		c.sentInputs = without(c.sentInputs, q)
		if len(c.unsentInputs) == 0 {
			mi.timers.stop(c.gatherTimer)
		}
	}
	mi.drop("the server cancels an input request")
}
