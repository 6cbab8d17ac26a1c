package fullschema_test

import (
	"strings"
	"testing"

	"mcpwire/schema/fullschema"
)

// TestCheck shows that each schema is checked by its own dialect.
func TestCheck(t *testing.T) {
	const (
		draft4 = `"$schema":"http://json-schema.org/draft-04/schema#",`
		draft6 = `"$schema":"http://json-schema.org/draft-06/schema#",`
		draft7 = `"$schema":"http://json-schema.org/draft-07/schema#",`
		d2019  = `"$schema":"https://json-schema.org/draft/2019-09/schema",`
		d2020  = `"$schema":"https://json-schema.org/draft/2020-12/schema",`
		other  = `"$schema":"https://example.com/dialect",`
	)
	dialects := []string{"", draft4, draft6, draft7, d2019, d2020}
	for _, tt := range []struct {
		members string
		want    string // text of the error; empty for no error
	}{
		{`"type":"object"`, ""},
		{`"type":"strnig"`, "#/type: "},
		{`"properties":{"a":{"minLength":-1}}`, "#/properties/a/minLength: "},
		{`"$ref":"#/definitions/nope"`, "#/definitions/nope"},
		{`"properties":{"a":{"pattern":"("}}`, "("},
		{`"properties":{"a":{"pattern":"[a"}}`, "["},
		{`"properties":{"a":{"pattern":"a\\"}}`, "backslash"},
		{`"properties":{"a":{"pattern":"*"}}`, "repeat"},
		{`"properties":{"a":{"pattern":"^(?=a)(?!b)(?<=c)\\p{L}(?<n>x)[(*]?\\(a{2}$"}}`, ""},
		{`"patternProperties":{"(":{}}`, "("},
		{`"definitions":{"a":{"type":"string"}},"properties":{"b":{"$ref":"#/definitions/a"}}`, ""},
		{`"properties":{"b":{"$ref":"https://example.com/b.json"}}`, ""},
		{`"required":"a"`, "#/required: "},
	} {
		for _, d := range dialects {
			text := "{" + d + tt.members + "}"
			checkFault(t, text, tt.want)
		}
		checkFault(t, "{"+other+tt.members+"}", "")
	}
	for _, tt := range []struct{ text, want string }{
		{`{` + draft4 + `"minimum":1,"exclusiveMinimum":true}`, ""},
		{`{` + draft7 + `"minimum":1,"exclusiveMinimum":true}`, "#/exclusiveMinimum: "},
		{`{"minimum":1,"exclusiveMinimum":true}`, "#/exclusiveMinimum: "},
		{`{` + draft4 + `"exclusiveMinimum":1}`, "minimum"},
		{`{` + draft7 + `"items":[{"type":"string"}]}`, ""},
		{`{"items":[{"type":"string"}]}`, "#/items: "},
		{`{"maxLength":1e100000}`, ""},
		{`{"type":"strnig","description":"` + strings.Repeat("x", 1<<16) + `"}`, ""},
		{`true`, ""},
		{`{`, "JSON"},
	} {
		checkFault(t, tt.text, tt.want)
	}
}

func checkFault(t *testing.T, text, want string) {
	t.Helper()
	err := fullschema.Check([]byte(text))
	switch {
	case want == "" && err != nil:
		t.Errorf("%.200s: %v", text, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%.200s: got %v, want %s", text, err, want)
	}
}
