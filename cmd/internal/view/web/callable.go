package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// Limits of the tools that can be called.
const (
	maxToolLists   = 64        // results of tools/list that are read
	maxListBytes   = 8 << 20   // bytes of such a result
	maxCallable    = 2000      // tools
	maxSchemaBytes = 512 << 10 // bytes of an input schema for a form
	maxRecorded    = 50        // recorded calls of a tool
	maxArguments   = 4 << 20   // bytes of arguments
)

// callable is a tool that a capture lists.
type callable struct {
	// Row is the Seq of the tools/list request.
	Row     uint64 `json:"row"`
	Capture string `json:"c"`
	Server  string `json:"srv,omitempty"`
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	About   string `json:"about,omitempty"`
	// Hints are those that matter to a user, such as "read-only".
	Hints []string `json:"hints,omitempty"`
}

// callableDetail is a tool with what is needed to call it.
type callableDetail struct {
	callable
	// Schema is the input schema. It is absent if it is too large for a form.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Target is where a call would go. The user must see it first.
	Target string `json:"target,omitempty"`
	// Note says why the tool cannot be called.
	Note     string         `json:"note,omitempty"`
	Recorded []recordedCall `json:"recorded"`
}

// recordedCall is a call in a capture.
type recordedCall struct {
	Seq     uint64  `json:"q"`
	At      float64 `json:"at"`
	Status  string  `json:"st"`
	Took    float64 `json:"ms,omitempty"`
	Excerpt string  `json:"x,omitempty"`
}

// A toolList is a recorded result of tools/list.
type toolList struct {
	row    rowRef
	server string
}

// toolLists returns the newest results of tools/list, the newest first. If only is set, it decides
// by the id of a capture and the server's name.
func toolLists(hub *watch.Hub, only func(captureID, server string) bool) (lists []toolList) {
	hub.Read(func(m *trace.Model) {
		for _, r := range slices.Backward(m.Rows()) {
			if len(lists) == maxToolLists {
				return
			}
			if r.Method == mcp.MethodToolsList && r.Kind == trace.Request && r.Status == trace.OK && r.ResponseN != 0 && (only == nil || only(r.Capture.ID, r.Session.Label())) {
				lists = append(lists, toolList{newRowRef(r), r.Session.Label()})
			}
		}
	})
	return lists
}

// eachTool calls use for each tool of a list, until use returns false. definition is valid until
// then.
func eachTool(ctx context.Context, hub *watch.Hub, l toolList, use func(t callable, definition []byte) bool) {
	e, err := hub.Event(ctx, l.row.capture, l.row.responseN)
	var m jsonrpc.Message
	if err != nil || e.Cut || len(e.Data) > maxListBytes || jsonrpc.Parse(e.Data, &m, 0) != nil {
		return
	}
	for el := jsonwire.ArrayElements(jsonwire.Lookup(m.Result, "tools")); el.Next(); {
		text := func(path ...string) string { return jsonwire.Text(jsonwire.Lookup(el.Value(), path...)) }
		t := callable{
			Row: l.row.row.Seq, Capture: l.row.capture, Server: l.server, Name: text("name"), Hints: hints(jsonwire.Lookup(el.Value(), "annotations")),
			Title: printable.Line(clip.String(cmp.Or(text("title"), text("annotations", "title")), 200)), About: printable.Line(clip.String(text("description"), 4000)),
		}
		if t.Name != "" && len(t.Name) <= maxToolName && !use(t, el.Value()) {
			return
		}
	}
}

const maxToolName = 1000 // bytes

// hints names the annotations that matter to a user.
func hints(annotations []byte) (list []string) {
	for _, h := range []struct{ member, name string }{{"readOnlyHint", "read-only"}, {"destructiveHint", "destructive"}, {"idempotentHint", "idempotent"}, {"openWorldHint", "open world"}} {
		if string(jsonwire.Lookup(annotations, h.member)) == "true" {
			list = append(list, h.name)
		}
	}
	return list
}

// serveCallables responds with the tools that can be called.
func (s *Server) serveCallables(w http.ResponseWriter, r *http.Request) error {
	out := struct {
		Tools []callable `json:"tools"`
	}{[]callable{}}
	type key struct{ server, name string }
	seen := map[key]bool{}
	for _, l := range toolLists(s.hub, nil) {
		eachTool(r.Context(), s.hub, l, func(t callable, _ []byte) bool {
			if k := (key{t.Server, t.Name}); !seen[k] {
				seen[k] = true
				out.Tools = append(out.Tools, t)
			}
			return len(out.Tools) < maxCallable
		})
	}
	slices.SortStableFunc(out.Tools, func(a, b callable) int { return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Name, b.Name)) })
	return writeJSON(w, out)
}

// findTool returns a tool by the row of its list and its name or, for the row of a call, the tool
// that was called.
func findTool(ctx context.Context, hub *watch.Hub, p rowRef, name string) (found callable, definition []byte, err error) {
	// As trace.Session.Label.
	server := strings.TrimSpace(p.row.Record.Server + " " + p.row.Record.Side)
	lists := []toolList{{p, server}}
	if p.row.Record.Method != mcp.MethodToolsList {
		name = cmp.Or(name, p.row.Record.Target)
		lists = toolLists(hub, func(c, _ string) bool { return c == p.capture })
		// A capture of one call has no list, but another of the same server may have it.
		lists = append(lists, toolLists(hub, func(c, srv string) bool { return c != p.capture && srv == server })...)
	}
	ok := false
	for _, l := range lists {
		eachTool(ctx, hub, l, func(t callable, d []byte) bool {
			if ok = t.Name == name; ok {
				found, definition = t, bytes.Clone(d)
			}
			return !ok
		})
		if ok {
			return found, definition, nil
		}
	}
	return callable{}, nil, fail(http.StatusNotFound, "no recorded list of tools has this tool")
}

// serveCallable responds with one tool.
func (s *Server) serveCallable(w http.ResponseWriter, r *http.Request) error {
	p, err := s.views.pathRow(r)
	if err != nil {
		return err
	}
	t, definition, err := findTool(r.Context(), s.hub, p, r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	out := callableDetail{callable: t, Recorded: recordedCalls(s.hub, t)}
	if input := jsonwire.Lookup(definition, "inputSchema"); len(input) > 0 && len(input) <= maxSchemaBytes {
		out.Schema = input
	}
	list, err := s.views.row(t.Row)
	if err != nil {
		return err
	}
	if o, _, err := s.resender.origin(r.Context(), list); err != nil {
		out.Note = err.Error()
	} else {
		out.Target = targetText(o)
	}
	return writeJSON(w, out)
}

// recordedCalls returns the newest calls of a tool, the newest first.
func recordedCalls(hub *watch.Hub, t callable) []recordedCall {
	list := []recordedCall{}
	hub.Read(func(m *trace.Model) {
		for _, r := range slices.Backward(m.Rows()) {
			if len(list) == maxRecorded {
				return
			}
			if r.Method != mcp.MethodToolsCall || r.Kind != trace.Request || r.Target != t.Name || r.Session.Label() != t.Server {
				continue
			}
			c := recordedCall{Seq: r.Seq, At: float64(r.At.UnixMicro()) / 1000, Status: string(r.Status), Excerpt: printable.Line(r.Excerpt)}
			if took, known := r.Elapsed(); known {
				c.Took = trace.TruncatedMillis(took)
			}
			list = append(list, c)
		}
	})
	return list
}

// problem is what is wrong with the arguments of a call.
type problem struct {
	Pointer string `json:"at"`
	Message string `json:"message"`
}

// serveValidate checks arguments against the input schema of a tool.
func (s *Server) serveValidate(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Row             uint64
		Name, Arguments string
	}
	if err := readJSON(w, r, maxArguments, &q); err != nil {
		return err
	}
	p, err := s.views.row(q.Row)
	if err != nil {
		return err
	}
	_, definition, err := findTool(r.Context(), s.hub, p, q.Name)
	if err != nil {
		return err
	}
	out := struct {
		Problems []problem `json:"problems"`
		// Note says why the schema could not be used.
		Note string `json:"note,omitempty"`
	}{Problems: []problem{}}
	out.Problems, out.Note = validate(jsonwire.Lookup(definition, "inputSchema"), []byte(q.Arguments))
	return writeJSON(w, out)
}

// validate returns what is wrong with arguments, and why the schema could not be used. The schema
// is not trusted.
func validate(input, arguments []byte) ([]problem, string) {
	if err := jsonwire.Valid(arguments, 0); err != nil {
		return []problem{{Message: err.Error()}}, ""
	}
	v, err := schema.Compile(input, fullschema.Bounded)
	if err == nil {
		err = v.Validate(arguments)
	}
	list := []problem{}
	if e, ok := errors.AsType[*schema.Error](err); ok {
		for _, p := range e.Problems {
			list = append(list, problem{printable.Line(p.Pointer), printable.Line(p.Message)})
		}
		if e.Limit {
			return list[:len(list)-1], "Not all is checked here: " + list[len(list)-1].Message
		}
		return list, ""
	}
	if err == nil {
		return list, ""
	}
	reason := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "schema: "), "engine: ")
	return list, "Only the server checks the arguments. The tool's schema cannot be checked here: " + printable.Line(clip.String(reason, 300))
}

// serveCall calls a tool in a new instance of its server.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Row                     uint64
		Name, Arguments, Target string
	}
	if err := readJSON(w, r, maxBody, &q); err != nil {
		return err
	}
	p, err := s.views.row(q.Row)
	switch {
	case err != nil:
		return err
	case p.row.Record.Method != mcp.MethodToolsList:
		return fail(http.StatusNotFound, "the row is not a list of tools")
	}
	ctx, cancel := context.WithTimeout(r.Context(), resendTimeout)
	defer cancel()
	_, definition, err := findTool(ctx, s.hub, p, q.Name)
	if err != nil {
		return err
	}
	o, list, err := s.resender.origin(ctx, p)
	switch {
	case err != nil:
		return failure{http.StatusUnprocessableEntity, err}
	case q.Target != targetText(o):
		return writeTargetChanged(w, targetText(o))
	}
	// The capture may announce these headers only behind the event that the origin is read from.
	if params, err := mcp.HeaderParams(jsonwire.Lookup(definition, "inputSchema")); err == nil && len(params) > 0 {
		o.Params = map[string][]mcp.HeaderParam{q.Name: params}
	}
	if err := jsonwire.Valid([]byte(q.Arguments), 0); q.Arguments != "" && err != nil {
		return fail(http.StatusUnprocessableEntity, "the arguments are not valid JSON: "+err.Error())
	}
	message, err := toolCall(list, q.Name, q.Arguments)
	if err != nil {
		return failure{http.StatusUnprocessableEntity, err}
	}
	return s.resender.run(ctx, w, o, message)
}

// toolCall returns a call as the client that sent a tools/list request would send it.
func toolCall(list []byte, name, arguments string) ([]byte, error) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(list, &m, 0); err != nil {
		return nil, err
	}
	if m.Kind != jsonrpc.KindRequest {
		return nil, errors.New("the list of tools was requested in a batch")
	}
	params := jsonwire.AppendQuote([]byte(`{"name":`), name)
	if arguments != "" {
		params = append(append(params, `,"arguments":`...), arguments...)
	}
	if meta, ok := m.Param("_meta"); ok {
		params = append(append(params, `,"_meta":`...), meta...)
	}
	return jsonrpc.AppendRequest(nil, m.ID, mcp.MethodToolsCall, append(params, '}')), nil
}
