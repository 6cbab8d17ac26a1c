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
	maxNear    = 256 // requests that are compared
	maxDiffers = 32  // differences that are counted
	maxAsked   = 200 // bytes of params in a message
)

// miss says that a request is not in the capture: to the log, and as the error to answer with.
func (s *Server) miss(p *peer, a *play, m *jsonrpc.Message) *jsonrpc.Error {
	s.misses.Add(1)
	params := spelt(m.Params)
	attrs := []any{"asked", clip(a.method, 128)}
	if len(params) > len("{}") {
		attrs = append(attrs, "params", clip(params, maxAsked))
	}
	known := s.tape.methods[methodKey{a.modern, a.method}]
	if known == nil {
		if name := s.nearMethod(a); name != "" {
			attrs = append(attrs, "nearest", "the method "+name)
		}
		s.opts.Logger.Warn("not in the capture", attrs...)
		return jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: nothing is recorded of it")
	}
	target := targetOf(a.method, m.Params)
	if near, changes := known.near(target, params); near != nil {
		attrs = append(attrs, "nearest", "n="+strconv.FormatUint(near.n, 10))
		switch {
		case near.shape.target != target:
			attrs = append(attrs, "about", clip(near.shape.target, 128))
		case len(changes) > 0:
			attrs = append(attrs, "differs", describe(changes))
		case s.opts.Once:
			attrs = append(attrs, "why", "it was given as often as it was recorded")
		}
	}
	s.opts.Logger.Warn("not in the capture", attrs...)
	return missError(known, a.method, target)
}

// spelt returns params without metadata as a text to compare and to show.
func spelt(params []byte) string {
	if params = withoutMeta(params); params == nil {
		return "{}"
	}
	return string(appendCanonical(nil, params, nil))
}

// missError is what a client is answered.
func missError(known *method, name, target string) *jsonrpc.Error {
	same := slices.ContainsFunc(known.all, func(e *entry) bool { return e.shape.target == target })
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

// describe says what the first differences are. First is what was recorded.
func describe(changes []jsondiff.Change) string {
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

// near returns the recorded request that is most like one: of those about the same thing if there are any.
func (m *method) near(target, params string) (best *entry, changes []jsondiff.Change) {
	least := maxDiffers + 1
	about := 1 << 20
	for i, e := range m.all {
		if i >= maxNear {
			break
		}
		if e.shape.target != target {
			if d := spelling.Distance(target, e.shape.target); best == nil || best.shape.target != target && d < about {
				best, about = e, d
			}
			continue
		}
		list := jsondiff.Diff([]byte(e.params), []byte(params), &jsondiff.Options{MaxChanges: maxDiffers, MaxValue: 128, MaxSize: 64 << 10, MaxNodes: 4096})
		if best == nil || best.shape.target != target || len(list) < least {
			best, changes, least = e, list, len(list)
		}
	}
	return best, changes
}

// nearMethod returns the recorded method whose name is most like that of a request; "" if none is like it.
func (s *Server) nearMethod(a *play) string {
	var names []string
	for k := range s.tape.methods {
		if k.modern == a.modern {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	best := slices.MinFunc(append(names, ""), func(x, y string) int {
		return cmp.Compare(spelling.Distance(a.method, x), spelling.Distance(a.method, y))
	})
	if best == "" || spelling.Distance(a.method, best) > len(a.method)/2 {
		return ""
	}
	return clip(best, 128)
}
