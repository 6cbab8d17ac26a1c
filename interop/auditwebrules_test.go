package interop

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A scene is an exchange of a script, with its results.
type scene struct {
	x      *exchange
	events []said
	end    string
}

// request makes a scene with the headers that a body needs. Further headers,
// such as "Mcp-Name: x", replace them; those without a value are left out.
func request(method, body string, headers ...string) *scene {
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
	return &scene{x: x}
}

// post is request for a POST.
func post(body string, headers ...string) *scene { return request(http.MethodPost, body, headers...) }

// inSession is post for the session that legacyOpening begins.
func inSession(body string, headers ...string) *scene {
	return post(body, append([]string{"Mcp-Session-Id: s1", "Mcp-Protocol-Version: " + latestLegacy}, headers...)...)
}

// gets completes a scene with a response that is one body.
func (s *scene) gets(status int, body string, headers ...string) *scene {
	s.x.status, s.x.response, s.end = status, http.Header{}, over
	if body != "" {
		s.x.response["Content-Type"] = []string{"application/json"}
		s.events = []said{{data: []byte(body)}}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		s.x.response[name] = []string{value}
	}
	return s
}

// streams completes a scene with a response that is a stream.
func (s *scene) streams(events ...said) *scene {
	s.gets(200, "", "Content-Type: text/event-stream", "X-Accel-Buffering: no")
	s.events = events
	return s
}

func (s *scene) ends(how string) *scene {
	s.end = how
	return s
}

// moments are what the witness would have seen. A scene without a status has no response.
func (s *scene) moments() []moment {
	all := []moment{{kind: requested, x: s.x}}
	if s.x.status != 0 {
		all = append(all, moment{kind: responded, x: s.x})
	}
	for _, e := range s.events {
		all = append(all, moment{spoke, s.x, e})
	}
	return append(all, moment{kind: s.end, x: s.x})
}

func event1(data string) said { return said{data: []byte(data)} }

func withID(data, id string) said { return said{data: []byte(data), id: id, hasID: true} }

// lineOf is the message of a line as those of the other audit's scripts are.
func lineOf(line string) string { return strings.TrimSpace(strings.TrimSpace(line)[2:]) }

// The parts of scripts.
var (
	modernOpening = func() *scene {
		lines := strings.Split(strings.TrimSpace(modernHello), "\n")
		return post(lineOf(lines[0])).gets(200, lineOf(lines[1]))
	}
	legacyOpening = func(version string) []*scene {
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(legacyHello, latestLegacy, version)), "\n")
		return []*scene{
			post(lineOf(lines[0])).gets(200, lineOf(lines[1]), "Mcp-Session-Id: s1"),
			inSession(lineOf(lines[2]), "Mcp-Protocol-Version: "+version).gets(202, ""),
		}
	}
	webCall, webResult = lineOf(modernCall), lineOf(modernResult)
	oldCall, oldResult = lineOf(legacyCall), lineOf(legacyResult)
	webListen, webAck  = lineOf(modernListen), lineOf(modernAck)
	progressOf         = func(token string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` + token + `","progress":1}}`
	}
	tokenCall = strings.NewReplacer(`"arguments":{}`, `"arguments":{"steps":1}`, `"_meta":{`, `"_meta":{"progressToken":"p",`).Replace(webCall)
)

func modernFailure(code string) string {
	return `{"jsonrpc":"2.0","id":2,"error":{"code":` + code + `,"message":"no"}}`
}

// TestAuditHTTP audits scripts that break rules of HTTP, and some that break none.
func TestAuditHTTP(t *testing.T) {
	modernScript := func(scenes ...*scene) []*scene { return append([]*scene{modernOpening()}, scenes...) }
	legacyScript := func(scenes ...*scene) []*scene { return append(legacyOpening(latestLegacy), scenes...) }
	for _, tt := range []struct {
		name   string
		script []*scene
		want   []rule
	}{
		{"modern", modernScript(post(webCall).gets(200, webResult)), nil},
		{"modern stream", modernScript(post(tokenCall).streams(event1(progressOf("p")), event1(webResult))), nil},
		{"legacy", legacyScript(inSession(oldCall).gets(200, oldResult), request("DELETE", "", "Mcp-Session-Id: s1").gets(200, "")), nil},
		{"legacy stream", legacyScript(inSession(oldCall).streams(withID("", "1"), withID(oldResult, "2"))), nil},
		{"encoded name", modernScript(post(strings.Replace(webCall, `"name":"t"`, `"name":"\u00e9"`, 1), "Mcp-Name: =?base64?w6k=?=").gets(200, webResult)), nil},
		{"cancelled by leaving", modernScript(post(webCall).streams().ends(left)), nil},
		{"listen", modernScript(post(webListen).streams(event1(webAck)).ends(left)), nil},
		{"method not found", modernScript(post(webCall).gets(404, modernFailure("-32601"))), nil},
		{"old version needs no header", append(legacyOpening("2025-03-26"), inSession(oldCall, "Mcp-Protocol-Version: ").gets(200, oldResult)), nil},

		{"no JSON", modernScript(post(webCall, "Content-Type: text/plain").gets(200, webResult)), []rule{clientPost}},
		{"takes no streams", modernScript(post(webCall, "Accept: application/json").gets(200, webResult)), []rule{clientPost}},
		{"resumes by POST", legacyScript(inSession(oldCall, "Last-Event-Id: 1").gets(200, oldResult)), []rule{clientPost}},
		{"no version", modernScript(post(webCall, "Mcp-Protocol-Version: ").gets(200, webResult)), []rule{clientHeaders}},
		{"other version", modernScript(post(webCall, "Mcp-Protocol-Version: "+latestLegacy).gets(200, webResult)), []rule{clientHeaders}},
		{"no method", modernScript(post(webCall, "Mcp-Method: ").gets(200, webResult)), []rule{clientHeaders}},
		{"no name", modernScript(post(webCall, "Mcp-Name: ").gets(200, webResult)), []rule{clientHeaders}},
		{"other name", modernScript(post(webCall, "Mcp-Name: T").gets(200, webResult)), []rule{clientHeaders}},
		{"name not encoded", modernScript(post(strings.Replace(webCall, `"name":"t"`, `"name":"\u00e9"`, 1)).gets(200, webResult)), []rule{clientHeaders}},
		{"no legacy version", legacyScript(inSession(oldCall, "Mcp-Protocol-Version: ").gets(200, oldResult)), []rule{clientHeaders}},
		{"session in modern", modernScript(post(webCall, "Mcp-Session-Id: s1").gets(200, webResult)), []rule{clientSession}},
		{"no session", legacyScript(inSession(oldCall, "Mcp-Session-Id: ").gets(200, oldResult)), []rule{clientSession}},
		{"GET in modern", modernScript(request("GET", "").gets(405, "")), []rule{clientSession}},
		{"after the end", legacyScript(request("DELETE", "", "Mcp-Session-Id: s1").gets(200, ""), inSession(oldCall).gets(200, oldResult)), []rule{clientSession}},
		{"aborted after the end", legacyScript(request("DELETE", "", "Mcp-Session-Id: s1").gets(200, ""), inSession(oldCall).ends(left)), nil},
		{"cancels by notification", modernScript(
			post(webCall).streams().ends(left),
			post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, "Mcp-Protocol-Version: "+modern).gets(202, ""),
		), []rule{clientCancel}},

		{"200 for what is not found", modernScript(post(webCall).gets(200, modernFailure("-32601"))), []rule{serverStatus}},
		{"200 for a mismatch", modernScript(post(webCall).gets(200, modernFailure("-32020"))), []rule{serverStatus}},
		{"404 for a failure", modernScript(post(webCall).gets(404, modernFailure("-32603"))), []rule{serverStatus}},
		{"200 for a notification", legacyScript(inSession(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`).gets(200, "")), []rule{serverStatus}},
		{"202 for a request", legacyScript(inSession(oldCall).gets(202, "")), []rule{serverBody, serverBody}},
		{"body of another type", modernScript(post(webCall).gets(200, webResult, "Content-Type: text/plain")), []rule{serverBody}},
		{"stream without an answer", modernScript(post(webCall).streams()), []rule{serverBody}},
		{"goes on after the answer", modernScript(post(tokenCall).streams(event1(progressOf("p")), event1(webResult), event1(progressOf("p")))), []rule{serverBody, serverProgress}},
		{"stream that may be held back", modernScript(func() *scene {
			s := post(webCall).streams(event1(webResult))
			delete(s.x.response, "X-Accel-Buffering")
			return s
		}()), []rule{serverBody}},
		{"progress of another request", modernScript(
			post(tokenCall).streams().ends(""),
			post(strings.NewReplacer(`"id":2`, `"id":3`).Replace(webCall)).streams(event1(progressOf("p")), event1(strings.Replace(webResult, `"id":2`, `"id":3`, 1))),
		), []rule{serverStream, serverAnswer}},
		{"answer to another request", legacyScript(inSession(oldCall).streams(event1(strings.Replace(oldResult, `"id":2`, `"id":9`, 1)), event1(oldResult))), []rule{serverStream, serverBody, serverAnswer}},
		{"answer on a stream for none", legacyScript(request("GET", "", "Mcp-Session-Id: s1").streams(event1(oldResult)).ends(left)), []rule{serverStream, serverAnswer}},
		{"ids in modern", modernScript(post(webCall).streams(withID(webResult, "1"))), []rule{serverEvents}},
		{"an id again", legacyScript(inSession(oldCall).streams(withID("", "1"), withID(oldResult, "1"))), []rule{serverEvents}},
		{"session of modern", modernScript(post(webCall).gets(200, webResult, "Mcp-Session-Id: s2")), []rule{serverSession}},
		{"session that cannot be seen", []*scene{post(lineOf(strings.Split(strings.TrimSpace(legacyHello), "\n")[0])).gets(200, lineOf(strings.Split(strings.TrimSpace(legacyHello), "\n")[1]), "Mcp-Session-Id: a b")}, []rule{serverSession}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var moments []moment
			for _, s := range tt.script {
				s.x.number = len(moments)
				moments = append(moments, s.moments()...)
			}
			var got []rule
			for _, found := range (&webAuditor{}).run(moments) {
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
