package filter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

const (
	maxJQTime  = 200 * time.Millisecond // that a program may run on a payload
	maxJQBytes = 4 << 20                // of a payload that programs run on
)

// A jqScan runs a program on a payload. It has no input but that, no environment, no modules and no files.
type jqScan struct{ code *gojq.Code }

// jq reads what stands behind "jq:", a program in parentheses.
func (p *parser) jq(start int) (node, error) {
	at := p.pos
	if !strings.HasPrefix(p.src[at:], "(") {
		return nil, p.fail(at, "jq: needs a program in parentheses, such as jq:(.params.name == \"search\")")
	}
	end := closing(p.src, at)
	if end < 0 {
		return nil, p.fail(at, `the jq program has no ")" at its end`)
	}
	source := p.src[at+1 : end]
	p.pos = end + 1
	if err := p.ended(); err != nil {
		return nil, err
	}
	query, err := gojq.Parse(source)
	if err != nil {
		var bad *gojq.ParseError
		if errors.As(err, &bad) {
			at += min(bad.Offset, len(source))
		}
		return nil, p.fail(at, "jq: %v", err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, p.fail(at, "jq: %v", err)
	}
	return p.payload(start, jqScan{code}, "jq:("+source+")")
}

// closing returns where the parenthesis at src[i] is closed, or -1. Strings, which may have programs in them again, and comments do not count.
func closing(src string, i int) int {
	var open []byte // '(' is a parenthesis, '"' a string
	for ; i < len(src); i++ {
		inString := len(open) > 0 && open[len(open)-1] == '"'
		switch c := src[i]; {
		case inString && c == '\\':
			if i++; i < len(src) && src[i] == '(' {
				open = append(open, '(')
			}
		case c == '"' && inString:
			open = open[:len(open)-1]
		case inString:
		case c == '"' || c == '(':
			open = append(open, c)
		case c == '#':
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return -1
			}
			i += n
		case c == ')':
			if open = open[:len(open)-1]; len(open) == 0 {
				return i
			}
		}
	}
	return -1
}

func (s jqScan) match(ctx context.Context, payload []byte) bool {
	if len(payload) > maxJQBytes || !isJSON(bytes.TrimSpace(payload)) {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, maxJQTime)
	defer cancel()
	batch, isBatch := v.([]any)
	if !isBatch {
		batch = []any{v}
	}
	for _, v := range batch {
		if s.holds(ctx, v) {
			return true
		}
	}
	return false
}

// holds reports whether the first thing that a program says is true.
func (s jqScan) holds(ctx context.Context, v any) bool {
	out, ok := s.code.RunWithContext(ctx, v).Next()
	if _, failed := out.(error); !ok || failed {
		return false
	}
	return out != nil && out != false
}
