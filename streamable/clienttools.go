package streamable

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// toolHeaders remembers which arguments of which tools are repeated in headers
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters), as the last list of them said that came by. The
// zero value is ready; it may be used by many goroutines at once.
type toolHeaders struct {
	some atomic.Bool // there is any
	mu   sync.RWMutex
	byID map[string][]toolHeader
}

// A toolHeader is one argument that is repeated.
type toolHeader struct {
	key  string // of the http.Header
	path []string
}

const (
	maxHeaderTools  = 10000 // that are remembered
	maxHeaderParams = 64    // of one tool: more than that no server wants, and none would take
)

var errInexact = errors.New("it must be between ±(2^53-1) to be exact in a header")

// apply puts the arguments of a call into its header.
func (t *toolHeaders) apply(h http.Header, tool string, arguments []byte) error {
	if !t.some.Load() || len(arguments) == 0 {
		return nil
	}
	for _, p := range t.of(tool) {
		value := arguments
		for _, name := range p.path {
			if value = jsonwire.Lookup(value, name); value == nil {
				break
			}
		}
		if value == nil {
			continue
		}
		text, ok, err := paramValue(value)
		if err != nil {
			return fmt.Errorf("tool %q: argument %q cannot be sent over HTTP: %w", tool, p.path, err)
		}
		if ok {
			h[p.key] = []string{text}
		}
	}
	return nil
}

// of returns what is known of a tool.
func (t *toolHeaders) of(tool string) []toolHeader {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[tool]
}

// check holds the header of a call against its arguments.
func (t *toolHeaders) check(h http.Header, tool string, arguments []byte) *jsonrpc.Error {
	if !t.some.Load() {
		return nil
	}
	for _, p := range t.of(tool) {
		if e := checkParam(h, p.key, p.path, arguments); e != nil {
			return e
		}
	}
	return nil
}

// learn remembers what a tool wants in headers.
func (t *toolHeaders) learn(tool string, params []mcp.HeaderParam) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(params) == 0 {
		delete(t.byID, tool)
		return
	}
	if t.byID == nil {
		t.byID = make(map[string][]toolHeader)
	}
	if _, known := t.byID[tool]; !known && len(t.byID) >= maxHeaderTools {
		for other := range t.byID { // any: a list of so many tools is no use to anybody
			delete(t.byID, other)
			break
		}
	}
	all := make([]toolHeader, len(params))
	for i, p := range params {
		all[i] = toolHeader{http.CanonicalHeaderKey(headerParam + p.Header), p.Path}
	}
	t.byID[tool] = all
	t.some.Store(true)
}

// take reads the answer to tools/list and returns it without the tools that must not be used over HTTP: those whose x-mcp-header breaks the rules. m is the frame, parsed.
func (t *toolHeaders) take(frame []byte, m *jsonrpc.Message, log *slog.Logger) []byte {
	if m.Kind != jsonrpc.KindResponse || !t.some.Load() && !bytes.Contains(frame, []byte("mcp-header")) && !bytes.Contains(frame, []byte(`\u`)) {
		return frame
	}
	tools := jsonwire.Lookup(m.Result, "tools")
	if len(tools) == 0 || tools[0] != '[' {
		return frame
	}
	start := cap(frame) - cap(tools) // where tools is in frame
	kept, dropped := []byte{'['}, false
	elements := jsonwire.ArrayElements(tools)
	for elements.Next() {
		tool := elements.Value()
		if name, err := t.takeTool(tool); err != nil {
			log.Warn("tool left out: it cannot be called over HTTP", "tool", clipped(name), "error", err)
			dropped = true
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, tool...)
	}
	if !dropped {
		return frame
	}
	out := make([]byte, 0, len(frame))
	out = append(append(out, frame[:start]...), kept...)
	out = append(out, ']')
	return append(out, frame[start+len(tools):]...)
}

func (t *toolHeaders) takeTool(tool []byte) (name string, err error) {
	if tool[0] != '{' {
		return "", nil // for those to complain of who read the result
	}
	var schema []byte
	members := jsonwire.ObjectMembers(tool)
	for members.Next() {
		switch {
		case members.KeyIs("name"):
			name = jsonwire.Text(members.Value())
		case members.KeyIs("inputSchema"):
			schema = members.Value()
		}
	}
	params, err := mcp.HeaderParams(schema)
	if err == nil && len(params) > maxHeaderParams {
		err = fmt.Errorf("it wants %d arguments in headers, more than %d", len(params), maxHeaderParams)
	}
	if err != nil {
		params = nil
	}
	t.learn(name, params)
	return name, err
}
