package server

import (
	"context"
	"encoding/json"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

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
