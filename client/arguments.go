package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"

	"mcpwire/internal/jsonwire"
)

var errArgumentsNotObject = errors.New("they must be a JSON object: use a struct or a map")

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
		e := encoderPool.Get().(*encoder)
		defer e.release()
		if err := e.json.Encode(args); err != nil {
			return dst, err
		}
		text = bytes.TrimSpace(e.buf.Bytes())
	}
	switch {
	case len(text) == 0 || string(text) == "null": // nil, or a nil map or pointer
		return append(dst, "{}"...), nil
	case text[0] != '{':
		return dst, errArgumentsNotObject
	}
	return jsonwire.AppendCompact(dst, text), nil
}

// An encoder is encoding/json's, without its care for HTML, and with the memory that it writes to.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

var encoderPool = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false)
	return e
}}

func (e *encoder) release() {
	if e.buf.Cap() <= maxPooledBytes {
		e.buf.Reset()
		encoderPool.Put(e)
	}
}
