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

// maxSchema is the largest schema that is compiled, in bytes: compiled it takes some hundred times as much.
const maxSchema = 512 << 10

// compileForeign compiles a schema of the server's.
func compileForeign(text []byte, engine schema.Engine) (*schema.Validator, error) {
	if len(text) > maxSchema {
		return nil, fmt.Errorf("it has %d bytes; schemas of more than %d are not used", len(text), maxSchema)
	}
	return schema.Compile(text, engine)
}

// Bounds of what is kept of a server's tools: their names and output schemas.
const (
	maxKnownBytes = 16 << 20
	knownCost     = 256 // bytes of an entry besides
)

// relearnAfter is how old the knowledge of a tool must be for a result that breaks its schema to raise the question whether the schema is still the same.
const relearnAfter = time.Minute

// A toolBook is what a client knows of the server's tools from having listed them. The zero value knows nothing.
type toolBook struct {
	mu    sync.Mutex
	known map[string]*knownTool
	bytes int
	epoch int // how often everything was forgotten
}

// A knownTool is what calling a tool takes.
type knownTool struct {
	repeatable bool // it is safe to call it again, or so it says: one that lies is called twice, and could have done twice the harm in one call
	tasks      string
	output     []byte // schema; nil if it has none
	learned    time.Time

	compile   sync.Once
	validator *schema.Validator // of output; nil if that cannot be compiled
}

// mustBeTask reports whether a legacy server refuses to run the tool otherwise. Nothing is known of a nil tool.
func (k *knownTool) mustBeTask() bool { return k != nil && k.tasks == mcp.TaskSupportRequired }

// mark returns what learn wants to know: when the list was asked for.
func (b *toolBook) mark() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.epoch
}

// learn takes in tools that were listed, unless everything was forgotten since the list was asked for.
func (b *toolBook) learn(epoch int, tools []mcp.Tool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch != b.epoch {
		return
	}
	if b.known == nil {
		b.known = make(map[string]*knownTool)
	}
	now := time.Now()
	for i := range tools {
		t := &tools[i]
		k := &knownTool{output: t.OutputSchema, learned: now}
		if a := t.Annotations; a != nil {
			k.repeatable = isTrue(a.ReadOnlyHint) || isTrue(a.IdempotentHint)
		}
		if t.Execution != nil {
			k.tasks = t.Execution.TaskSupport
		}
		old := b.known[t.Name]
		if old != nil && old.repeatable == k.repeatable && old.tasks == k.tasks && bytes.Equal(old.output, k.output) {
			old.learned = now
			continue
		}
		k.output = bytes.Clone(k.output)
		if old != nil {
			b.bytes -= knownCost + len(t.Name) + len(old.output)
			delete(b.known, t.Name)
		}
		if size := knownCost + len(t.Name) + len(k.output); b.bytes+size <= maxKnownBytes {
			b.known[t.Name] = k
			b.bytes += size
		}
	}
}

func isTrue(hint *bool) bool { return hint != nil && *hint }

func (b *toolBook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.bytes = nil, 0
	b.epoch++
}

// tool returns what is known of a tool, or nil.
func (b *toolBook) tool(name string) *knownTool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known[name]
}

// old reports whether the tool was listed too long ago for its schema to be sure. Until it is listed again, it does so once in a while.
func (b *toolBook) old(k *knownTool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(k.learned) <= relearnAfter {
		return false
	}
	k.learned = time.Now()
	return true
}

// checkOutput holds a result against the tool's output schema, if that is known.
func (c *Client) checkOutput(ctx context.Context, name string, a *toolAnswer) error {
	k := c.tools.tool(name)
	if k == nil || a.isError || c.opts.NoOutputValidation {
		return nil
	}
	err := c.check(name, k, a)
	if err == nil {
		return nil
	}
	if c.tools.old(k) {
		if now := c.lookUp(ctx, name); now == nil || !bytes.Equal(now.output, k.output) {
			return c.checkOutput(ctx, name, a)
		}
	}
	result, decodeErr := a.result()
	if decodeErr != nil {
		return decodeErr
	}
	return &OutputError{Tool: name, Result: result, Err: err}
}

// lookUpTimeout bounds how long a tool is looked for. The call goes on without it then.
const lookUpTimeout = 30 * time.Second

// lookUp lists the tools anew, until it finds one, and returns what is known of that then.
func (c *Client) lookUp(ctx context.Context, name string) *knownTool {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
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
	return c.tools.tool(name)
}

func (c *Client) check(name string, k *knownTool, a *toolAnswer) error {
	k.compile.Do(func() {
		if k.output == nil {
			return
		}
		var err error
		if k.validator, err = compileForeign(k.output, c.opts.SchemaEngine); err != nil {
			c.log.Warn("results are not validated: output schema cannot be used", "tool", name, "error", err)
		}
	})
	switch {
	case k.validator == nil:
		return nil
	case a.structured == nil:
		return errNoStructured
	}
	err := k.validator.Validate(a.structured)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "structuredContent"
	}
	return err
}
