package targets

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

func TestConvert(t *testing.T) {
	for _, tt := range []struct {
		kind, text, want string
		ok               bool
	}{
		{"integer", "12", "12", true},
		{"integer", "-0", "-0", true},
		{"integer", "012", `"012"`, false},
		{"integer", "1.0", `"1.0"`, false},
		{"integer", "1e3", `"1e3"`, false},
		{"integer", " 1", `" 1"`, false},
		{"integer", "", `""`, false},
		{"integer", "12345678901234567890123", "12345678901234567890123", true},
		{"number", "1.50", "1.50", true},
		{"number", "NaN", `"NaN"`, false},
		{"boolean", "true", "true", true},
		{"boolean", "True", `"True"`, false},
		{"string", "12", `"12"`, true},
		{"", "12", `"12"`, true},
		{"array", "[1]", `"[1]"`, false},
	} {
		got, ok := convert(tt.kind, tt.text)
		if string(got) != tt.want || ok != tt.ok {
			t.Errorf("convert(%s, %q) = %s, %v, want %s, %v", tt.kind, tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

// answering is an AskFunc that returns answers in order, and records the questions.
func answering(asked *strings.Builder, lines ...string) AskFunc {
	return func(_ context.Context, prompt string) (string, error) {
		asked.WriteString(prompt)
		if len(lines) == 0 {
			return "", io.EOF
		}
		line := lines[0]
		lines = lines[1:]
		asked.WriteString(line + "\n")
		return line, nil
	}
}

func TestForm(t *testing.T) {
	const fields = `{"type":"object","required":["name","tags"],"properties":{
		"name":{"type":"string","minLength":2,"title":"Full name"},
		"age":{"type":"integer","minimum":0},
		"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}],"default":"l"},
		"tags":{"type":"array","items":{"type":"string","enum":["a","b","c"]},"maxItems":2}}}`
	for _, tt := range []struct {
		name    string
		answers []string
		want    string
	}{
		{"all", []string{"Ann", "7", "small", "1, c", "y"}, `accept {"name":"Ann","age":7,"size":"s","tags":["a","c"]}`},
		{"defaults", []string{"Ann", "", "", "b", ""}, `accept {"name":"Ann","size":"l","tags":["b"]}`},
		{"mended", []string{"", "A", "Ann", "x", "-1", "1", "3", "2", "a,b,c", "a", "y"}, `accept {"name":"Ann","age":1,"size":"l","tags":["a"]}`},
		{"back", []string{"Ann", ":back", "Bob", "", "", "a", "y"}, `accept {"name":"Bob","size":"l","tags":["a"]}`},
		{"edited", []string{"Ann", "", "", "a", "e", "", "9", "", "", "y"}, `accept {"name":"Ann","age":9,"size":"l","tags":["a"]}`},
		{"declined", []string{"Ann", ":decline"}, "decline "},
		{"declined at the end", []string{"Ann", "", "", "a", "d"}, "decline "},
		{"cancelled", []string{":cancel"}, "cancel "},
		{"end of input", []string{"Ann"}, "cancel "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked strings.Builder
			f := newForm("srv", &mcp.ElicitRequestParams{Message: "Who\x1b[A?", RequestedSchema: json.RawMessage(fields)})
			r, err := f.fill(t.Context(), answering(&asked, tt.answers...))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Action) + " " + string(r.Content); got != tt.want {
				t.Errorf("got  %s\nwant %s\n%s", got, tt.want, asked.String())
			}
			if !strings.Contains(asked.String(), `The server srv requests input: Who\x1b[A?`) {
				t.Errorf("asked %q", asked.String())
			}
		})
	}
}

// TestFormBadDefault shows that a default that violates its own schema is neither offered nor sent.
func TestFormBadDefault(t *testing.T) {
	for _, tt := range []struct {
		name, field, required string
		answers               []string
		want                  string
	}{
		{"optional", `{"type":"string","minLength":3,"default":"x"}`, "", []string{"", "y"}, `accept {}`},
		{"required", `{"type":"string","minLength":3,"default":"x"}`, `"a"`, []string{"", "xyz", "y"}, `accept {"a":"xyz"}`},
		{"another type", `{"type":"integer","default":"7"}`, "", []string{"", "y"}, `accept {}`},
		{"null", `{"type":"boolean","default":null}`, "", []string{"", "y"}, `accept {}`},
		{"no option", `{"type":"string","enum":["s","l"],"default":"m"}`, "", []string{"", "y"}, `accept {}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked strings.Builder
			f := newForm("srv", &mcp.ElicitRequestParams{Message: "m", RequestedSchema: json.RawMessage(`{"type":"object","required":[` + tt.required + `],"properties":{"a":` + tt.field + `}}`)})
			r, err := f.fill(t.Context(), answering(&asked, tt.answers...))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Action) + " " + string(r.Content); got != tt.want {
				t.Errorf("got %s, want %s\n%s", got, tt.want, asked.String())
			}
			if !strings.Contains(asked.String(), "is invalid: ") {
				t.Errorf("asked %q, which does not mention the default", asked.String())
			}
		})
	}
}

func TestCommandName(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"node", "server.js", "--api-key", "secret"}, "node server.js"},
		{[]string{"crash", "--api-key", "secret"}, "crash"},
		{[]string{"npx"}, "npx"},
	} {
		if got := CommandName(tt.command); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.command, got, tt.want)
		}
	}
}

// TestPropertyValues checks which values completion offers for an argument.
func TestPropertyValues(t *testing.T) {
	for _, tt := range []struct {
		schema string
		want   []string
	}{
		{`{}`, nil},
		{`true`, nil},
		{`{"type":"string"}`, nil},
		{`{"type":"boolean"}`, []string{"true", "false"}},
		{`{"type":"string","enum":["a","b c"]}`, []string{"a", "b c"}},
		{`{"enum":["a",1,null]}`, []string{"a", "1", "null"}},
		{`{"type":"string","oneOf":[{"const":"a","title":"A"},{"title":"B"}]}`, []string{"a"}},
		{`{"type":"array","items":{"enum":["a","b"]}}`, []string{"a", "b"}},
	} {
		list, _ := Properties(json.RawMessage(`{"properties":{"x":` + tt.schema + `}}`))
		if diff := cmp.Diff(tt.want, list[0].Values()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.schema, diff)
		}
	}
}
