package jsonrpc

import (
	"strings"
	"testing"
	"time"
)

func TestWithParams(t *testing.T) {
	for _, tt := range []struct{ frame, params, want, err string }{
		{`{"jsonrpc":"2.0","id":"a\u0062","method":"m\n","params":{"a":1}}`, `{"a":2,"b":[1, 2]}`, `{"a":2,"b":[1, 2]}`, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, " {\n\"a\":2}", `{"a":2}`, ""},
		{`{"jsonrpc":"2.0","method":"m","params":[]}`, `{"a":2}`, `{"a":2}`, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1}}`, "null", "", ""},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `7`, "", "an object or an array"},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `{"a":2`, "", "params"},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `{},"id":8`, "", "params"},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `{"a":{"a":{"a":{"a":2}}}}`, "", "too deeply"},
	} {
		c := NewConn(noFramer{}, &Options{MaxDepth: 4})
		r := &Request{conn: c}
		if err := Parse([]byte(tt.frame), &r.Message, 0); err != nil {
			t.Fatal(err)
		}
		n, err := r.WithParams([]byte(tt.params))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) || ErrorOf(err).Code != CodeInternalError {
				t.Errorf("WithParams(%s): %v, want an internal error about %q", tt.params, err, tt.err)
			}
			continue
		case err != nil:
			t.Errorf("WithParams(%s): %v", tt.params, err)
			continue
		}
		if string(n.Params) != tt.want || n.Kind != r.Kind || string(n.ID) != string(r.ID) || string(n.Method) != string(r.Method) || n.Conn() != c {
			t.Errorf("WithParams(%s): %s %s %q %s", tt.params, n.Kind, n.ID, n.Method, n.Params)
		}
		if v, ok := n.Param("a"); strings.Contains(tt.want, `"a"`) && (!ok || string(v) != "2") {
			t.Errorf("WithParams(%s): param a is %s", tt.params, v)
		}
	}
}

// noFramer is for connections that do not run.
type noFramer struct{}

func (noFramer) ReadFrame() ([]byte, error) { return nil, nil }
func (noFramer) WriteFrame([]byte) error    { return nil }
func (noFramer) Close() error               { return nil }

func TestPresume(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		fast bool
	}{{0, true}, {maxInlineCost, true}, {maxInlineCost + 1, false}} {
		p := new(CostEstimate)
		p.Seed(tt.d)
		if p.fast() != tt.fast {
			t.Errorf("presuming %v: fast is %v", tt.d, p.fast())
		}
		for range 2 {
			p.recordOverrun()
		}
		if p.fast() {
			t.Errorf("presuming %v: fast after it overran twice", tt.d)
		}
	}
}
