package interop

import (
	"encoding/json"
	"slices"
)

// cacheable are the methods whose modern results have caching hints.
var cacheable = []string{"server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list"}

// clientCapabilityOf has the capability that a client must declare to get a request.
var clientCapabilityOf = map[string]string{"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

// severities are the levels of log messages, in ascending order.
var severities = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// serverMessage checks a message of the server.
func (a *auditor) serverMessage(m *message) {
	switch {
	case m.isRequest():
		a.serverRequest(m)
	case m.isNotification():
		a.serverNotification(m)
	default:
		a.serverResponse(m)
	}
}

func (a *auditor) serverRequest(m *message) {
	id := string(m.ID)
	if !a.initialized && m.Method != "ping" || a.serverIDs[id] {
		a.violated(serverRequest, "%s", m.raw)
	}
	if need := clientCapabilityOf[m.Method]; need != "" && a.clientCaps[need] == nil {
		a.violated(serverRequest, "the client has not declared %s: %s", need, m.raw)
	}
	a.serverIDs[id] = true
	a.openToClient[id] = &pending{message: m}
}

func (a *auditor) serverResponse(m *message) {
	p := a.open[string(m.ID)]
	if p == nil {
		a.violated(serverResponse, "response to no request: %s", m.raw)
		return
	}
	delete(a.open, string(m.ID))
	delete(a.listens, string(m.ID))
	if p.cancelled {
		// A fast request may have been answered before the cancellation arrived: only these are
		// slow here.
		if p.Method == "tools/call" || p.Method == "subscriptions/listen" {
			a.violated(serverCancelled, "response to canceled %s: %s", p.Method, m.raw)
		}
		return
	}
	if (m.Result == nil) == (m.Error == nil) {
		a.violated(serverResponse, "response with both or none of result and error: %s", m.raw)
	}
	if m.Error != nil && (m.Error.Code == nil || *m.Error.Code == 0 || m.Error.Message == nil || *m.Error.Message == "") {
		a.violated(serverResponse, "error without code or message: %s", m.raw)
	}
	if m.Result != nil {
		a.checkResult(p, m)
	} else if p.Method == "initialize" { // no session began, and the client may start over
		a.initSent = false
		clear(a.clientIDs)
	}
}

// checkResult checks a result.
func (a *auditor) checkResult(p *pending, m *message) {
	r := m.result
	if p.modern != (r.ResultType != "") {
		a.violated(serverResultType, "resultType of %s: %s", p.Method, m.raw)
	}
	hinted := r.TTL != nil && (r.CacheScope == "private" || r.CacheScope == "public")
	if p.modern && r.ResultType == "complete" && slices.Contains(cacheable, p.Method) && !hinted {
		a.violated(serverResultType, "no caching hints for %s: %s", p.Method, m.raw)
	}
	if !p.modern && (r.TTL != nil && p.Method != "tasks/get" || r.CacheScope != "") {
		a.violated(serverLegacy, "caching hints in a legacy result: %s", m.raw)
	}
	var steps struct{ Steps float64 }
	json.Unmarshal(p.params.Arguments, &steps)
	if p.params.Meta.Token != nil && p.progress != steps.Steps && r.Task == nil && r.ResultType != "task" {
		a.violated(serverProgress, "response after %v of %v steps: %s", p.progress, steps.Steps, m.raw)
	}
	if (r.Task != nil || r.ResultType == "task") && p.params.Meta.Token != nil {
		a.taskTokens[string(p.params.Meta.Token)] = p.progress
	}
	switch {
	case r.ResultType == "input_required":
		a.inputRequired(p, m)
	case p.Method == "initialize":
		a.revision, a.serverCaps = r.Revision, r.Capabilities
	case p.Method == "server/discover":
		// The server may support only legacy revisions.
		a.modernResults, a.serverCaps = slices.Contains(r.Supported, modern), r.Capabilities
	case p.modern:
		a.modernResults = true
	case p.Method == "logging/setLevel":
		a.logLevel = p.params.Level
	case p.Method == "resources/subscribe":
		a.subscribed[p.params.URI] = true
	case p.Method == "resources/unsubscribe":
		delete(a.subscribed, p.params.URI)
	}
}

// inputRequired records the input requests of a result, and checks that they are allowed.
func (a *auditor) inputRequired(p *pending, m *message) {
	if !slices.Contains([]string{"tools/call", "prompts/get", "resources/read"}, p.Method) {
		a.violated(serverRequest, "input requests for %s: %s", p.Method, m.raw)
	}
	if len(m.result.Requests) == 0 && m.result.State == nil {
		a.violated(serverRequest, "neither input requests nor state: %s", m.raw)
	}
	for _, q := range m.result.Requests {
		need := clientCapabilityOf[q.Method]
		if need == "" || p.params.Meta.Capabilities[need] == nil {
			a.violated(serverRequest, "the client has not declared what %s needs: %s", q.Method, m.raw)
		}
	}
	subject := p.subject()
	if a.rounds[subject] == nil {
		a.rounds[subject] = map[string]result{}
	}
	a.rounds[subject][string(p.ID)] = m.result
}

func (a *auditor) serverNotification(m *message) {
	switch m.Method {
	case "notifications/progress":
		a.checkProgress(m)
	case "notifications/message":
		a.checkLog(m)
	case "notifications/cancelled":
		id := string(m.params.RequestID)
		if a.initSent {
			if !a.serverIDs[id] {
				a.violated(serverRequest, "cancellation of no request of the server: %s", m.raw)
			}
			delete(a.openToClient, id)
			a.cancelled[id] = true
			return
		}
		if a.listens[id] == nil {
			a.violated(serverListen, "%s", m.raw)
		}
	case "notifications/subscriptions/acknowledged":
		l := a.listens[string(m.params.Meta.Subscription)]
		if l == nil || l.acked != nil {
			a.violated(serverListen, "%s", m.raw)
			return
		}
		l.acked = &m.params.Filter
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated":
		a.checkChange(m)
	}
}

func (a *auditor) checkProgress(m *message) {
	token := string(m.params.Token)
	for _, p := range a.open {
		if string(p.params.Meta.Token) == token {
			if m.params.Progress <= p.progress {
				a.violated(serverProgress, "progress does not exceed %v: %s", p.progress, m.raw)
			}
			p.progress = m.params.Progress
			return
		}
	}
	if last, ok := a.taskTokens[token]; ok && m.params.Progress > last {
		a.taskTokens[token] = m.params.Progress
		return
	}
	a.violated(serverProgress, "progress for no pending request: %s", m.raw)
}

// checkLog checks a log message against the level that the session or a pending request set.
func (a *auditor) checkLog(m *message) {
	level := slices.Index(severities, m.params.Level)
	if a.initSent {
		if a.serverCaps["logging"] == nil {
			a.violated(serverLogging, "logging is not declared: %s", m.raw)
		}
		if level < slices.Index(severities, a.logLevel) {
			a.violated(serverLogging, "%s", m.raw)
		}
		return
	}
	for _, p := range a.open {
		if want := p.params.Meta.LogLevel; want != "" && level >= slices.Index(severities, want) {
			return
		}
	}
	a.violated(serverLogging, "%s", m.raw)
}

// checkChange checks the notification of a change.
func (a *auditor) checkChange(m *message) {
	if a.initSent {
		if m.Method == "notifications/resources/updated" && !a.subscribed[m.params.URI] {
			a.violated(serverListen, "update of a resource without subscription: %s", m.raw)
		}
		return
	}
	l := a.listens[string(m.params.Meta.Subscription)]
	if l == nil {
		why := "change without a subscription"
		if p := a.open[string(m.params.Meta.Subscription)]; p != nil && p.cancelled {
			why = "change for a canceled subscription"
		}
		a.violated(serverListen, "%s: %s", why, m.raw)
		return
	}
	if l.acked == nil {
		a.violated(serverListen, "change before the acknowledgment: %s", m.raw)
		return
	}
	wanted := map[string]bool{
		"notifications/tools/list_changed":     l.acked.Tools,
		"notifications/prompts/list_changed":   l.acked.Prompts,
		"notifications/resources/list_changed": l.acked.Resources,
		"notifications/resources/updated":      slices.Contains(l.acked.URIs, m.params.URI),
	}
	if !wanted[m.Method] {
		a.violated(serverListen, "change that the subscription does not include: %s", m.raw)
	}
}
