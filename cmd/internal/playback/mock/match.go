package mock

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/era"
	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A cursor identifies a list of exchanges, some of which the client has received.
type cursor struct {
	first *exchange
	loose bool
}

// candidates returns the recorded requests that match a request, in order, and their cursor.
func (c *conn) candidates(modern bool, m *jsonrpc.Message) ([]*exchange, cursor) {
	known := c.srv.recording.methods[methodKey{modern, string(m.Method)}]
	if known == nil {
		return nil, cursor{}
	}
	s := matchKeyOf(string(m.Method), m.Params, nil)
	list := known.lookup(string(m.Method), m.Params, s)
	loose := false
	if len(list) == 0 && c.srv.opts.Loose {
		list, loose = known.byTarget[lookupKey{isInputRound: s.isInputRound, target: s.target}], true
	}
	if len(list) == 0 {
		return nil, cursor{}
	}
	if s.isInputRound {
		list = preferred(list, func(e *exchange) bool { return e.matchKey.state == s.state })
		list = preferred(list, func(e *exchange) bool { return e.matchKey.inputs == s.inputs })
	}
	list = preferred(list, func(e *exchange) bool { return e.matchKey.meta == s.meta })
	if of := c.preferredSession(modern); of != nil {
		own := preferred(list, func(e *exchange) bool { return e.session == of })
		if c.srv.opts.Once && len(own) < len(list) {
			others := slices.DeleteFunc(slices.Clone(list), func(e *exchange) bool { return e.session == of })
			own = append(slices.Clone(own), others...)
		}
		list = own
	}
	return list, cursor{list[0], loose}
}

// preferred returns the exchanges for which right returns true, or all of them without one.
func preferred(list []*exchange, right func(*exchange) bool) []*exchange {
	var some []*exchange
	for _, e := range list {
		if right(e) {
			some = append(some, e)
		}
	}
	if len(some) == 0 {
		return list
	}
	return some
}

// next returns the next matching exchange, or nil.
func (c *conn) next(modern bool, m *jsonrpc.Message) *exchange {
	list, at := c.candidates(modern, m)
	if len(list) == 0 {
		return nil
	}
	i := c.cursors[at]
	if i >= len(list) {
		if c.srv.opts.Once {
			return nil
		}
		i = len(list) - 1
	}
	c.cursors[at] = i + 1
	return list[i]
}

// A mask marks the params of a recorded request that were hidden; there, anything matches. nil
// hides nothing.
type mask struct {
	all    bool
	inside map[string]*mask
}

// maxMask limits the hidden parts of one request.
const maxMask = 256

// maskOf builds a mask from an event's pointers to hidden values; prefix is the pointer to the
// params. canonical is equal for equal masks.
func maskOf(pointers []string, prefix string) (m *mask, canonical string) {
	var inside []string
	for _, p := range pointers {
		if rest, ok := strings.CutPrefix(p, prefix); ok && (rest == "" || rest[0] == '/') && len(inside) < maxMask {
			inside = append(inside, rest)
		}
	}
	if len(inside) == 0 {
		return nil, ""
	}
	slices.Sort(inside)
	m = new(mask)
	for _, p := range inside {
		at := m
		for _, name := range jsonpointer.Split(p) {
			if at.inside == nil {
				at.inside = map[string]*mask{}
			}
			if at.inside[name] == nil {
				at.inside[name] = new(mask)
			}
			at = at.inside[name]
		}
		at.all = true
	}
	return m, strings.Join(inside, " ")
}

func (m *mask) member(name string) *mask {
	if m == nil {
		return nil
	}
	return m.inside[name]
}

// A sum is a hash of a JSON value, equal for equal values. The zero sum means no value.
type sum [sha256.Size]byte

// sumOf returns the sum of a valid JSON text without the masked parts. nil means no value.
func sumOf(text []byte, m *mask) sum {
	if text == nil {
		return sum{}
	}
	return sha256.Sum256(appendCanonical(nil, text, m))
}

// masked replaces a masked value in a canonical text. It is not JSON, so no value equals it.
const masked = "~"

// appendCanonical appends a valid JSON text in a form that is equal for equal values.
func appendCanonical(dst, text []byte, m *mask) []byte {
	if m != nil && m.all {
		return append(dst, masked...)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return dst
	}
	switch text[0] {
	case '{':
		return appendObject(dst, text, m)
	case '[':
		dst = append(dst, '[')
		elements := jsonwire.ArrayElements(text)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, elements.Value(), m.member(strconv.Itoa(i)))
		}
		return append(dst, ']')
	case '"':
		return jsonwire.AppendQuote(dst, jsonwire.AppendUnquote(nil, text[1:len(text)-1]))
	case 't', 'f', 'n':
		return append(dst, text...)
	}
	return decimal.Parse(text).AppendCanonical(dst)
}

func appendObject(dst, text []byte, m *mask) []byte {
	type member struct {
		name  string
		value []byte
	}
	var members []member
	for o := jsonwire.ObjectMembers(text); o.Next(); {
		members = append(members, member{o.KeyString(), o.Value()})
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, x := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, x.name)
		dst = append(dst, ':')
		dst = appendCanonical(dst, x.value, m.member(x.name))
	}
	return append(dst, '}')
}

// Limits of the search for similar requests.
const (
	maxCandidates  = 256 // requests that are compared
	maxDifferences = 32  // differences that are counted
	maxParamsText  = 200 // bytes of params in a message
)

// reportMiss logs that a request is not in the capture, and returns the error to answer with.
func (s *Server) reportMiss(r *responder, m *jsonrpc.Message) *jsonrpc.Error {
	s.misses.Add(1)
	params := paramsText(m.Params)
	attrs := []any{"asked", clip.String(r.method, 128)}
	if len(params) > len("{}") {
		attrs = append(attrs, "params", clip.String(params, maxParamsText))
	}
	known := s.recording.methods[methodKey{r.modern, r.method}]
	if known == nil {
		if name := s.closestMethod(r); name != "" {
			attrs = append(attrs, "nearest", "the method "+name)
		}
		s.opts.Logger.Warn("not in the capture", attrs...)
		return jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: not recorded")
	}
	target := targetOf(r.method, m.Params)
	if closest, changes := known.closest(target, params); closest != nil {
		attrs = append(attrs, "nearest", "n="+strconv.FormatUint(closest.n, 10))
		switch {
		case closest.matchKey.target != target:
			attrs = append(attrs, "about", clip.String(closest.matchKey.target, 128))
		case len(changes) > 0:
			attrs = append(attrs, "differs", describeChanges(changes))
		case s.opts.Once:
			attrs = append(attrs, "why", "already sent as often as it was recorded")
		}
	}
	s.opts.Logger.Warn("not in the capture", attrs...)
	return missError(known, r.method, target)
}

// paramsText returns params without metadata as a text to compare and show.
func paramsText(params []byte) string {
	if params = withoutMeta(params); params == nil {
		return "{}"
	}
	return string(appendCanonical(nil, params, nil))
}

// missError returns the error for the client.
func missError(known *method, name, target string) *jsonrpc.Error {
	same := slices.ContainsFunc(known.all, func(e *exchange) bool { return e.matchKey.target == target })
	switch {
	case target == "" && era.NameParam(name) != "":
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: params.%s is missing", era.NameParam(name))
	case target == "" || same:
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "not recorded with these params")
	case name == mcp.MethodResourcesRead:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "resource not found: not recorded")
	case name == mcp.MethodToolsCall:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown tool: not recorded")
	}
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "this name is not recorded")
}

// describeChanges describes the first difference. Old values are the recorded ones.
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
		text += " is recorded, but missing here"
	default:
		text += " is " + clip.String(c.Old, 64) + " there, " + clip.String(c.New, 64) + " here"
	}
	if n := len(changes) - 1; n > 0 {
		text += ", and " + strconv.Itoa(n) + " more"
	}
	return text
}

// closest returns the most similar recorded request. Requests with the same target come first.
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

// closestMethod returns the recorded method with the most similar name, or "".
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
	return clip.String(best, 128)
}
