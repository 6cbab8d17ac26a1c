package specref

import (
	"encoding/json"
	"slices"
	"strconv"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/shape"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (b *Book) methodEntry(text *block, revs []mcp.Revision) *Entry {
	m, ok := shape.MethodOf(text.name)
	if !ok {
		return nil
	}
	in := intersect(m.Revisions(), revs)
	e := &Entry{Kind: "method", Name: m.Name, Summary: text.text("is"), Revisions: names(in), All: names(m.Revisions()), Message: "request",
		Needs: revisionTexts(text, "needs", in), Page: pageURL(text, in), Notes: revisionNotes(text, in, revs), Rules: b.rulesOf(text, in), Errors: errorCases(text, in)}
	if m.Notification {
		e.Message = "notification"
	}
	if len(in) == 0 {
		return e
	}
	e.Directions = directions(m, in)
	newest := in[len(in)-1]
	params, required, _ := m.Params(newest)
	e.Params = shapeOf(newest, params).expand(newest, params)
	e.Params.Optional = !required
	for _, r := range m.Results(newest) {
		e.Results = append(e.Results, shapeOf(newest, r).expand(newest, r))
	}
	e.Changes = methodChanges(m, revs)
	e.Examples = examples(m, text, newest)
	return e
}

// directions say who sends a message, revisions with the same answer together.
func directions(m shape.Method, revs []mcp.Revision) (all []RevisionText) {
	for _, r := range revs {
		text := "client to server"
		switch {
		case m.Input(r):
			text = "server to client, within a result that is input_required"
		case m.FromClient(r) && m.FromServer(r):
			text = "both ways"
		case m.FromServer(r):
			text = "server to client"
		}
		if m.Extension(r) {
			text += ", of an extension"
		}
		i := slices.IndexFunc(all, func(s RevisionText) bool { return s.Text == text })
		if i < 0 {
			i = len(all)
			all = append(all, RevisionText{Text: text})
		}
		all[i].Revisions = append(all[i].Revisions, r.String())
	}
	return all
}

func errorCases(text *block, revs []mcp.Revision) (all []ErrorCase) {
	for _, l := range text.withKey("error", revs) {
		if code, err := strconv.Atoi(l.rest); err == nil {
			all = append(all, ErrorCase{code, names(intersect(l.revisions, revs)), l.text})
		}
	}
	return all
}

// methodChanges lists what the revisions changed, each against the one before, whether that is asked for or not.
func methodChanges(m shape.Method, revs []mcp.Revision) (all []Change) {
	before := mcp.RevisionNone
	for _, r := range mcp.Revisions() {
		was, is := slices.Contains(m.Revisions(), before), slices.Contains(m.Revisions(), r)
		var what []string
		switch {
		case is && !was && before != mcp.RevisionNone:
			what = []string{"+ " + m.Name}
		case was && !is:
			what = []string{"- " + m.Name}
		case was && is:
			what = methodDiff(m, before, r)
		}
		if len(what) > 0 && slices.Contains(revs, r) {
			all = append(all, Change{r.String(), what})
		}
		before = r
	}
	return all
}

// methodDiff compares params and results. What all messages have in common is left out: see _meta and resultType.
func methodDiff(m shape.Method, before, after mcp.Revision) (all []string) {
	seen := map[string]bool{"MetaObject": true, "RequestMetaObject": true, "NotificationMetaObject": true, "ResultMetaObject": true}
	switch {
	case !m.Input(before) && m.Input(after):
		all = append(all, "~ no request any more, but part of a result that is input_required")
	case m.FromClient(before) && m.FromServer(before) && !m.FromClient(after):
		all = append(all, "~ only from server to client")
	case m.FromClient(before) && m.FromServer(before) && !m.FromServer(after):
		all = append(all, "~ only from client to server")
	}
	if !m.Extension(before) && m.Extension(after) {
		all = append(all, "~ of an extension, and no longer of the protocol itself")
	}
	old, wasRequired, _ := m.Params(before)
	params, required, _ := m.Params(after)
	if required && !wasRequired {
		all = append(all, "~ params must be there")
	}
	if alternatives := params.Alternatives(); old.Kind() == shape.KindObject && len(alternatives) > 0 {
		for _, alt := range alternatives {
			if alt.Name() != old.Name() {
				all = append(all, "+ params may be "+alt.Name())
			} else {
				all = append(all, diffTypes(old, alt, "params", seen)...)
			}
		}
	}
	all = append(all, diffTypes(old, params, "params", seen)...)
	results, olds := m.Results(after), m.Results(before)
	for i, r := range results {
		known := slices.ContainsFunc(olds, func(o shape.Type) bool { return o.Name() == r.Name() })
		switch {
		case i == 0 && len(olds) > 0:
			all = append(all, diffTypes(olds[0], r, "result", seen)...)
		case !known:
			all = append(all, "+ the result may be "+r.Name())
		}
	}
	for _, o := range olds[min(1, len(olds)):] {
		if !slices.ContainsFunc(results, func(r shape.Type) bool { return o.Name() == r.Name() }) {
			all = append(all, "- the result is no longer "+o.Name())
		}
	}
	return all
}

// examples makes a message and, for a request, what answers it.
func examples(m shape.Method, text *block, r mcp.Revision) (all []Example) {
	t, required, _ := m.Params(r)
	params := mergeMembers(t.AppendSample(nil, false), text.text("params"))
	if string(params) == "{}" && !required {
		params = nil
	}
	var message []byte
	switch {
	case m.Input(r):
		message = inputRequest(m.Name, params)
	case m.Notification:
		message = jsonrpc.AppendNotification(nil, m.Name, params)
	default:
		message = jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), m.Name, params)
	}
	all = append(all, Example{Title: map[bool]string{true: "notification", false: "request"}[m.Notification], Revision: r.String(), Message: message})
	if results := m.Results(r); len(results) > 0 {
		result := mergeMembers(results[0].AppendSample(nil, false), text.text("result"))
		if m.Input(r) {
			all = append(all, Example{Title: "its answer in inputResponses", Revision: r.String(), Message: result})
		} else {
			all = append(all, Example{Title: "its result", Revision: r.String(), Message: jsonrpc.AppendResult(nil, jsonrpc.IntID(1), result)})
		}
	}
	return all
}

func inputRequest(method string, params []byte) []byte {
	dst := jsonwire.AppendQuote([]byte(`{"method":`), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// mergeMembers gives an object the members of another, in place of its own of the same name. The sample's _meta stays, and gets what the other's adds.
func mergeMembers(sample []byte, extra string) []byte {
	if extra == "" {
		return sample
	}
	values := map[string]json.RawMessage{}
	var order []string
	put := func(obj []byte) {
		members := jsonwire.ObjectMembers(obj)
		for members.Next() {
			name := members.KeyString()
			if _, ok := values[name]; !ok {
				order = append(order, name)
			}
			values[name] = members.Value()
		}
	}
	put([]byte(extra))
	inner := values["_meta"]
	put(sample)
	put([]byte(extra))
	if own := jsonMember(sample, "_meta"); own != nil && inner != nil {
		values["_meta"] = mergeMembers(own, string(inner))
	}
	// What a reader looks for comes first, and what all messages have last.
	slices.SortStableFunc(order, func(a, b string) int { return memberRank(a) - memberRank(b) })
	dst := []byte{'{'}
	for i, name := range order {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(jsonwire.AppendQuote(dst, name), ':'), values[name]...)
	}
	return append(dst, '}')
}

func memberRank(member string) int {
	switch member {
	case "protocolVersion", "supportedVersions", "taskId":
		return -1
	case "resultType":
		return 1
	case "_meta":
		return 2
	}
	return 0
}

func jsonMember(obj []byte, name string) []byte {
	members := jsonwire.ObjectMembers(obj)
	for members.Next() {
		if members.KeyIs(name) {
			return members.Value()
		}
	}
	return nil
}
