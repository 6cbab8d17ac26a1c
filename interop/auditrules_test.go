package interop

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The beginnings of transcripts: each line is a message of the client, after >,
// or of the server, after <.
const (
	legacyHello = `
> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}
< {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}}
> {"jsonrpc":"2.0","method":"notifications/initialized"}
`
	modernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	modernHello = `
> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}}
`
	modernCall   = `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{},` + modernMeta + `}}`
	modernResult = `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`
	legacyCall   = `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{}}}`
	legacyResult = `< {"jsonrpc":"2.0","id":2,"result":{"content":[]}}`
	modernListen = `> {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
	modernAck    = `< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{"toolsListChanged":true}}}`
	modernChange = `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`
	rootsMeta    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
	modernAsked  = `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{},` + rootsMeta + `}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"a\u003cb"}}
`
	modernDone = `
< {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[]}}`
)

// TestAudit audits scripts that break rules, and some that break none.
func TestAudit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		transcript string
		want       []rule
	}{
		{"legacy", legacyHello + legacyCall + "\n" + legacyResult, nil},
		{"modern", modernHello + modernCall + "\n" + modernResult, nil},
		{"fallback", `
> {"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + modernMeta + `}}
< {"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}` + legacyHello, nil},
		{"listen", modernHello + modernListen + "\n" + modernAck + "\n" + modernChange + `
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, nil},
		{"round", modernHello + modernAsked + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{"r":{"roots":[]}},"requestState":"a<b",` + rootsMeta + `}}` + modernDone, nil},

		{"not JSON", legacyHello + "> nonsense", []rule{clientOutput}},
		{"not JSON, server", legacyHello + "< nonsense", []rule{serverOutput}},
		{"id again", legacyHello + legacyCall + "\n" + legacyResult + "\n" + legacyCall + "\n" + legacyResult, []rule{clientID}},
		{"fractional id", legacyHello + strings.ReplaceAll(legacyCall+"\n"+legacyResult, `"id":2`, `"id":2.5`), []rule{clientID, clientSchema}},
		{"second handshake", legacyHello + strings.ReplaceAll(legacyHello, `"id":1`, `"id":2`), []rule{clientHandshake, clientHandshake}},
		{"request before initialized", strings.Join(strings.Split(legacyHello, "\n")[:3], "\n") + "\n" + legacyCall + "\n" + legacyResult, []rule{clientHandshake}},
		{"modern request after the handshake", legacyHello + modernCall + "\n" + modernResult, []rule{clientEra}},
		{"handshake after a modern answer", modernHello + strings.ReplaceAll(legacyHello, `"id":1`, `"id":2`), []rule{clientEra}},
		{"ping in modern", modernHello + strings.Replace(modernCall, "tools/call", "ping", 1) + "\n" + modernResult, []rule{clientEra, clientSchema}},
		{"no metadata", modernHello + legacyCall + "\n" + legacyResult, []rule{clientMeta, clientSchema, serverSchema}},
		{"cancels what is none", legacyHello + `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, []rule{clientCancel}},
		{"answers nothing", legacyHello + `> {"jsonrpc":"2.0","id":7,"result":{}}`, []rule{clientAnswer}},
		{"answers in modern", modernHello + `> {"jsonrpc":"2.0","id":7,"result":{}}`, []rule{clientAnswer}},
		{"no response to the server", legacyHello + `< {"jsonrpc":"2.0","id":"r","method":"roots/list"}`, []rule{clientAnswer}},
		{"other state", modernHello + modernAsked + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{"r":{"roots":[]}},"requestState":"a&lt;b",` + rootsMeta + `}}` + modernDone, []rule{clientRetry}},
		{"other params", modernHello + modernAsked + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"u","arguments":{},"inputResponses":{"r":{"roots":[]}},"requestState":"a<b",` + rootsMeta + `}}` + modernDone, []rule{clientRetry}},
		{"an answer is missing", modernHello + modernAsked + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{},"requestState":"a<b",` + rootsMeta + `}}` + modernDone, []rule{clientRetry}},
		{"token in use", legacyHello + strings.NewReplacer(`"arguments":{}`, `"arguments":{},"_meta":{"progressToken":"x"}`).Replace(legacyCall+"\n"+strings.Replace(legacyCall, `"id":2`, `"id":3`, 1)) + "\n" + legacyResult + "\n" + strings.Replace(legacyResult, `"id":2`, `"id":3`, 1), []rule{clientToken}},
		{"undeclared by the server", legacyHello + `> {"jsonrpc":"2.0","id":2,"method":"prompts/list"}
< {"jsonrpc":"2.0","id":2,"result":{"prompts":[]}}`, []rule{clientCapability}},

		{"no response", legacyHello + legacyCall, []rule{serverAnswer}},
		{"two answers", legacyHello + legacyCall + "\n" + legacyResult + "\n" + legacyResult, []rule{serverAnswer}},
		{"error without a code", legacyHello + legacyCall + "\n" + `< {"jsonrpc":"2.0","id":2,"error":{"message":"x"}}`, []rule{serverAnswer}},
		{"answer to what was cancelled", legacyHello + legacyCall + `
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}
` + legacyResult, []rule{serverCancelled}},
		{"progress for nothing", legacyHello + `< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":1}}`, []rule{serverProgress}},
		{"no resultType", modernHello + modernCall + "\n" + legacyResult, []rule{serverResultType, serverSchema}},
		{"resultType in legacy", legacyHello + legacyCall + "\n" + modernResult, []rule{serverResultType}},
		{"no caching hints", strings.Replace(modernHello, `"ttlMs":0,`, "", 1), []rule{serverResultType, serverSchema}},
		{"caching hints in legacy", legacyHello + legacyCall + "\n" + strings.Replace(legacyResult, `"content"`, `"ttlMs":0,"content"`, 1), []rule{serverLegacy}},
		{"request in modern", modernHello + `< {"jsonrpc":"2.0","id":"r","method":"roots/list"}`, []rule{serverRequest, serverRequest, clientAnswer}},
		{"undeclared by the client", legacyHello + `< {"jsonrpc":"2.0","id":"r","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}
> {"jsonrpc":"2.0","id":"r","error":{"code":-32601,"message":"no"}}`, []rule{serverRequest}},
		{"undeclared input", modernHello + modernCall + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}}`, []rule{serverRequest}},
		{"log that nobody asked for", modernHello + `< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, []rule{serverLogging}},
		{"log below the level", legacyHello + `> {"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}
< {"jsonrpc":"2.0","id":2,"result":{}}
< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, []rule{serverLogging}},
		{"change before the acknowledgement", modernHello + modernListen + "\n" + modernChange + "\n" + modernAck, []rule{serverListen}},
		{"change without a subscription", modernHello + modernListen + "\n" + modernAck + "\n" + `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, []rule{serverListen}},
		{"change of another kind", modernHello + modernListen + "\n" + modernAck + "\n" + strings.Replace(modernChange, "tools", "prompts", 1), []rule{serverListen}},
		{"the id's type changed", modernHello + modernListen + "\n" + strings.Replace(modernAck, `Id":2`, `Id":"2"`, 1), []rule{serverListen}},
		{"update without a subscription", legacyHello + `< {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`, []rule{serverListen}},
		{"result that is none", legacyHello + legacyCall + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{"contents":[]}}`, []rule{serverSchema}},
		{"bad end", legacyHello + "! 1", []rule{serverExit}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if openSchemas(t) == nil {
				want = slices.DeleteFunc(slices.Clone(want), func(r rule) bool { return r == clientSchema || r == serverSchema })
			}
			var got []rule
			for _, v := range auditTranscript(t, scripted(tt.transcript), false) {
				got = append(got, v.rule)
				t.Logf("%s: %s", v.rule, v.text)
			}
			slices.Sort(got)
			want = slices.Clone(want)
			slices.Sort(want)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// scripted makes a transcript of lines, which ends as it should unless the last
// line says otherwise.
func scripted(text string) (events []event) {
	events = append(events, event{Kind: started})
	end := event{Kind: exited}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "> "):
			events = append(events, event{Kind: toServer, Line: []byte(line[2:])})
		case strings.HasPrefix(line, "< "):
			events = append(events, event{Kind: toHost, Line: []byte(line[2:])})
		case line == "! 1":
			end.Code = 1
		}
	}
	return append(events, event{Kind: inputEnds}, end)
}
