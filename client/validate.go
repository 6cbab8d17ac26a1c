package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpwire/mcp"
	"mcpwire/schema"
)

// An OutputError is what a tool call fails with whose result is not what the tool's output schema promises
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#output-schema).
type OutputError struct {
	Tool   string
	Result *mcp.CallToolResult // all that the server sent
	Err    error               // usually a *[schema.Error]
}

func (e *OutputError) Error() string {
	return fmt.Sprintf("tool %q broke its output schema: %v", e.Tool, e.Err)
}

// Unwrap returns Err.
func (e *OutputError) Unwrap() error { return e.Err }

var errNoStructured = errors.New("it has an output schema, but the result has no structured content")

// maxSchemaBytes is the largest schema that is compiled, in bytes: compiled it takes some hundred times as much.
const maxSchemaBytes = 512 << 10

// compileServerSchema compiles a schema of the server's.
func compileServerSchema(text []byte, engine schema.Engine) (*schema.Validator, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes; schemas of more than %d are not used", len(text), maxSchemaBytes)
	}
	return schema.Compile(text, engine)
}

// Bounds of what is kept of a server's tools: their names and output schemas.
const (
	maxCatalogBytes = 16 << 20
	toolOverhead    = 256 // bytes of an entry besides
)

// maxToolAge is how old the knowledge of a tool must be for a result that breaks its schema to raise the question whether the schema is still the same.
const maxToolAge = time.Minute

// A toolCatalog is what a client knows of the server's tools from having listed them. The zero value knows nothing.
type toolCatalog struct {
	mu         sync.Mutex
	byName     map[string]*toolInfo
	bytes      int
	generation int // how often everything was forgotten
}

// A toolInfo is what calling a tool takes.
type toolInfo struct {
	repeatable   bool // it is safe to call it again, or so it says: one that lies is called twice, and could have done twice the harm in one call
	taskSupport  string
	outputSchema []byte // schema; nil if it has none
	listedAt     time.Time

	compileOnce sync.Once
	validator   *schema.Validator // of output; nil if that cannot be compiled
}

// requiresTask reports whether a legacy server refuses to run the tool otherwise. Nothing is known of a nil tool.
func (ti *toolInfo) requiresTask() bool {
	return ti != nil && ti.taskSupport == mcp.TaskSupportRequired
}

// currentGeneration returns what learn wants to know: when the list was asked for.
func (tc *toolCatalog) currentGeneration() int {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	return tc.generation
}

// add takes in tools that were listed, unless everything was forgotten since the list was asked for.
func (tc *toolCatalog) add(generation int, tools []mcp.Tool) {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if generation != tc.generation {
		return
	}
	if tc.byName == nil {
		tc.byName = make(map[string]*toolInfo)
	}
	now := time.Now()
	for i := range tools {
		t := &tools[i]
		info := &toolInfo{outputSchema: t.OutputSchema, listedAt: now}
		if a := t.Annotations; a != nil {
			info.repeatable = isTrue(a.ReadOnlyHint) || isTrue(a.IdempotentHint)
		}
		if t.Execution != nil {
			info.taskSupport = t.Execution.TaskSupport
		}
		old := tc.byName[t.Name]
		if old != nil && old.repeatable == info.repeatable && old.taskSupport == info.taskSupport && bytes.Equal(old.outputSchema, info.outputSchema) {
			old.listedAt = now
			continue
		}
		info.outputSchema = bytes.Clone(info.outputSchema)
		if old != nil {
			tc.bytes -= toolOverhead + len(t.Name) + len(old.outputSchema)
			delete(tc.byName, t.Name)
		}
		if size := toolOverhead + len(t.Name) + len(info.outputSchema); tc.bytes+size <= maxCatalogBytes {
			tc.byName[t.Name] = info
			tc.bytes += size
		}
	}
}

func isTrue(hint *bool) bool { return hint != nil && *hint }

func (tc *toolCatalog) clear() {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	tc.byName, tc.bytes = nil, 0
	tc.generation++
}

// lookup returns what is known of a tool, or nil.
func (tc *toolCatalog) lookup(name string) *toolInfo {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	return tc.byName[name]
}

// isStale reports whether the tool was listed too long ago for its schema to be sure. Until it is listed again, it does so once in a while.
func (tc *toolCatalog) isStale(info *toolInfo) bool {
	tc.mu.Lock()
	defer tc.mu.Unlock()
	if time.Since(info.listedAt) <= maxToolAge {
		return false
	}
	info.listedAt = time.Now()
	return true
}

// checkOutput holds a result against the tool's output schema, if that is known.
func (c *Client) checkOutput(ctx context.Context, name string, tr *toolResult) error {
	info := c.tools.lookup(name)
	if info == nil || tr.isError || c.opts.NoOutputValidation {
		return nil
	}
	err := c.validateOutput(name, info, tr)
	if err == nil {
		return nil
	}
	if c.tools.isStale(info) {
		if now := c.findTool(ctx, name); now == nil || !bytes.Equal(now.outputSchema, info.outputSchema) {
			return c.checkOutput(ctx, name, tr)
		}
	}
	result, decodeErr := tr.decode()
	if decodeErr != nil {
		return decodeErr
	}
	return &OutputError{Tool: name, Result: result, Err: err}
}

// findToolTimeout bounds how long a tool is looked for. The call goes on without it then.
const findToolTimeout = 30 * time.Second

// findTool lists the tools anew, until it finds one, and returns what is known of that then.
func (c *Client) findTool(ctx context.Context, name string) *toolInfo {
	ctx, cancel := context.WithTimeout(ctx, findToolTimeout)
	defer cancel()
	for tool, err := range c.Tools(ctx, WithFresh()) {
		if err != nil {
			c.log.Info("tools not listed", "error", err)
			break
		}
		if tool.Name == name {
			break
		}
	}
	return c.tools.lookup(name)
}

func (c *Client) validateOutput(name string, info *toolInfo, tr *toolResult) error {
	info.compileOnce.Do(func() {
		if info.outputSchema == nil {
			return
		}
		var err error
		if info.validator, err = compileServerSchema(info.outputSchema, c.opts.SchemaEngine); err != nil {
			c.log.Warn("results are not validated: output schema cannot be used", "tool", name, "error", err)
		}
	})
	switch {
	case info.validator == nil:
		return nil
	case tr.structured == nil:
		return errNoStructured
	}
	err := info.validator.Validate(tr.structured)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "structuredContent"
	}
	return err
}
