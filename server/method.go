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
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// methodNames are those that the server itself answers, so that their names need not be made anew for each request.
var methodNames = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		mcp.MethodInitialize, mcp.MethodPing, mcp.MethodDiscover, mcp.MethodSetLevel, mcp.MethodSubscriptionsListen, mcp.MethodToolsList, mcp.MethodToolsCall,
		mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe,
		mcp.MethodResourcesUnsubscribe, mcp.MethodPromptsList, mcp.MethodPromptsGet, mcp.MethodComplete,
		mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate,
	} {
		names[name] = name
	}
	return names
}()

// internMethod returns the name of a method, without allocating for those that are known.
func internMethod(method []byte) string {
	if string(method) == mcp.MethodToolsCall { // nearly all are
		return mcp.MethodToolsCall
	}
	if name, ok := methodNames[string(method)]; ok {
		return name
	}
	return string(method)
}

// offers reports whether the server has what the method is about. A method of a capability that is not declared does not exist.
func (s *Server) offers(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		return s.advertises(toolsChanged)
	case mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return s.advertises(resourcesChanged)
	case mcp.MethodPromptsList, mcp.MethodPromptsGet:
		return s.advertises(promptsChanged)
	case mcp.MethodComplete:
		return s.hasCompleter.Load()
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return s.tasks != nil
	}
	return true
}

// advertises reports whether the capabilities name the primitive whose changes c are: something of the kind is or was registered, or will be.
func (s *Server) advertises(c listChange) bool {
	switch c {
	case toolsChanged:
		return s.advertised&c != 0 || s.tools.hadItems.Load()
	case promptsChanged:
		return s.advertised&c != 0 || s.prompts.hadItems.Load()
	}
	return s.advertised&c != 0 || s.resources.hadItems.Load() || s.templates.hadItems.Load()
}

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

// OnNotification has fn called for the client's notifications of a method: one that the protocol has, such as notifications/initialized,
// notifications/roots/list_changed and notifications/progress, or one that it does not have. [CallOf] finds in ctx a Call that says from whom
// the notification is; its Revision is [mcp.RevisionNone] if nobody knows. params is the text of an object, or nil, and valid until fn returns.
//
// The notifications of one connection are handled one after another in the order in which they came, but requests that came behind them may be
// handled before. OnNotification fails if the method has a function already (with [ErrDuplicate]), and for notifications/cancelled, which
// ends the context of its request instead. It may be called while the server runs.
func (s *Server) OnNotification(method string, fn func(ctx context.Context, params json.RawMessage)) error {
	switch {
	case fn == nil:
		return methodError(method, errNoFunc)
	case method == mcp.NotificationCancelled:
		return methodError(method, errReservedCancel)
	case isProtocolMethod(method):
		return methodError(method, errIsRequest)
	}
	if err := checkMethodName(method); err != nil {
		return methodError(method, err)
	}
	return s.custom.addNotificationHandler(method, fn)
}

// prepareNotification says at which pace a notification is handled. What it says of the state of the handshake holds for the next request already.
func (s *session) prepareNotification(r *jsonrpc.Request) *jsonrpc.CostEstimate {
	if string(r.Method) == mcp.NotificationInitialized && !s.era.Initialized() {
		s.log.Warn("notifications/initialized out of place")
	}
	if state := s.era.State(); state != nil {
		r.State = state
	}
	if s.srv.chain == nil && s.srv.custom.notificationHandler(r.Method) == nil {
		return jsonrpc.Immediate
	}
	return nil
}

// handleNotification takes one that nobody need be told of, unless somebody handles it or there is middleware.
func (s *session) handleNotification(r *jsonrpc.Request) error {
	if s.srv.custom.notificationHandler(r.Method) == nil && (s.srv.chain == nil || !isClientNotification(r.Method)) {
		s.log.Debug("notification ignored", "method", clip(string(r.Method)))
		return nil
	}
	ex, err := s.era.OpenNotification(r, eraStateOf(r))
	if err != nil {
		s.log.Debug("notification ignored", "method", clip(string(r.Method)), "error", err)
		return nil
	}
	c := s.newCall(r, ex)
	if s.srv.chain == nil {
		s.callNotificationHandler(c, r)
		return nil
	}
	in := &inbound{session: s, call: c, request: r}
	_, err = in.run(&Message{Notification: true, deliver: in.notify})
	return err
}

// callNotificationHandler hands a notification to who handles it.
func (s *session) callNotificationHandler(c *Call, r *jsonrpc.Request) {
	if fn := s.srv.custom.notificationHandler(r.Method); fn != nil {
		fn(c, json.RawMessage(r.Params))
	}
}

// isClientNotification reports whether clients of some revision send the notification.
func isClientNotification(method []byte) bool {
	switch string(method) {
	case mcp.NotificationInitialized, mcp.NotificationProgress, mcp.NotificationRootsChanged, mcp.NotificationTaskStatus:
		return true
	}
	return false
}
