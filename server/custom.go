package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

var (
	errProtocolMethod = errors.New("it is one of the protocol's own")
	errReservedName   = errors.New(`names that begin with "rpc." are JSON-RPC's`)
	errIsNotification = errors.New("it is the name of a notification: see Server.OnNotification")
	errIsRequest      = errors.New("it is the name of a request: see AddMethod")
	errReservedCancel = errors.New("it ends the context of the request that it cancels; nothing else can be done about it")
	errInObject       = errors.New("params must be a JSON object: use a struct or a map for the input, or Server.AddRawMethod")
	errOutObject      = errors.New("a result must be a JSON object: use a struct or a map for the output, or Server.AddRawMethod")
)

// AddMethod registers a method that the protocol does not have, for clients that know of it; those of all revisions may call it. In and Out must be
// structs or maps. What does not fit In is answered with invalid params and never reaches fn; In does not have the _meta: see [Call.Meta].
// An error of fn is answered as [jsonrpc.ErrorOf] says. [CallOf] finds the Call in fn's context.
//
// A name should begin with something that nobody else uses, such as com.example/. AddMethod fails on a duplicate name (with [ErrDuplicate]), on
// those of the protocol, on those that begin with "rpc." or "notifications/", and on types that have no schema. It may be called while the
// server runs.
func AddMethod[In, Out any](s *Server, name string, fn func(context.Context, In) (Out, error)) error {
	if fn == nil {
		return methodError(name, errNoFunc)
	}
	in, err := schema.Of[In](&schema.Options{Engine: s.opts.SchemaEngine})
	if err != nil {
		return methodError(name, fmt.Errorf("input: %w", err))
	}
	out, err := schema.Of[Out](&schema.Options{Engine: s.opts.SchemaEngine})
	switch {
	case err != nil:
		return methodError(name, fmt.Errorf("output: %w", err))
	case !in.IsObject():
		return methodError(name, errInObject)
	case !out.IsObject():
		return methodError(name, errOutObject)
	}
	return s.addMethod(name, func(c *Call, params []byte) ([]byte, error) {
		var arg In
		if err := in.Decode(withoutMeta(params), &arg); err != nil {
			if e, ok := errors.AsType[*schema.Error](err); ok {
				e.Root = "params"
			}
			return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: %v", err)
		}
		result, err := fn(c, arg)
		if err != nil {
			return nil, err
		}
		text, err := out.Append(nil, &result)
		if err != nil {
			return nil, fmt.Errorf("%s returned an invalid result: %w", name, err)
		}
		return text, nil
	})
}

// AddRawMethod is AddMethod for one who reads and writes the JSON text. params is that of an object, with its _meta, and valid until fn returns. The
// result must be an object; nil is an empty one. What each result of the revision has is added to it.
func (s *Server) AddRawMethod(name string, fn func(c *Call, params json.RawMessage) (json.RawMessage, error)) error {
	if fn == nil {
		return methodError(name, errNoFunc)
	}
	return s.addMethod(name, func(c *Call, params []byte) ([]byte, error) {
		result, err := fn(c, params)
		switch {
		case err != nil:
			return nil, err
		case result == nil:
			return emptyObject, nil
		}
		if err := checkObject(result); err != nil {
			return nil, fmt.Errorf("%s returned an invalid result: %w", name, err)
		}
		return result, nil
	})
}

// A method is one that the protocol does not have.
type customMethod struct {
	cost   jsonrpc.CostEstimate
	invoke func(c *Call, params []byte) (result []byte, err error)
}

// callMethod answers a request for a method that the protocol does not have.
func (s *session) callMethod(c *Call, m *customMethod, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	defer c.startTimer()()
	params := r.Params
	if len(params) == 0 {
		params = emptyObject
	}
	result, err := m.invoke(c, params)
	if err != nil {
		return dst, err
	}
	return s.srv.results.Complete(dst, c.ex.Features, nil, result), nil
}

// withoutMeta returns the object without its member _meta.
func withoutMeta(object []byte) []byte {
	rest := make([]byte, 0, len(object))
	rest = append(rest, '{')
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if members.KeyIs("_meta") {
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(jsonwire.AppendQuote(rest, members.KeyString()), ':')
		rest = append(rest, members.Value()...)
	}
	return append(rest, '}')
}

// customMethods holds what the protocol does not have: methods, and functions for notifications.
type customMethods struct {
	mu                   sync.Mutex
	methods              atomic.Pointer[map[string]*customMethod]
	notificationHandlers atomic.Pointer[map[string]func(context.Context, json.RawMessage)]
}

func (s *Server) addMethod(name string, invoke func(c *Call, params []byte) ([]byte, error)) error {
	err := checkMethodName(name)
	switch {
	case err != nil:
	case isProtocolMethod(name):
		err = errProtocolMethod
	case strings.HasPrefix(name, "notifications/"):
		err = errIsNotification
	}
	if err == nil {
		err = addCopyOnWrite(&s.custom.mu, &s.custom.methods, name, &customMethod{invoke: invoke})
	}
	if err != nil {
		return methodError(name, err)
	}
	return nil
}

func (cm *customMethods) addNotificationHandler(name string, fn func(context.Context, json.RawMessage)) error {
	if err := addCopyOnWrite(&cm.mu, &cm.notificationHandlers, name, fn); err != nil {
		return methodError(name, err)
	}
	return nil
}

// addCopyOnWrite adds to a map that is read without a lock.
func addCopyOnWrite[V any](mu *sync.Mutex, p *atomic.Pointer[map[string]V], name string, v V) error {
	mu.Lock()
	defer mu.Unlock()
	next := make(map[string]V)
	if current := p.Load(); current != nil {
		if _, ok := (*current)[name]; ok {
			return ErrDuplicate
		}
		maps.Copy(next, *current)
	}
	next[name] = v
	p.Store(&next)
	return nil
}

func (cm *customMethods) method(name []byte) *customMethod {
	if all := cm.methods.Load(); all != nil {
		return (*all)[string(name)]
	}
	return nil
}

func (cm *customMethods) hasMethod(name []byte) bool { return cm.method(name) != nil }

func (cm *customMethods) notificationHandler(name []byte) func(context.Context, json.RawMessage) {
	if all := cm.notificationHandlers.Load(); all != nil {
		return (*all)[string(name)]
	}
	return nil
}

func methodError(name string, err error) error { return fmt.Errorf("method %.100q: %w", name, err) }

func checkMethodName(name string) error {
	switch {
	case name == "":
		return errNoName
	case !utf8.ValidString(name):
		return errName
	case strings.HasPrefix(name, "rpc."):
		return errReservedName
	}
	return nil
}

// isProtocolMethod reports whether the protocol has the request, in any revision and either direction.
func isProtocolMethod(name string) bool {
	for _, r := range mcp.Revisions() {
		if era.Of(r).HasMethod([]byte(name)) {
			return true
		}
	}
	switch name {
	case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
		return true
	}
	return false
}
