package otlp

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

func TestAppend(t *testing.T) {
	start := time.Unix(1, 2)
	full := &Span{
		Trace: strings.Repeat("ab", 16), ID: strings.Repeat("cd", 8), Parent: strings.Repeat("ef", 8), Name: `a"b`, Kind: Client, Start: start, End: start.Add(time.Second),
		Attributes: []Attribute{{Key: "k", Value: "v"}, {Key: "n", Value: "9007199254740993", Integer: true}},
		Events:     []Event{{Time: start, Name: "e"}, {Time: start, Name: "f", Attributes: []Attribute{{Key: "x", Value: ""}}}},
		Failed:     true, Failure: "broken",
	}
	plain := &Span{Trace: strings.Repeat("1", 32), ID: strings.Repeat("2", 16), Name: "ping", Kind: Server, Start: start, End: start}
	const head = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},"scopeSpans":[{"scope":{"name":"scope","version":"1"},"spans":[`
	const fullText = `{"traceId":"abababababababababababababababab","spanId":"cdcdcdcdcdcdcdcd","parentSpanId":"efefefefefefefef","name":"a\"b","kind":3,` +
		`"startTimeUnixNano":"1000000002","endTimeUnixNano":"2000000002",` +
		`"attributes":[{"key":"k","value":{"stringValue":"v"}},{"key":"n","value":{"intValue":"9007199254740993"}}],` +
		`"events":[{"timeUnixNano":"1000000002","name":"e","attributes":[]},{"timeUnixNano":"1000000002","name":"f","attributes":[{"key":"x","value":{"stringValue":""}}]}],` +
		`"status":{"code":2,"message":"broken"}}`
	const plainText = `{"traceId":"11111111111111111111111111111111","spanId":"2222222222222222","name":"ping","kind":2,"startTimeUnixNano":"1000000002","endTimeUnixNano":"1000000002","attributes":[]}`
	for _, tt := range []struct {
		spans []*Span
		want  string
	}{
		{nil, ""}, {[]*Span{full}, fullText}, {[]*Span{plain}, plainText}, {[]*Span{plain, full}, plainText + "," + fullText},
	} {
		got := string(Append([]byte("> "), []Attribute{{Key: "service.name", Value: "s"}}, "scope", "1", tt.spans))
		if diff := cmp.Diff("> "+head+tt.want+`]}]}]}`, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, tt := range []struct{ method, target, name, attributes string }{
		{mcp.MethodToolsCall, "t", "tools/call t", "gen_ai.operation.name=execute_tool gen_ai.tool.name=t"},
		{mcp.MethodToolsCall, "", "tools/call", "gen_ai.operation.name=execute_tool"},
		{mcp.MethodPromptsGet, "p", "prompts/get p", "gen_ai.prompt.name=p"},
		{mcp.MethodResourcesRead, "a:b", "resources/read", "mcp.resource.uri=a:b"},
		{mcp.MethodResourcesSubscribe, "a:b", "resources/subscribe", "mcp.resource.uri=a:b"},
		{mcp.MethodResourcesUnsubscribe, "a:b", "resources/unsubscribe", "mcp.resource.uri=a:b"},
		{mcp.MethodToolsList, "x", "tools/list", ""},
	} {
		var s Span
		s.Describe(tt.method, tt.target)
		got := ""
		for _, a := range s.Attributes[1:] {
			got += " " + a.Key + "=" + a.Value
		}
		if s.Name != tt.name || s.Attributes[0] != (Attribute{Key: "mcp.method.name", Value: tt.method}) || strings.TrimSpace(got) != tt.attributes {
			t.Errorf("%s %s: got %q with %v", tt.method, tt.target, s.Name, s.Attributes)
		}
	}
}
