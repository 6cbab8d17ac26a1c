package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"

	"mcpwire/internal/jsonwire"
)

var errNotObject = errors.New("they must be a JSON object: use a struct or a map")

// appendArguments appends the JSON object of a tool's arguments.
func appendArguments(dst []byte, args any) ([]byte, error) {
	var text []byte
	switch args := args.(type) {
	case nil:
	case json.RawMessage:
		if err := jsonwire.Valid(args, 0); len(args) > 0 && err != nil {
			return dst, err
		}
		text = bytes.TrimSpace(args)
	default:
		e := encoders.Get().(*encoder)
		defer e.release()
		if err := e.json.Encode(args); err != nil {
			return dst, err
		}
		text = bytes.TrimSpace(e.text.Bytes())
	}
	switch {
	case len(text) == 0 || string(text) == "null": // nil, or a nil map or pointer
		return append(dst, "{}"...), nil
	case text[0] != '{':
		return dst, errNotObject
	}
	return jsonwire.AppendCompact(dst, text), nil
}

// An encoder is encoding/json's, without its care for HTML, and with the memory that it writes to.
type encoder struct {
	text bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.text)
	e.json.SetEscapeHTML(false)
	return e
}}

func (e *encoder) release() {
	if e.text.Cap() <= maxKept {
		e.text.Reset()
		encoders.Put(e)
	}
}
