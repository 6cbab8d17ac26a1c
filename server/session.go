package server

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A session answers one peer. It is the Handler of its connection.
type session struct {
	srv  *Server
	conn *jsonrpc.Conn
	era  *era.Session
	log  *slog.Logger

	logLevel atomic.Uint32 // by logging/setLevel, legacy
	subs     subscriptions

	policyMu   sync.Mutex // held while the policy is being set
	modernSeen atomic.Bool

	announcer sync.WaitGroup
	changed   bool // there is a change of the tools to tell of; guarded by Server.mu, as is
	telling   bool // a goroutine of announcer is at it
}

// Prepare implements [jsonrpc.Handler]: tools run at their own pace, everything else is answered at once.
func (s *session) Prepare(r *jsonrpc.Request) *jsonrpc.Pace {
	switch string(r.Method) {
	case mcp.MethodToolsCall:
		if r.Kind != jsonrpc.KindRequest {
			break
		}
		if t := s.srv.lookup(r); t != nil {
			r.Route = t
			return &t.pace
		}
	case mcp.MethodSubscriptionsListen:
		return jsonrpc.Standing
	}
	return jsonrpc.Immediate
}

// lookup finds the tool that a tools/call names.
func (s *Server) lookup(r *jsonrpc.Request) *tool {
	name, ok := r.Param("name")
	if !ok || len(name) < 2 || name[0] != '"' {
		return nil
	}
	name = name[1 : len(name)-1]
	set := s.toolSet()
	if bytes.IndexByte(name, '\\') >= 0 {
		return set.byName[jsonwire.UnquoteString(name)]
	}
	return set.byName[string(name)]
}

// Handle implements [jsonrpc.Handler].
func (s *session) Handle(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	if r.Kind == jsonrpc.KindNotification {
		s.notification(r)
		return dst, nil
	}
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return s.answer(r, dst)
	}
	began := time.Now()
	dst, err := s.answer(r, dst)
	attrs := []any{"id", clip(r.ID.String()), "method", clip(string(r.Method))}
	attrs = append(append(attrs, s.Describe(r)...), "duration", time.Since(began))
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Debug("request", attrs...)
	return dst, err
}

// Describe implements [jsonrpc.Describer]: it names the tool.
func (s *session) Describe(r *jsonrpc.Request) []any {
	if t, ok := r.Route.(*tool); ok {
		return []any{"tool", t.def.Name}
	}
	return nil
}

func (s *session) answer(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	ex, err := s.era.Open(r)
	if err != nil {
		return dst, err
	}
	if ex.Modern && !s.modernSeen.Load() {
		s.modernSeen.Store(true)
		s.setPolicy()
	}
	id := s.srv.identity
	switch string(r.Method) {
	case mcp.MethodToolsCall:
		return s.callTool(r, ex, dst)
	case mcp.MethodToolsList:
		return s.srv.listTools(r, ex.Features, dst)
	case mcp.MethodPing:
		return id.Empty(dst, ex.Features, nil), nil
	case mcp.MethodInitialize:
		return s.initialize(r, dst)
	case mcp.MethodDiscover:
		return s.srv.discover(ex.Features, dst), nil
	case mcp.MethodSetLevel:
		if err := s.setLevel(r); err != nil {
			return dst, err
		}
		return id.Empty(dst, ex.Features, nil), nil
	case mcp.MethodSubscriptionsListen:
		return s.listen(r, ex, dst)
	}
	return dst, jsonrpc.MethodNotFound(string(r.Method))
}

// setPolicy tells the connection what is known of the peer by now. Requests that say something about it may run at the same time.
func (s *session) setPolicy() {
	s.policyMu.Lock()
	defer s.policyMu.Unlock()
	s.conn.SetPolicy(s.era.Policy(s.modernSeen.Load()))
}

func (s *session) notification(r *jsonrpc.Request) {
	switch string(r.Method) {
	case mcp.NotificationInitialized:
		if !s.era.Initialized() {
			s.log.Warn("notifications/initialized out of place")
		}
	default:
		s.log.Debug("notification ignored", "method", clip(string(r.Method)))
	}
}

func invalidParams(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: "+format, args...)
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// stringParam returns a member of params that must be a string.
func stringParam(r *jsonrpc.Request, name string) (string, error) {
	v, ok := r.Param(name)
	if !ok {
		return "", invalidParams("params.%s is missing", name)
	}
	if v[0] != '"' {
		return "", invalidParams("params.%s must be a string", name)
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1]), nil
}
