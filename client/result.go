package client

import (
	"context"
	"encoding/json"
	"fmt"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// get sends a request whose answer nobody keeps, and decodes it.
func (c *Client) get(ctx context.Context, r *request, result json.Unmarshaler) error {
	raw, err := c.roundTrip(ctx, r)
	if err != nil {
		return err
	}
	if err := c.checkFinal(r.method, raw); err != nil {
		return err
	}
	return decodeResult(r.method, raw, result)
}

// checkFinal makes sure that a result is the last word: not one of a kind that an extension adds, for methods that know none.
func (c *Client) checkFinal(method string, raw []byte) error {
	if kind := era.ResultType(raw); c.Modern() && kind != "" && kind != mcp.ResultTypeComplete {
		return &ProtocolError{Method: method, Reason: fmt.Sprintf("resultType is %.40q", kind)}
	}
	return nil
}

// decodeResult decodes a final result.
func decodeResult(method string, raw []byte, v json.Unmarshaler) error {
	if err := v.UnmarshalJSON(raw); err != nil {
		return &ProtocolError{Method: method, Reason: "malformed result", Err: err}
	}
	return nil
}

// stringValue decodes a JSON string; ok is false for any other text.
func stringValue(text []byte) (s string, ok bool) {
	if len(text) < 2 || text[0] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(text[1 : len(text)-1]), true
}

// appendMember adds a member to an object that has some.
func appendMember(object []byte, name string, value []byte) []byte {
	object = append(append(object[:len(object)-1], ','), name...)
	return append(append(object, value...), '}')
}

// cursorParams are the params of a list request.
func cursorParams(cursor *string) []byte {
	if cursor == nil {
		return nil
	}
	return append(jsonwire.AppendQuote([]byte(`{"cursor":`), *cursor), '}')
}

// uriParams are the params of a request about one resource; parseURIParam reads them.
func uriParams(uri string) []byte {
	return append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
}

func parseURIParam(params []byte) string {
	uri, _ := stringValue(jsonwire.Lookup(params, "uri"))
	return uri
}
