package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"mcpwire/internal/era"
	"mcpwire/mcp"
	"mcpwire/schema"
)

func (c *Client) serveElicit(ctx context.Context, dst []byte, in *inputRequest, accepts *era.InputSupport, r mcp.Revision) ([]byte, error) {
	if c.opts.Elicit == nil || !accepts.Form && !accepts.URL {
		return dst, undeclaredError(in.method, "Elicit")
	}
	var p mcp.ElicitRequestParams
	if err := p.UnmarshalJSON(in.paramsObject()); err != nil {
		return dst, invalidInputError("%v", err)
	}
	form := p.Mode == "" || p.Mode == mcp.ElicitModeForm
	if form && !accepts.Form || !form && (p.Mode != mcp.ElicitModeURL || !accepts.URL) {
		return dst, invalidInputError("the client did not declare the mode %.20q of %s (see client.Options.ElicitModes)", p.Mode, in.method)
	}
	if !form && !isWebPage(p.URL) {
		return dst, invalidInputError("url %.100q is not that of a web page: it must begin with https:// or http:// and name a host", p.URL)
	}
	result, err := runHandler(in, func() (*mcp.ElicitResult, error) { return c.opts.Elicit(ctx, &p) })
	if ctx.Err() != nil {
		return dst, ctx.Err()
	}
	if err != nil || result == nil {
		c.log.Warn("elicitation failed, answered as canceled", "error", err)
		return append(dst, `{"action":"cancel"}`...), nil
	}
	trimmed := *result
	if result.Action != mcp.ElicitActionAccept || !form {
		trimmed.Content = nil // what was not accepted, or not put into a form, has no content
	} else if err := c.checkContent(&p, result.Content); err != nil {
		return dst, fmt.Errorf("client.Options.Elicit: %w", err)
	}
	return trimmed.AppendRevision(dst, r), nil
}

// isWebPage reports whether a URL is one that can be shown to a user and opened in a browser, and not one that does something else when it is opened.
func isWebPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// checkContent holds what was put into a form against the form. A form that makes no sense is not held against the user.
func (c *Client) checkContent(p *mcp.ElicitRequestParams, content json.RawMessage) error {
	if content == nil {
		content = json.RawMessage("{}")
	}
	if err := checkObject(content); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if p.RequestedSchema == nil {
		return nil
	}
	v, err := compileServerSchema(p.RequestedSchema, c.opts.SchemaEngine)
	if err != nil {
		c.log.Info("content of a form not validated: its schema cannot be used", "error", err)
		return nil
	}
	err = v.Validate(content)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "content"
	}
	if err != nil {
		return fmt.Errorf("what was filled in is not what the server's form wants: %w", err)
	}
	return nil
}
