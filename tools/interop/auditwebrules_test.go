package interop

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A scriptedExchange is an exchange of a script, with its payloads and its end.
type scriptedExchange struct {
	x      *exchange
	events []payload
	end    string
}

// request makes an exchange with the headers that the body needs. Further headers, such as
// "Mcp-Name: x", replace these; without a value, they remove them.
func request(method, body string, headers ...string) *scriptedExchange {
	x := &exchange{method: method, uri: webPath, header: http.Header{}, body: []byte(body)}
	set := func(name, value string) {
		if value != "" {
			x.header[name] = []string{value}
		}
	}
	if method == http.MethodPost {
		set("Content-Type", "application/json")
		set("Accept", "application/json, text/event-stream")
	} else {
		set("Accept", "text/event-stream")
	}
	if m, err := parse([]byte(body)); err == nil && m.params.Meta.Revision != "" {
		set("Mcp-Protocol-Version", m.params.Meta.Revision)
		set("Mcp-Method", m.Method)
		set("Mcp-Name", m.param(namedBy[m.Method]))
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		delete(x.header, name)
		set(name, value)
	}
	return &scriptedExchange{x: x}
}

// post is request for a POST.
func post(body string, headers ...string) *scriptedExchange {
	return request(http.MethodPost, body, headers...)
}

// inSession is post with the session id that legacyOpening returns.
func inSession(body string, headers ...string) *scriptedExchange {
	return post(body, append([]string{"Mcp-Session-Id: s1", "Mcp-Protocol-Version: " + latestLegacy}, headers...)...)
}

// respond adds a response with one body.
func (s *scriptedExchange) respond(status int, body string, headers ...string) *scriptedExchange {
	s.x.status, s.x.response, s.end = status, http.Header{}, completed
	if body != "" {
		s.x.response["Content-Type"] = []string{"application/json"}
		s.events = []payload{{data: []byte(body)}}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		s.x.response[name] = []string{value}
	}
	return s
}

// stream adds a response that is a stream.
func (s *scriptedExchange) stream(events ...payload) *scriptedExchange {
	s.respond(200, "", "Content-Type: text/event-stream", "X-Accel-Buffering: no")
	s.events = events
	return s
}

// endWith sets the kind of the last event.
func (s *scriptedExchange) endWith(kind string) *scriptedExchange {
	s.end = kind
	return s
}

// httpEvents returns the events as the recording proxy would record them. Without a status, there
// is no response.
func (s *scriptedExchange) httpEvents() []httpEvent {
	all := []httpEvent{{kind: requested, x: s.x}}
	if s.x.status != 0 {
		all = append(all, httpEvent{kind: responded, x: s.x})
	}
	for _, e := range s.events {
		all = append(all, httpEvent{payloadSent, s.x, e})
	}
	return append(all, httpEvent{kind: s.end, x: s.x})
}

func dataEvent(data string) payload { return payload{data: []byte(data)} }

func eventWithID(data, id string) payload { return payload{data: []byte(data), id: id, hasID: true} }

// messageOf returns the message of a line of the scripts in auditrules_test.go.
func messageOf(line string) string { return strings.TrimSpace(strings.TrimSpace(line)[2:]) }

// The parts of scripts.
var (
	modernOpening = func() *scriptedExchange {
		lines := strings.Split(strings.TrimSpace(modernDiscover), "\n")
		return post(messageOf(lines[0])).respond(200, messageOf(lines[1]))
	}
	legacyOpening = func(version string) []*scriptedExchange {
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(legacyHandshake, latestLegacy, version)), "\n")
		return []*scriptedExchange{
			post(messageOf(lines[0])).respond(200, messageOf(lines[1]), "Mcp-Session-Id: s1"),
			inSession(messageOf(lines[2]), "Mcp-Protocol-Version: "+version).respond(202, ""),
		}
	}
	modernCallJSON, modernResultJSON = messageOf(modernCall), messageOf(modernResult)
	legacyCallJSON, legacyResultJSON = messageOf(legacyCall), messageOf(legacyResult)
	modernListenJSON, modernAckJSON  = messageOf(modernListen), messageOf(modernAck)
	progressOf                       = func(token string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` + token + `","progress":1}}`
	}
	tokenCall = strings.NewReplacer(`"arguments":{}`, `"arguments":{"steps":1}`, `"_meta":{`, `"_meta":{"progressToken":"p",`).Replace(modernCallJSON)
)

func modernFailure(code string) string {
	return `{"jsonrpc":"2.0","id":2,"error":{"code":` + code + `,"message":"no"}}`
}

// TestAuditHTTP audits scripts that violate rules of HTTP, and some that do not.
func TestAuditHTTP(t *testing.T) {
	modernScript := func(exchanges ...*scriptedExchange) []*scriptedExchange {
		return append([]*scriptedExchange{modernOpening()}, exchanges...)
	}
	legacyScript := func(exchanges ...*scriptedExchange) []*scriptedExchange {
		return append(legacyOpening(latestLegacy), exchanges...)
	}
	for _, tt := range []struct {
		name   string
		script []*scriptedExchange
		want   []rule
	}{
		{"modern", modernScript(post(modernCallJSON).respond(200, modernResultJSON)), nil},
		{"modern stream", modernScript(post(tokenCall).stream(dataEvent(progressOf("p")), dataEvent(modernResultJSON))), nil},
		{"legacy", legacyScript(inSession(legacyCallJSON).respond(200, legacyResultJSON), request("DELETE", "", "Mcp-Session-Id: s1").respond(200, "")), nil},
		{"legacy stream", legacyScript(inSession(legacyCallJSON).stream(eventWithID("", "1"), eventWithID(legacyResultJSON, "2"))), nil},
		{"encoded name", modernScript(post(strings.Replace(modernCallJSON, `"name":"t"`, `"name":"\u00e9"`, 1), "Mcp-Name: =?base64?w6k=?=").respond(200, modernResultJSON)), nil},
		{"canceled by closing the connection", modernScript(post(modernCallJSON).stream().endWith(hostClosed)), nil},
		{"listen", modernScript(post(modernListenJSON).stream(dataEvent(modernAckJSON)).endWith(hostClosed)), nil},
		{"method not found", modernScript(post(modernCallJSON).respond(404, modernFailure("-32601"))), nil},
		{"old revision without header", append(legacyOpening("2025-03-26"), inSession(legacyCallJSON, "Mcp-Protocol-Version: ").respond(200, legacyResultJSON)), nil},

		{"content type not JSON", modernScript(post(modernCallJSON, "Content-Type: text/plain").respond(200, modernResultJSON)), []rule{clientPost}},
		{"streams not accepted", modernScript(post(modernCallJSON, "Accept: application/json").respond(200, modernResultJSON)), []rule{clientPost}},
		{"POST with Last-Event-Id", legacyScript(inSession(legacyCallJSON, "Last-Event-Id: 1").respond(200, legacyResultJSON)), []rule{clientPost}},
		{"no version", modernScript(post(modernCallJSON, "Mcp-Protocol-Version: ").respond(200, modernResultJSON)), []rule{clientHeaders}},
		{"other version than the body", modernScript(post(modernCallJSON, "Mcp-Protocol-Version: "+latestLegacy).respond(200, modernResultJSON)), []rule{clientHeaders}},
		{"no method", modernScript(post(modernCallJSON, "Mcp-Method: ").respond(200, modernResultJSON)), []rule{clientHeaders}},
		{"no name", modernScript(post(modernCallJSON, "Mcp-Name: ").respond(200, modernResultJSON)), []rule{clientHeaders}},
		{"other name than the body", modernScript(post(modernCallJSON, "Mcp-Name: T").respond(200, modernResultJSON)), []rule{clientHeaders}},
		{"name not encoded", modernScript(post(strings.Replace(modernCallJSON, `"name":"t"`, `"name":"\u00e9"`, 1)).respond(200, modernResultJSON)), []rule{clientHeaders}},
		{"no legacy version", legacyScript(inSession(legacyCallJSON, "Mcp-Protocol-Version: ").respond(200, legacyResultJSON)), []rule{clientHeaders}},
		{"modern request with session id", modernScript(post(modernCallJSON, "Mcp-Session-Id: s1").respond(200, modernResultJSON)), []rule{clientSession}},
		{"no session id", legacyScript(inSession(legacyCallJSON, "Mcp-Session-Id: ").respond(200, legacyResultJSON)), []rule{clientSession}},
		{"modern GET", modernScript(request("GET", "").respond(405, "")), []rule{clientSession}},
		{"request after the end of the session", legacyScript(request("DELETE", "", "Mcp-Session-Id: s1").respond(200, ""), inSession(legacyCallJSON).respond(200, legacyResultJSON)), []rule{clientSession}},
		{"request aborted after the end of the session", legacyScript(request("DELETE", "", "Mcp-Session-Id: s1").respond(200, ""), inSession(legacyCallJSON).endWith(hostClosed)), nil},
		{"modern cancellation by notification", modernScript(
			post(modernCallJSON).stream().endWith(hostClosed),
			post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, "Mcp-Protocol-Version: "+modern).respond(202, ""),
		), []rule{clientCancel}},

		{"status 200 for an unknown method", modernScript(post(modernCallJSON).respond(200, modernFailure("-32601"))), []rule{serverStatus}},
		{"status 200 for a header mismatch", modernScript(post(modernCallJSON).respond(200, modernFailure("-32020"))), []rule{serverStatus}},
		{"status 404 for an internal error", modernScript(post(modernCallJSON).respond(404, modernFailure("-32603"))), []rule{serverStatus}},
		{"status 200 for a notification", legacyScript(inSession(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`).respond(200, "")), []rule{serverStatus}},
		{"status 202 for a request", legacyScript(inSession(legacyCallJSON).respond(202, "")), []rule{serverBody, serverBody}},
		{"body with another content type", modernScript(post(modernCallJSON).respond(200, modernResultJSON, "Content-Type: text/plain")), []rule{serverBody}},
		{"stream without a response", modernScript(post(modernCallJSON).stream()), []rule{serverBody}},
		{"event after the response", modernScript(post(tokenCall).stream(dataEvent(progressOf("p")), dataEvent(modernResultJSON), dataEvent(progressOf("p")))), []rule{serverBody, serverProgress}},
		{"stream without X-Accel-Buffering", modernScript(func() *scriptedExchange {
			s := post(modernCallJSON).stream(dataEvent(modernResultJSON))
			delete(s.x.response, "X-Accel-Buffering")
			return s
		}()), []rule{serverBody}},
		{"progress of another request", modernScript(
			post(tokenCall).stream().endWith(""),
			post(strings.NewReplacer(`"id":2`, `"id":3`).Replace(modernCallJSON)).stream(dataEvent(progressOf("p")), dataEvent(strings.Replace(modernResultJSON, `"id":2`, `"id":3`, 1))),
		), []rule{serverStream, serverResponse}},
		{"response to another request", legacyScript(inSession(legacyCallJSON).stream(dataEvent(strings.Replace(legacyResultJSON, `"id":2`, `"id":9`, 1)), dataEvent(legacyResultJSON))), []rule{serverStream, serverBody, serverResponse}},
		{"response on the stream of a GET", legacyScript(request("GET", "", "Mcp-Session-Id: s1").stream(dataEvent(legacyResultJSON)).endWith(hostClosed)), []rule{serverStream, serverResponse}},
		{"modern event id", modernScript(post(modernCallJSON).stream(eventWithID(modernResultJSON, "1"))), []rule{serverEvents}},
		{"repeated event id", legacyScript(inSession(legacyCallJSON).stream(eventWithID("", "1"), eventWithID(legacyResultJSON, "1"))), []rule{serverEvents}},
		{"modern response with session id", modernScript(post(modernCallJSON).respond(200, modernResultJSON, "Mcp-Session-Id: s2")), []rule{serverSession}},
		{"session id with an invisible character", []*scriptedExchange{post(messageOf(strings.Split(strings.TrimSpace(legacyHandshake), "\n")[0])).respond(200, messageOf(strings.Split(strings.TrimSpace(legacyHandshake), "\n")[1]), "Mcp-Session-Id: a b")}, []rule{serverSession}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var httpEvents []httpEvent
			for _, s := range tt.script {
				s.x.number = len(httpEvents)
				httpEvents = append(httpEvents, s.httpEvents()...)
			}
			var got []rule
			for _, found := range (&webAuditor{}).run(httpEvents) {
				for _, v := range found {
					got = append(got, v.rule)
					t.Logf("%s: %s", v.rule, v.text)
				}
			}
			slices.Sort(got)
			want := slices.Clone(tt.want)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
