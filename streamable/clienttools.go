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
	nonEmpty atomic.Bool // there is any
	mu       sync.RWMutex
	byTool   map[string][]toolHeader
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
	if !t.nonEmpty.Load() || len(arguments) == 0 {
		return nil
	}
	for _, p := range t.forTool(tool) {
		value := arguments
		for _, name := range p.path {
			if value = jsonwire.Lookup(value, name); value == nil {
				break
			}
		}
		if value == nil {
			continue
		}
		text, ok, err := headerValue(value)
		if err != nil {
			return fmt.Errorf("tool %q: argument %q cannot be sent over HTTP: %w", tool, p.path, err)
		}
		if ok {
			h[p.key] = []string{text}
		}
	}
	return nil
}

// forTool returns what is known of a tool.
func (t *toolHeaders) forTool(tool string) []toolHeader {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byTool[tool]
}

// check holds the header of a call against its arguments.
func (t *toolHeaders) check(h http.Header, tool string, arguments []byte) *jsonrpc.Error {
	if !t.nonEmpty.Load() {
		return nil
	}
	for _, p := range t.forTool(tool) {
		if e := checkParam(h, p.key, p.path, arguments); e != nil {
			return e
		}
	}
	return nil
}

// set remembers what a tool wants in headers.
func (t *toolHeaders) set(tool string, params []mcp.HeaderParam) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(params) == 0 {
		delete(t.byTool, tool)
		return
	}
	if t.byTool == nil {
		t.byTool = make(map[string][]toolHeader)
	}
	if _, known := t.byTool[tool]; !known && len(t.byTool) >= maxHeaderTools {
		for other := range t.byTool { // any: a list of so many tools is no use to anybody
			delete(t.byTool, other)
			break
		}
	}
	all := make([]toolHeader, len(params))
	for i, p := range params {
		all[i] = toolHeader{http.CanonicalHeaderKey(headerParam + p.Header), p.Path}
	}
	t.byTool[tool] = all
	t.nonEmpty.Store(true)
}

// filterTools reads the answer to tools/list and returns it without the tools that must not be used over HTTP: those whose x-mcp-header breaks the rules. m is the frame, parsed.
func (t *toolHeaders) filterTools(frame []byte, m *jsonrpc.Message, log *slog.Logger) []byte {
	if m.Kind != jsonrpc.KindResponse || !t.nonEmpty.Load() && !bytes.Contains(frame, []byte("mcp-header")) && !bytes.Contains(frame, []byte(`\u`)) {
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
		if name, err := t.addTool(tool); err != nil {
			log.Warn("tool left out: it cannot be called over HTTP", "tool", clip(name), "error", err)
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

func (t *toolHeaders) addTool(tool []byte) (name string, err error) {
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
	t.set(name, params)
	return name, err
}
