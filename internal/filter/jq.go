package filter

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/itchyny/gojq"

	"mcpwire/internal/jq"
)

// A jqScan runs a program on a payload.
type jqScan struct{ program *jq.Program }

// jq reads what stands behind "jq:", a program in parentheses.
func (p *parser) jqTerm(start int) (node, error) {
	at := p.pos
	if !strings.HasPrefix(p.src[at:], "(") {
		return nil, p.errorAt(at, "jq: needs a program in parentheses, such as jq:(.params.name == \"search\")")
	}
	end := closingParen(p.src, at)
	if end < 0 {
		return nil, p.errorAt(at, `the jq program has no ")" at its end`)
	}
	source := p.src[at+1 : end]
	p.pos = end + 1
	if err := p.expectEnd(); err != nil {
		return nil, err
	}
	program, err := jq.Compile(source)
	if err != nil {
		var bad *gojq.ParseError
		if errors.As(err, &bad) {
			at += min(bad.Offset, len(source))
		}
		return nil, p.errorAt(at, "jq: %v", err)
	}
	return p.addPayloadTerm(start, jqScan{program}, "jq:("+source+")")
}

// closingParen returns where the parenthesis at src[i] is closed, or -1. Strings, which may have programs in them again, and comments do not count.
func closingParen(src string, i int) int {
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
	return isJSON(bytes.TrimSpace(payload)) && s.program.True(ctx, payload)
}
