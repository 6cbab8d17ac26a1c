package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type customError struct{ path string }

func (e *customError) Error() string { return "cannot open " + e.path }

func TestErrorOf(t *testing.T) {
	internal := func(name string) *Error {
		return &Error{CodeInternalError, "internal error", []byte(`{"exception":"` + name + `"}`)}
	}
	plain := &Error{CodeInternalError, "internal error", nil}
	own := &Error{Code: 42, Message: "own", Data: []byte(`[1]`)}
	tests := []struct {
		name string
		err  error
		want *Error
	}{
		{"wire error", own, own},
		{"wrapped wire error", fmt.Errorf("at /secret: %w", own), own},
		{"joined wire error", errors.Join(errors.New("a"), own), own},
		{"code 0", &Error{Message: "m"}, &Error{CodeInternalError, "m", nil}},
		{"data on two lines", &Error{1, "m", []byte("{\n\"a\": 1}")}, &Error{1, "m", []byte(`{"a":1}`)}},
		{"data that is not JSON", &Error{1, "m", []byte("oops\n")}, &Error{1, "m", nil}},
		{"data of two values", &Error{1, "m", []byte("1}\n{")}, &Error{1, "m", nil}},
		{"empty data", &Error{1, "m", []byte{}}, &Error{1, "m", []byte{}}},
		{"nil wire error", (*Error)(nil), internal("jsonrpc.Error")},
		{"plain", errors.New("/etc/passwd"), plain},
		{"own type", &customError{"/etc/passwd"}, internal("jsonrpc.customError")},
		{"own type, wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", &customError{})), internal("jsonrpc.customError")},
		{"standard type", &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}, internal("fs.PathError")},
		{"several wrapped", fmt.Errorf("%w %w", errors.New("a"), errors.New("b")), plain},
		{"own type, joined", fmt.Errorf("%w %w", errors.New("a"), errors.Join(errors.New("b"), &customError{})), internal("jsonrpc.customError")},
		{"nothing wrapped", fmt.Errorf("a: %w", error(nil)), plain},
		{"plain, wrapped", fmt.Errorf("a: %w", errors.New("b")), plain},
		{"panic", &PanicError{Value: "secret"}, internal("panic")},
		{"panic with a plain error", &PanicError{Value: errors.New("secret")}, internal("panic")},
		{"panic with an error", &PanicError{Value: &customError{"/secret"}}, internal("jsonrpc.customError")},
		{"deadline", fmt.Errorf("x: %w", context.DeadlineExceeded), &Error{CodeInternalError, "request timed out", []byte(`{"exception":"context.deadlineExceededError"}`)}},
		{"cancelled", context.Canceled, plain},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ErrorOf(test.err)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestErrorIs(t *testing.T) {
	err := fmt.Errorf("call: %w", Errorf(CodeMethodNotFound, "no %s", "x"))
	if !errors.Is(err, &Error{Code: CodeMethodNotFound}) || !errors.Is(err, &Error{Code: CodeMethodNotFound, Message: "no x"}) {
		t.Error("is not what it is")
	}
	if errors.Is(err, &Error{Code: CodeInternalError}) || errors.Is(err, &Error{Code: CodeMethodNotFound, Message: "no y"}) || errors.Is(err, ErrClosed) {
		t.Error("is what it is not")
	}
	if got, want := err.Error(), "call: no x (-32601)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (&PanicError{Value: 5}).Error(), "handler panicked: 5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCodeString(t *testing.T) {
	want := map[Code]string{
		-32700: "parse error", -32600: "invalid request", -32601: "method not found", -32602: "invalid params", -32603: "internal error", -5: "error -5",
	}
	for code, s := range want {
		if got := code.String(); got != s {
			t.Errorf("%d: got %q, want %q", int(code), got, s)
		}
	}
}

func TestMessageErr(t *testing.T) {
	malformed := func(text string) *Error {
		return &Error{CodeInternalError, "peer sent a malformed error object", []byte(text)}
	}
	tests := []struct {
		object string
		want   *Error
	}{
		{`{"code":-32601,"message":"m"}`, &Error{-32601, "m", nil}},
		{`{"data":{"a":[1]},"message":"\u00e9\n","code":1,"more":2}`, &Error{1, "\u00e9\n", []byte(`{"a":[1]}`)}},
		{`{"c\u006fde":1,"message":""}`, &Error{1, "", nil}},
		{`{"code":1,"message":"m","data":null}`, &Error{1, "m", []byte(`null`)}},
		{`null`, malformed(`null`)},
		{`"oops"`, malformed(`"oops"`)},
		{`[1]`, malformed(`[1]`)},
		{`{}`, malformed(`{}`)},
		{`{"code":1}`, malformed(`{"code":1}`)},
		{`{"message":"m"}`, malformed(`{"message":"m"}`)},
		{`{"code":"1","message":"m"}`, malformed(`{"code":"1","message":"m"}`)},
		{`{"code":1.5,"message":"m"}`, malformed(`{"code":1.5,"message":"m"}`)},
		{`{"code":1e2,"message":"m"}`, malformed(`{"code":1e2,"message":"m"}`)},
		{`{"code":9223372036854775808,"message":"m"}`, malformed(`{"code":9223372036854775808,"message":"m"}`)},
		{`{"code":1,"message":null}`, malformed(`{"code":1,"message":null}`)},
		{`{"Code":1,"Message":"m"}`, malformed(`{"Code":1,"Message":"m"}`)},
	}
	for _, test := range tests {
		t.Run(test.object, func(t *testing.T) {
			frame := []byte(`{"jsonrpc":"2.0","id":1,"error":` + test.object + `}`)
			var m Message
			if err := Parse(frame, &m, 0); err != nil {
				t.Fatal(err)
			}
			got := m.Err()
			for i := range frame {
				frame[i] = '!'
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if e := parse(t, `{"jsonrpc":"2.0","id":1,"result":1}`).Err(); e != nil {
		t.Errorf("a result has error %v", e)
	}
}
