package mock

import (
	"cmp"
	"slices"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/jsondiff"
	"mcpwire/internal/spelling"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Bounds of the search for what somebody may have meant.
const (
	maxCandidates  = 256 // requests that are compared
	maxDifferences = 32  // differences that are counted
	maxParamsText  = 200 // bytes of params in a message
)

// reportMiss says that a request is not in the capture: to the log, and as the error to answer with.
func (s *Server) reportMiss(c *conn, r *responder, m *jsonrpc.Message) *jsonrpc.Error {
	s.misses.Add(1)
	params := paramsText(m.Params)
	attrs := []any{"asked", clip(r.method, 128)}
	if len(params) > len("{}") {
		attrs = append(attrs, "params", clip(params, maxParamsText))
	}
	known := s.recording.methods[methodKey{r.modern, r.method}]
	if known == nil {
		if name := s.closestMethod(r); name != "" {
			attrs = append(attrs, "nearest", "the method "+name)
		}
		s.opts.Logger.Warn("not in the capture", attrs...)
		return jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: nothing is recorded of it")
	}
	target := targetOf(r.method, m.Params)
	if near, changes := known.closest(target, params); near != nil {
		attrs = append(attrs, "nearest", "n="+strconv.FormatUint(near.n, 10))
		switch {
		case near.matchKey.target != target:
			attrs = append(attrs, "about", clip(near.matchKey.target, 128))
		case len(changes) > 0:
			attrs = append(attrs, "differs", describeChanges(changes))
		case s.opts.Once:
			attrs = append(attrs, "why", "it was given as often as it was recorded")
		}
	}
	s.opts.Logger.Warn("not in the capture", attrs...)
	return missError(known, r.method, target)
}

// paramsText returns params without metadata as a text to compare and to show.
func paramsText(params []byte) string {
	if params = withoutMeta(params); params == nil {
		return "{}"
	}
	return string(appendCanonical(nil, params, nil))
}

// missError is what a client is answered.
func missError(known *method, name, target string) *jsonrpc.Error {
	same := slices.ContainsFunc(known.all, func(e *exchange) bool { return e.matchKey.target == target })
	switch {
	case target == "" && era.NameParam(name) != "":
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params.%s is missing", era.NameParam(name))
	case target == "" || same:
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "nothing is recorded for these params")
	case name == mcp.MethodResourcesRead:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "resource not found: nothing is recorded of it")
	case name == mcp.MethodToolsCall:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown tool: nothing is recorded of it")
	}
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "nothing of that name is recorded")
}

// describeChanges says what the first differences are. First is what was recorded.
func describeChanges(changes []jsondiff.Change) string {
	c := changes[0]
	text := c.Pointer
	if text == "" {
		text = "all of it"
	}
	switch c.Op {
	case jsondiff.Add:
		text += " is not recorded"
	case jsondiff.Remove:
		text += " is recorded, and missing here"
	default:
		text += " is " + clip(c.Old, 64) + " there, " + clip(c.New, 64) + " here"
	}
	if n := len(changes) - 1; n > 0 {
		text += ", and " + strconv.Itoa(n) + " more"
	}
	return text
}

// closest returns the recorded request that is most like one: of those about the same thing if there are any.
func (m *method) closest(target, params string) (best *exchange, changes []jsondiff.Change) {
	least := maxDifferences + 1
	about := 1 << 20
	for i, e := range m.all {
		if i >= maxCandidates {
			break
		}
		if e.matchKey.target != target {
			if d := spelling.Distance(target, e.matchKey.target); best == nil || best.matchKey.target != target && d < about {
				best, about = e, d
			}
			continue
		}
		list := jsondiff.Diff([]byte(e.params), []byte(params), &jsondiff.Options{MaxChanges: maxDifferences, MaxValue: 128, MaxSize: 64 << 10, MaxNodes: 4096})
		if best == nil || best.matchKey.target != target || len(list) < least {
			best, changes, least = e, list, len(list)
		}
	}
	return best, changes
}

// closestMethod returns the recorded method whose name is most like that of a request; "" if none is like it.
func (s *Server) closestMethod(r *responder) string {
	var names []string
	for k := range s.recording.methods {
		if k.modern == r.modern {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	best := slices.MinFunc(append(names, ""), func(x, y string) int {
		return cmp.Compare(spelling.Distance(r.method, x), spelling.Distance(r.method, y))
	})
	if best == "" || spelling.Distance(r.method, best) > len(r.method)/2 {
		return ""
	}
	return clip(best, 128)
}
