package interop

import (
	"encoding/json"
	"regexp"
	"slices"
)

// idForm matches the ids that MCP allows.
var idForm = regexp.MustCompile(`^("(?s).*"|-?[0-9]+)$`)

// legacyMethods are the methods other than initialize that the modern era removed.
var legacyMethods = []string{"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "notifications/roots/list_changed", "tasks/result", "tasks/list"}

// modernMethods are the methods that the modern era added.
var modernMethods = []string{"server/discover", "subscriptions/listen", "tasks/update"}

// capabilityOf has the capability that a server must declare for a method.
var capabilityOf = map[string]string{
	"tools/list": "tools", "tools/call": "tools",
	"resources/list": "resources", "resources/read": "resources", "resources/templates/list": "resources",
	"resources/subscribe": "resources", "resources/unsubscribe": "resources",
	"prompts/list": "prompts", "prompts/get": "prompts",
	"completion/complete": "completions", "logging/setLevel": "logging",
	"tasks/get": "tasks", "tasks/result": "tasks", "tasks/list": "tasks", "tasks/cancel": "tasks", "tasks/update": "tasks",
}

// clientMessage checks a message of the client.
func (a *auditor) clientMessage(m *message) {
	switch {
	case m.isRequest():
		a.clientRequest(m)
	case m.isNotification():
		a.clientNotification(m)
	default:
		a.clientResponse(m)
	}
}

func (a *auditor) clientRequest(m *message) {
	id := string(m.ID)
	if !idForm.MatchString(id) || a.clientIDs[id] {
		a.violated(clientID, "%s", m.raw)
	}
	a.clientIDs[id] = true
	p := &pending{message: m, modern: m.params.Meta.Revision != ""}
	a.checkOrder(m, p.modern)
	a.checkCapability(m, p.modern)
	if token := string(m.params.Meta.Token); token != "" {
		for _, other := range a.open {
			if string(other.params.Meta.Token) == token {
				a.violated(clientToken, "%s", m.raw)
			}
		}
		if !idForm.MatchString(token) {
			a.violated(clientToken, "%s", m.raw)
		}
	}
	a.checkRetry(m)
	a.open[id] = p
	if m.Method == "subscriptions/listen" {
		a.listens[id] = p
	}
}

// checkOrder checks the order of messages in each era.
func (a *auditor) checkOrder(m *message, modern bool) {
	switch {
	case m.Method == "initialize":
		if a.initSent {
			a.violated(clientHandshake, "second initialize: %s", m.raw)
		}
		if a.modernResults {
			a.violated(clientEra, "handshake with a server that sent a modern result: %s", m.raw)
		}
		a.initSent = true
		a.clientCaps = m.params.Capabilities
	case a.initSent:
		if modern || slices.Contains(modernMethods, m.Method) && m.Method != "tasks/update" {
			a.violated(clientEra, "modern request after the handshake: %s", m.raw)
		}
		if a.revision == "" && m.Method != "ping" {
			a.violated(clientHandshake, "request before the response to initialize: %s", m.raw)
		} else if !a.initialized && m.Method != "ping" {
			a.violated(clientHandshake, "request before notifications/initialized: %s", m.raw)
		}
	default:
		if m.params.Meta.Revision == "" || m.params.Meta.Capabilities == nil {
			a.violated(clientMeta, "%s", m.raw)
		}
		if slices.Contains(legacyMethods, m.Method) {
			a.violated(clientEra, "legacy request to a modern server: %s", m.raw)
		}
	}
}

func (a *auditor) checkCapability(m *message, modern bool) {
	need := capabilityOf[m.Method]
	if need == "" || a.serverCaps == nil {
		return
	}
	caps := a.serverCaps
	if need == "tasks" && modern {
		json.Unmarshal(caps["extensions"], &caps)
		need = "io.modelcontextprotocol/tasks"
	}
	// Revision 2024-11-05 has no capability for completion.
	if need == "completions" && a.revision == "2024-11-05" {
		return
	}
	if caps[need] == nil {
		a.violated(clientCapability, "%s", m.raw)
	}
}

// subject returns the part of a request that does not change between rounds.
func (m *message) subject() string {
	var members map[string]any
	json.Unmarshal(m.Params, &members)
	delete(members, "_meta")
	delete(members, "inputResponses")
	delete(members, "requestState")
	text, err := json.Marshal(members)
	if err != nil {
		return ""
	}
	return m.Method + string(text)
}

// checkRetry compares a request that has input responses, or state, with the results that requested
// them.
func (a *auditor) checkRetry(m *message) {
	if m.params.Responses == nil && m.params.State == nil {
		return
	}
	if m.Method == "tasks/update" {
		return
	}
	for _, round := range a.rounds[m.subject()] {
		same := (round.State == nil) == (m.params.State == nil) && (round.State == nil || *round.State == *m.params.State)
		for key := range round.Requests {
			same = same && m.params.Responses[key] != nil
		}
		if same && len(m.params.Responses) == len(round.Requests) {
			return
		}
	}
	a.violated(clientRetry, "%s", m.raw)
}

func (a *auditor) clientNotification(m *message) {
	switch m.Method {
	case "notifications/initialized":
		if a.revision == "" || a.initialized {
			a.violated(clientHandshake, "%s", m.raw)
		}
		a.initialized = true
	case "notifications/cancelled":
		id := string(m.params.RequestID)
		p := a.open[id]
		// The response may have been sent already, but the id must be that of a request.
		if p == nil && !a.clientIDs[id] && !a.lossy || p != nil && p.Method == "initialize" {
			a.violated(clientCancel, "%s", m.raw)
		}
		if p != nil {
			p.cancelled = true
		}
		delete(a.listens, id)
	default:
		if !a.initSent && slices.Contains(legacyMethods, m.Method) {
			a.violated(clientEra, "legacy notification to a modern server: %s", m.raw)
		}
	}
}

// clientResponse checks a response of the client.
func (a *auditor) clientResponse(m *message) {
	p := a.openToClient[string(m.ID)]
	if p == nil {
		if !a.cancelled[string(m.ID)] {
			a.violated(clientResponse, "response to no request: %s", m.raw)
		}
		return
	}
	delete(a.openToClient, string(m.ID))
	if (m.Result == nil) == (m.Error == nil) || m.Error != nil && (m.Error.Code == nil || m.Error.Message == nil) {
		a.violated(clientResponse, "%s", m.raw)
	}
}
