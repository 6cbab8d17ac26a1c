package interop

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The parts of transcripts. A line is a message of the client, after >, or of the server, after <.
const (
	legacyHandshake = `
> {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}
< {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"s","version":"1"}}}
> {"jsonrpc":"2.0","method":"notifications/initialized"}
`
	modernMeta     = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	modernDiscover = `
> {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}}
`
	modernCall          = `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{},` + modernMeta + `}}`
	modernResult        = `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`
	legacyCall          = `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{}}}`
	legacyResult        = `< {"jsonrpc":"2.0","id":2,"result":{"content":[]}}`
	modernListen        = `> {"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
	modernAck           = `< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{"toolsListChanged":true}}}`
	modernChange        = `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`
	rootsMeta           = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
	modernInputRequired = `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{},` + rootsMeta + `}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"a\u003cb"}}
`
	modernRetryResult = `
< {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[]}}`
)

// TestAudit audits transcripts that violate rules, and some that do not.
func TestAudit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		transcript string
		want       []rule
	}{
		{"legacy", legacyHandshake + legacyCall + "\n" + legacyResult, nil},
		{"modern", modernDiscover + modernCall + "\n" + modernResult, nil},
		{"fallback", `
> {"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + modernMeta + `}}
< {"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}` + legacyHandshake, nil},
		{"listen", modernDiscover + modernListen + "\n" + modernAck + "\n" + modernChange + `
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, nil},
		{"input round", modernDiscover + modernInputRequired + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{"r":{"roots":[]}},"requestState":"a<b",` + rootsMeta + `}}` + modernRetryResult, nil},

		{"not JSON", legacyHandshake + "> nonsense", []rule{clientOutput}},
		{"not JSON, server", legacyHandshake + "< nonsense", []rule{serverOutput}},
		{"repeated id", legacyHandshake + legacyCall + "\n" + legacyResult + "\n" + legacyCall + "\n" + legacyResult, []rule{clientID}},
		{"fractional id", legacyHandshake + strings.ReplaceAll(legacyCall+"\n"+legacyResult, `"id":2`, `"id":2.5`), []rule{clientID, clientSchema}},
		{"second handshake", legacyHandshake + strings.ReplaceAll(legacyHandshake, `"id":1`, `"id":2`), []rule{clientHandshake, clientHandshake}},
		{"request before initialized", strings.Join(strings.Split(legacyHandshake, "\n")[:3], "\n") + "\n" + legacyCall + "\n" + legacyResult, []rule{clientHandshake}},
		{"modern request after the handshake", legacyHandshake + modernCall + "\n" + modernResult, []rule{clientEra}},
		{"handshake after a modern result", modernDiscover + strings.ReplaceAll(legacyHandshake, `"id":1`, `"id":2`), []rule{clientEra}},
		{"modern ping", modernDiscover + strings.Replace(modernCall, "tools/call", "ping", 1) + "\n" + modernResult, []rule{clientEra, clientSchema}},
		{"no metadata", modernDiscover + legacyCall + "\n" + legacyResult, []rule{clientMeta, clientSchema, serverSchema}},
		{"cancellation of an unknown request", legacyHandshake + `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, []rule{clientCancel}},
		{"response to no request", legacyHandshake + `> {"jsonrpc":"2.0","id":7,"result":{}}`, []rule{clientResponse}},
		{"modern response of the client", modernDiscover + `> {"jsonrpc":"2.0","id":7,"result":{}}`, []rule{clientResponse}},
		{"no response of the client", legacyHandshake + `< {"jsonrpc":"2.0","id":"r","method":"roots/list"}`, []rule{clientResponse}},
		{"changed state", modernDiscover + modernInputRequired + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{"r":{"roots":[]}},"requestState":"a&lt;b",` + rootsMeta + `}}` + modernRetryResult, []rule{clientRetry}},
		{"changed params", modernDiscover + modernInputRequired + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"u","arguments":{},"inputResponses":{"r":{"roots":[]}},"requestState":"a<b",` + rootsMeta + `}}` + modernRetryResult, []rule{clientRetry}},
		{"missing input response", modernDiscover + modernInputRequired + `> {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{},"requestState":"a<b",` + rootsMeta + `}}` + modernRetryResult, []rule{clientRetry}},
		{"token in use", legacyHandshake + strings.NewReplacer(`"arguments":{}`, `"arguments":{},"_meta":{"progressToken":"x"}`).Replace(legacyCall+"\n"+strings.Replace(legacyCall, `"id":2`, `"id":3`, 1)) + "\n" + legacyResult + "\n" + strings.Replace(legacyResult, `"id":2`, `"id":3`, 1), []rule{clientToken}},
		{"capability not declared by the server", legacyHandshake + `> {"jsonrpc":"2.0","id":2,"method":"prompts/list"}
< {"jsonrpc":"2.0","id":2,"result":{"prompts":[]}}`, []rule{clientCapability}},

		{"no response", legacyHandshake + legacyCall, []rule{serverResponse}},
		{"two responses", legacyHandshake + legacyCall + "\n" + legacyResult + "\n" + legacyResult, []rule{serverResponse}},
		{"error without a code", legacyHandshake + legacyCall + "\n" + `< {"jsonrpc":"2.0","id":2,"error":{"message":"x"}}`, []rule{serverResponse}},
		{"response to a canceled request", legacyHandshake + legacyCall + `
> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}
` + legacyResult, []rule{serverCancelled}},
		{"progress for no request", legacyHandshake + `< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":1}}`, []rule{serverProgress}},
		{"no resultType", modernDiscover + modernCall + "\n" + legacyResult, []rule{serverResultType, serverSchema}},
		{"legacy resultType", legacyHandshake + legacyCall + "\n" + modernResult, []rule{serverResultType}},
		{"no caching hints", strings.Replace(modernDiscover, `"ttlMs":0,`, "", 1), []rule{serverResultType, serverSchema}},
		{"legacy caching hints", legacyHandshake + legacyCall + "\n" + strings.Replace(legacyResult, `"content"`, `"ttlMs":0,"content"`, 1), []rule{serverLegacy}},
		{"modern request of the server", modernDiscover + `< {"jsonrpc":"2.0","id":"r","method":"roots/list"}`, []rule{serverRequest, serverRequest, clientResponse}},
		{"capability not declared by the client", legacyHandshake + `< {"jsonrpc":"2.0","id":"r","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}
> {"jsonrpc":"2.0","id":"r","error":{"code":-32601,"message":"no"}}`, []rule{serverRequest}},
		{"capability for input not declared", modernDiscover + modernCall + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}}`, []rule{serverRequest}},
		{"log without a requested level", modernDiscover + `< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, []rule{serverLogging}},
		{"log below the requested level", legacyHandshake + `> {"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}
< {"jsonrpc":"2.0","id":2,"result":{}}
< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, []rule{serverLogging}},
		{"change before the acknowledgment", modernDiscover + modernListen + "\n" + modernChange + "\n" + modernAck, []rule{serverListen}},
		{"change without a subscription", modernDiscover + modernListen + "\n" + modernAck + "\n" + `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, []rule{serverListen}},
		{"change of another kind", modernDiscover + modernListen + "\n" + modernAck + "\n" + strings.Replace(modernChange, "tools", "prompts", 1), []rule{serverListen}},
		{"changed type of the subscription id", modernDiscover + modernListen + "\n" + strings.Replace(modernAck, `Id":2`, `Id":"2"`, 1), []rule{serverListen}},
		{"update without a subscription", legacyHandshake + `< {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}`, []rule{serverListen}},
		{"invalid result", legacyHandshake + legacyCall + "\n" + `< {"jsonrpc":"2.0","id":2,"result":{"contents":[]}}`, []rule{serverSchema}},
		{"exit status 1", legacyHandshake + "! 1", []rule{serverExit}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			if openSchemas(t) == nil {
				want = slices.DeleteFunc(slices.Clone(want), func(r rule) bool { return r == clientSchema || r == serverSchema })
			}
			var got []rule
			for _, v := range auditTranscript(t, parseScript(tt.transcript), false) {
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

// parseScript makes a transcript from lines. Its exit status is 0, or 1 if the last line is "! 1".
func parseScript(text string) (events []event) {
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
