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
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// methodNames holds the names of the server's methods, so that requests need not allocate them.
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

// internMethod returns the name of a method without allocating for known names.
func internMethod(method []byte) string {
	if string(method) == mcp.MethodToolsCall { // by far the most frequent
		return mcp.MethodToolsCall
	}
	if name, ok := methodNames[string(method)]; ok {
		return name
	}
	return string(method)
}

// offers reports whether the server has the capability of the method. Other methods do not exist.
func (s *Server) offers(method []byte) bool {
	switch string(method) {
	case mcp.MethodToolsList, mcp.MethodToolsCall:
		return s.advertises(toolsChanged)
	case mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return s.advertises(resourcesChanged)
	case mcp.MethodPromptsList, mcp.MethodPromptsGet:
		return s.advertises(promptsChanged)
	case mcp.MethodComplete:
		return s.completions.offered.Load()
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksList, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return s.tasks != nil
	}
	return true
}

// advertises reports whether the server advertises the capability of the list: an item is or was
// registered, or Options.AdvertiseKinds names it.
func (s *Server) advertises(c listChange) bool {
	switch c {
	case toolsChanged:
		return s.advertised&c != 0 || s.tools.hadItems.Load()
	case promptsChanged:
		return s.advertised&c != 0 || s.prompts.hadItems.Load()
	}
	return s.advertised&c != 0 || s.resources.registered.hadItems.Load() || s.resources.templates.hadItems.Load()
}

// announcedLists returns the lists whose changes the server announces.
func (s *Server) announcedLists() listChange {
	if s.opts.StaticLists {
		return 0
	}
	return s.advertisedLists()
}

// advertisedLists returns the lists whose capabilities the server advertises.
func (s *Server) advertisedLists() listChange {
	var all listChange
	for _, c := range listChanges {
		if s.advertises(c.bit) {
			all |= c.bit
		}
	}
	return all
}

var (
	errProtocolMethod = errors.New("it is a method of the protocol")
	errReservedName   = errors.New(`names that begin with "rpc." are reserved for JSON-RPC`)
	errIsNotification = errors.New("it is the name of a notification: see Server.OnNotification")
	errIsRequest      = errors.New("it is the name of a request: see AddMethod")
	errReservedCancel = errors.New("the server handles it: it ends the context of the request")
	errInObject       = errors.New("params must be a JSON object: use a struct or a map for the input, or Server.AddRawMethod")
	errOutObject      = errors.New("a result must be a JSON object: use a struct or a map for the output, or Server.AddRawMethod")
)

// AddMethod registers a method that the protocol doesn't have. Clients of all revisions may call
// it. In and Out must be structs or maps. Params that do not match In are rejected as invalid
// params before fn runs. In does not contain _meta: see [Call.Meta]. [jsonrpc.ErrorOf] maps the
// errors of fn. [CallOf] returns the Call from fn's context.
//
// Begin the name with a unique prefix such as com.example/. AddMethod fails for a duplicate name
// (with [ErrDuplicate]), for the protocol's names, for names that begin with "rpc." or
// "notifications/", and for types without a schema. It may be called while the server runs.
func AddMethod[In, Out any](s *Server, name string, fn func(context.Context, In) (Out, error)) error {
	if fn == nil {
		return methodError(name, errNoFunc)
	}
	in, err := schema.Of[In](&s.schema)
	if err != nil {
		return methodError(name, fmt.Errorf("input: %w", err))
	}
	out, err := schema.Of[Out](&s.schema)
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

// AddRawMethod is AddMethod for JSON text. params is the text of an object, including _meta, and
// valid until fn returns. The result must be an object; nil means an empty one. The server adds the
// members that each result of the revision has.
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

// A customMethod is a method that the protocol doesn't have.
type customMethod struct {
	cost   rpc.CostEstimate
	invoke func(c *Call, params []byte) (result []byte, err error)
}

// call answers a request for the method.
func (cm *customMethod) call(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	defer c.startTimer(c.session.srv.opts.Limits.HandlerTimeout)()
	params := r.Params
	if len(params) == 0 {
		params = emptyObject
	}
	result, err := cm.invoke(c, params)
	if err != nil {
		return dst, err
	}
	return c.results().complete(dst, nil, result), nil
}

// withoutMeta returns the object without its member _meta.
func withoutMeta(object []byte) []byte {
	return era.Rewrite(nil, object, era.Without("_meta"), nil)
}

// customMethods holds the custom methods and the notification handlers.
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
	default:
		err = addCopyOnWrite(&s.custom.mu, &s.custom.methods, name, &customMethod{invoke: invoke})
	}
	if err != nil {
		return methodError(name, err)
	}
	return nil
}

// addCopyOnWrite adds an entry to a map that is read without a lock.
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

// isProtocolMethod reports whether the protocol has the request in any revision and either
// direction.
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

// OnNotification calls fn for the client's notifications of a method. The method may be one of the
// protocol, such as notifications/initialized, notifications/roots/list_changed and
// notifications/progress, or any other. [CallOf] returns a Call from ctx that identifies the
// client; its Revision is [mcp.RevisionNone] if it is unknown. params is the text of an object or
// nil, and valid until fn returns.
//
// The notifications of a connection are handled one after another in order of arrival, but later
// requests may be handled before them. OnNotification fails if the method has a handler (with
// [ErrDuplicate]), and for notifications/cancelled, which ends the context of its request. It may
// be called while the server runs.
func (s *Server) OnNotification(method string, fn func(ctx context.Context, params json.RawMessage)) error {
	err := checkMethodName(method)
	switch {
	case fn == nil:
		err = errNoFunc
	case method == mcp.NotificationCancelled:
		err = errReservedCancel
	case isProtocolMethod(method):
		err = errIsRequest
	case err == nil:
		err = addCopyOnWrite(&s.custom.mu, &s.custom.notificationHandlers, method, fn)
	}
	if err != nil {
		return methodError(method, err)
	}
	return nil
}

// handleNotification calls the handler of a notification, if there is one.
func (cm *customMethods) handleNotification(c *Call, r *rpc.Request) {
	if fn := cm.notificationHandler(r.Method); fn != nil {
		fn(c, json.RawMessage(r.Params))
	}
}

// isClientNotification reports whether clients of any revision send the notification.
func isClientNotification(method []byte) bool {
	switch string(method) {
	case mcp.NotificationInitialized, mcp.NotificationProgress, mcp.NotificationRootsChanged, mcp.NotificationTaskStatus:
		return true
	}
	return false
}
