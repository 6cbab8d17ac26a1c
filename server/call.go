package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Call is one tools/call while its handler runs. It is the handler's context: it ends when the client cancels, when the tool's time is up,
// when the connection ends, and when the handler has returned. Its methods may be called by many goroutines at once.
type Call struct {
	jsonrpc.Context
	limit   context.Context // the same, but with the tool's timeout; nil if there is none
	session *session
	tool    *tool
	ex      era.Exchange
	id      string

	mu       sync.Mutex
	progress float64
	began    bool
}

type callKey struct{}

// CallOf returns the tool call that ctx stems from, or nil.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Value implements [context.Context].
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Deadline implements [context.Context].
func (c *Call) Deadline() (time.Time, bool) { return c.context().Deadline() }

// Done implements [context.Context].
func (c *Call) Done() <-chan struct{} { return c.context().Done() }

// Err implements [context.Context].
func (c *Call) Err() error { return c.context().Err() }

// AfterFunc is what package context uses to derive contexts without a goroutine.
func (c *Call) AfterFunc(f func()) (stop func() bool) {
	if c.limit == nil {
		return c.Context.AfterFunc(f)
	}
	return context.AfterFunc(c.limit, f)
}

func (c *Call) context() context.Context {
	if c.limit == nil {
		return &c.Context
	}
	return c.limit
}

// Tool returns the tool's name.
func (c *Call) Tool() string { return c.tool.def.Name }

// Revision returns the revision of the protocol that the request is of.
func (c *Call) Revision() mcp.Revision { return c.ex.Revision }

// ClientInfo returns what the client says it is. It is not to be trusted, and may be empty.
func (c *Call) ClientInfo() mcp.Implementation { return c.ex.Client.Info }

// ClientHas reports whether the client declared a capability, such as ClientHas("elicitation", "url").
func (c *Call) ClientHas(path ...string) bool { return c.ex.Client.Has(path...) }

// WantsProgress reports whether the client asked for progress notifications.
func (c *Call) WantsProgress() bool { return c.ex.Meta.ProgressToken != nil }

var (
	errProgress = errors.New("progress must be a finite number, greater than the last one")
	errLevel    = errors.New("no such logging level")
)

// Progress tells the client how far the tool is, if it asked for that. progress must grow with each call; total is left out if it is 0, message if it
// is empty. The notification is on the wire before the result. If there is one to send, it fails with [jsonrpc.ErrRequestEnded] once the call has ended.
func (c *Call) Progress(progress, total float64, message string) error {
	if math.IsNaN(progress) || math.IsInf(progress, 0) || math.IsNaN(total) || math.IsInf(total, 0) {
		return errProgress
	}
	c.mu.Lock()
	defer c.mu.Unlock() // held while sending, so that the order on the wire is that of the numbers
	if c.began && progress <= c.progress {
		return errProgress
	}
	c.began, c.progress = true, progress
	token := c.ex.Meta.ProgressToken
	if token == nil {
		return nil
	}
	params := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
	params = appendNumber(params, progress)
	if total != 0 {
		params = appendNumber(append(params, `,"total":`...), total)
	}
	if message != "" && c.ex.ProgressMessage {
		params = jsonwire.AppendQuote(append(params, `,"message":`...), message)
	}
	return c.Notify(mcp.NotificationProgress, append(params, '}'))
}

func appendNumber(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// Log sends a log message to the client, if the client wants messages of that level: a legacy client says so with logging/setLevel (until it does, it
// gets all), a modern one with each request. data is any value that encoding/json can encode. Logging is deprecated by the specification
// since 2026-07-28; what is meant for the server's operator belongs into the [Call.Logger].
func (c *Call) Log(level mcp.LoggingLevel, logger string, data any) error {
	if level.String() == "" {
		return errLevel
	}
	least := mcp.LoggingLevel(c.session.logLevel.Load())
	if c.ex.Modern {
		if least = c.ex.Meta.LogLevel; least == mcp.LevelNone {
			return nil
		}
	}
	if level < least {
		return nil
	}
	text, err := json.Marshal(data)
	if err == nil {
		err = jsonwire.Valid(text, 0) // MarshalJSON methods, and json.RawMessage, can make it anything but UTF-8
	}
	if err != nil {
		return fmt.Errorf("log data: %w", err)
	}
	params := jsonwire.AppendQuote([]byte(`{"level":`), level.String())
	if logger != "" {
		params = jsonwire.AppendQuote(append(params, `,"logger":`...), logger)
	}
	params = append(append(params, `,"data":`...), text...)
	return c.Notify(mcp.NotificationMessage, append(params, '}'))
}

// Logger returns the server's log with the request's id and the tool's name, and the trace id if the request carries one.
func (c *Call) Logger() *slog.Logger {
	log := c.session.log.With("id", c.id, "method", mcp.MethodToolsCall, "tool", c.tool.def.Name)
	if id := c.ex.Meta.Trace.ID(); id != "" {
		log = log.With("trace", id)
	}
	return log
}

// setLevel acts on logging/setLevel.
func (s *session) setLevel(r *jsonrpc.Request) error {
	name, err := stringParam(r, "level")
	if err != nil {
		return err
	}
	level, ok := mcp.ParseLoggingLevel(name)
	if !ok {
		return invalidParams("params.level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	s.logLevel.Store(uint32(level))
	return nil
}

// callTool answers tools/call (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#calling-tools).
func (s *session) callTool(r *jsonrpc.Request, ex era.Exchange, dst []byte) ([]byte, error) {
	t, _ := r.Route.(*tool)
	if t == nil {
		name, err := stringParam(r, "name")
		if err != nil {
			return dst, err
		}
		return dst, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown tool: %s", clip(name))
	}
	args, ok := r.Param("arguments")
	switch {
	case !ok, string(args) == "null":
		args = emptyObject
	case args[0] != '{':
		return dst, invalidParams("params.arguments must be an object")
	}
	c := &Call{session: s, tool: t, ex: ex}
	if s.log.Enabled(context.Background(), slog.LevelError) {
		c.id = r.ID.String()
	}
	r.InitContext(&c.Context, ex.Meta.Trace)
	if d := s.srv.opts.ToolTimeout; d > 0 {
		var cancel context.CancelFunc
		c.limit, cancel = context.WithTimeout(&c.Context, d)
		defer cancel()
	}
	return t.invoke(c, args, dst)
}

var emptyObject = []byte("{}")
