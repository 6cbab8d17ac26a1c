package mcp

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"mcpwire/jsonrpc"
)

// variants is the number of values of a type that together have every member.
func variants(typ string) int {
	switch typ {
	case "ElicitRequestParams", "ResourceContents", "CompleteRequestParams":
		return 2
	case "PromptMessage":
		return 5
	case "SamplingMessage", "CreateMessageResult":
		return 7
	}
	return 1
}

// of reports whether the schema at path describes the variant.
func of(path string, variant int) bool {
	switch {
	case path == "ResourceContents": // an abstract base
		return false
	case strings.HasPrefix(path, "ElicitRequestURL"), strings.HasPrefix(path, "Blob"):
		return variant == 1
	case strings.HasPrefix(path, "ElicitRequestForm"), strings.HasPrefix(path, "TextResource"), strings.HasPrefix(path, "ElicitRequest/"):
		return variant == 0
	}
	return true
}

// metaText is a valid _meta.
const metaText = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"t",` +
	`"io.modelcontextprotocol/subscriptionId":7,"io.modelcontextprotocol/serverInfo":{"name":"n","version":"v"},"com.example/x":"y"}`

// texts are the values of fields with restricted values, by type and field, or by field.
var texts = map[string]string{
	"Role": "user", "Audience": "assistant", "URI": "a:b", "URL": "https://example.com/", "Src": "data:,", "WebsiteURL": "https://example.com/", "URITemplate": "a:{b}", "Status": "working", "Theme": "dark", "CacheScope": "private", "Action": "accept", "IncludeContext": "none",
	"ToolChoice.Mode": "auto", "TaskSupport": "optional", "Mode": "form", "ResultType": "complete",
	"DetailedTask.ResultType": "complete", "InputRequest.Method": "roots/list",
}

// raws are the values of fields of JSON text.
var raws = map[string]string{
	"Meta": metaText, "Params": `{}`, "InputSchema": `{"type":"object","properties":{}}`, "OutputSchema": `{"type":"object","required":["a"]}`,
	"RequestedSchema": `{"type":"object","properties":{"a":{"type":"string"}}}`, "ElicitResult.Content": `{"a":"b","c":true}`,
}

// filled returns a value in which every field is set, except fields that exclude one another.
func filled(t testing.TB, typ string, variant int) codec {
	v := codecs[typ]()
	(&filler{t, variant}).value(reflect.ValueOf(v).Elem(), typ, "")
	switch v := v.(type) {
	case *ElicitRequestParams:
		if variant == 0 {
			v.URL, v.ElicitationID = "", ""
		} else {
			v.Mode, v.RequestedSchema = ElicitModeURL, nil
		}
	case *ResourceContents:
		fixContents(v, variant)
	case *EmbeddedResource:
		fixContents(&v.Resource, variant)
	case *URLElicitationRequiredData:
		v.Elicitations[0].Mode, v.Elicitations[0].RequestedSchema = ElicitModeURL, nil
	}
	return v
}

func fixContents(c *ResourceContents, variant int) {
	if variant == 0 {
		c.Blob = nil
	} else {
		c.Text = ""
	}
}

type filler struct {
	t       testing.TB
	variant int
}

func (f *filler) value(v reflect.Value, typ, field string) {
	text := func(table map[string]string, otherwise string) string {
		if s, ok := table[typ+"."+field]; ok {
			return s
		}
		if s, ok := table[field]; ok {
			return s
		}
		return otherwise
	}
	switch v.Interface().(type) {
	case json.RawMessage:
		if field != "Extra" {
			v.SetBytes([]byte(text(raws, `{"k":"v"}`)))
		}
		return
	case jsonrpc.ID:
		v.SetBytes([]byte(`"id"`))
		return
	case []byte:
		v.SetBytes([]byte("data"))
		return
	case []ContentBlock:
		for i := range 5 {
			v.Set(reflect.Append(v, reflect.ValueOf(f.block(i))))
		}
		return
	case SamplingContent:
		one := SamplingContent{f.block(f.variant)}
		if f.variant == 6 {
			one = SamplingContent{f.block(0), f.block(5), f.block(6)}
		}
		if f.variant == 3 || f.variant == 4 { // not allowed in sampling
			one = SamplingContent{f.block(5)}
		}
		v.Set(reflect.ValueOf(one))
		return
	case map[string]json.RawMessage:
		v.Set(reflect.ValueOf(map[string]json.RawMessage{"com.example/a": json.RawMessage(`{}`), "b": json.RawMessage(`{"action":"accept"}`)}))
		if field == "InputResponses" {
			v.Set(reflect.ValueOf(map[string]json.RawMessage{"b": json.RawMessage(`{"action":"accept"}`)}))
		}
		return
	case *jsonrpc.Error:
		v.Set(reflect.ValueOf(&jsonrpc.Error{Code: -1, Message: "m", Data: []byte(`[1]`)}))
		return
	}
	f.kind(v, typ, field, text(texts, "text of "+field))
}

func (f *filler) kind(v reflect.Value, typ, field, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.Set(reflect.ValueOf(LevelWarning))
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.value(v.Elem(), typ, field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.value(v.Index(0), typ, field)
	case reflect.Map:
		one := reflect.New(v.Type().Elem()).Elem()
		f.value(one, typ, field)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), one)
	case reflect.Struct:
		for i := range v.NumField() {
			f.value(v.Field(i), v.Type().Name(), v.Type().Field(i).Name)
		}
		if c, ok := v.Addr().Interface().(*ResourceContents); ok {
			fixContents(c, f.variant)
		}
	case reflect.Interface:
		switch v.Type() {
		case reflect.TypeFor[ContentBlock]():
			v.Set(reflect.ValueOf(f.block(f.variant)))
		case reflect.TypeFor[Reference]():
			ref := []codec{filled(f.t, "PromptReference", 0), filled(f.t, "ResourceTemplateReference", 0)}[f.variant]
			v.Set(reflect.ValueOf(ref).Elem())
		}
	default:
		f.t.Fatalf("%s.%s: no value for %v", typ, field, v.Type())
	}
}

// block returns one of seven kinds of content blocks.
func (f *filler) block(kind int) ContentBlock {
	typ := []string{"TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource", "ToolUseContent", "ToolResultContent"}[kind]
	return reflect.ValueOf(filled(f.t, typ, 0)).Elem().Interface().(ContentBlock)
}
