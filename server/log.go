package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

var errLevel = errors.New("no such logging level")

// Log sends a log message to the client if the client wants messages of that level. A legacy client
// selects the level with logging/setLevel for its later requests; until then it gets all messages.
// A modern client selects the level in each request. data is any value that encoding/json can
// encode.
//
// The specification deprecates logging since 2026-07-28. Use [Call.Logger] for messages to the
// server's operator.
func (c *Call) Log(level mcp.LoggingLevel, logger string, data any) error {
	if level.String() == "" {
		return errLevel
	}
	least := c.ex.Client.LogLevel
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
		err = jsonwire.Valid(text, 0) // MarshalJSON methods can return invalid UTF-8
	}
	if err != nil {
		return fmt.Errorf("log data: %w", err)
	}
	params := jsonwire.AppendQuote([]byte(`{"level":`), level.String())
	if logger != "" {
		params = jsonwire.AppendQuote(append(params, `,"logger":`...), logger)
	}
	params = append(append(params, `,"data":`...), text...)
	return c.notify(mcp.NotificationMessage, append(params, '}'))
}

// Logger returns the server's logger with the request's id, method and target, and its trace id if
// it has one.
func (c *Call) Logger() *slog.Logger {
	id := ""
	if c.id != nil {
		id = *c.id
	}
	log := c.session.log.With("id", id, "method", c.method)
	if c.name != "" {
		log = log.With(nameAttr(c.method), clip.String(c.name, 100))
	}
	if id := c.ex.Meta.Trace.ID(); id != "" {
		log = log.With("trace", id)
	}
	return log
}

// nameAttr returns the log attribute for the target of the method's requests.
func nameAttr(method string) string {
	switch method {
	case mcp.MethodToolsCall:
		return "tool"
	case mcp.MethodPromptsGet:
		return "prompt"
	case mcp.MethodResourcesRead:
		return "uri"
	}
	return "name"
}
