package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the schema and the table of fields in doc/gateway.md")

// docDir is the folder of the documents.
var docDir = filepath.Join("..", "..", "..", "..", "..", "doc")

// An object is a JSON object with its members in order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", m.name)
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// A generator generates a schema from Go types.
type generator struct {
	// docs are the comments of types and fields, by Type and Type.Field.
	docs map[string]string
	defs object
	done map[reflect.Type]bool
}

// comments returns the comments of the types and fields of the configuration.
func comments(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.TypeSpec)
			docs[spec.Name.Name] = oneLine(decl.Doc)
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						docs[spec.Name.Name+"."+name.Name] = oneLine(f.Doc)
					}
				}
			}
		}
	}
	return docs
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// text returns the comment of a field with the key in place of the Go name.
func (g *generator) text(of reflect.Type, f reflect.StructField) string {
	doc := g.docs[of.Name()+"."+f.Name]
	if rest, ok := strings.CutPrefix(doc, f.Name+" "); ok {
		doc = keyOf(f) + " " + rest
	}
	return doc
}

var (
	stringType = member{"type", "string"}
	nonEmpty   = object{stringType, {"minLength", 1}}
	reference  = object{stringType, {"pattern", "^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$"}}
	duration   = object{stringType, {"pattern", "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"}}
)

// rules are the constraints that the Go types do not express.
var rules = map[string]object{
	"Auth": {
		{"oneOf", []any{required("token"), required("issuers")}},
		{"dependentRequired", object{{"issuers", []string{"resource"}}, {"scopes", []string{"issuers"}}}},
	},
	"Upstream": {
		{"oneOf", []any{required("command"), required("url"), required("socket")}},
		{"dependentRequired", object{
			{"args", []string{"command"}}, {"env", []string{"command"}}, {"cwd", []string{"command"}},
			{"transport", []string{"url"}}, {"headers", []string{"url"}}, {"tls", []string{"url"}}, {"credentials", []string{"url"}},
		}},
		{"dependentSchemas", object{{"framing", object{{"not", required("url")}}}}},
	},
	"Credentials": {{"oneOf", []any{required("token"), required("client"), required("exchange"), required("login")}}},
	"Exchange":    {{"dependentRequired", object{{"id", []string{"secret"}}, {"secret", []string{"id"}}}}},
	"View":        {{"anyOf", []any{required("allow"), required("deny")}}},
}

func required(names ...string) object { return object{{"required", names}} }

// of returns the schema of a type. tag is the tag of the field.
func (g *generator) of(t reflect.Type, tag reflect.StructTag) object {
	switch t {
	case reflect.TypeFor[Duration]():
		return duration
	case reflect.TypeFor[Size]():
		return object{{"anyOf", []any{object{{"type", "integer"}, {"minimum", 0}}, object{stringType, {"pattern", "^[0-9]+[KMG]?$"}}}}}
	case reflect.TypeFor[Reference]():
		return reference
	case reflect.TypeFor[Value]():
		return object{stringType}
	case reflect.TypeFor[Texts]():
		return object{{"anyOf", []any{nonEmpty, object{{"type", "array"}, {"items", nonEmpty}, {"minItems", 1}}}}}
	case reflect.TypeFor[Values]():
		return object{{"type", "object"}, {"additionalProperties", object{stringType}}}
	case reflect.TypeFor[Upstreams]():
		return object{{"type", "object"}, {"minProperties", 1}, {"propertyNames", object{{"pattern", upstreamPattern}, {"maxLength", maxUpstreamName}}}, {"additionalProperties", g.of(reflect.TypeFor[Upstream](), "")}}
	case reflect.TypeFor[Listen](), reflect.TypeFor[Admin]():
		return object{{"anyOf", []any{nonEmpty, g.ref(t)}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.of(t.Elem(), tag)
	case reflect.Struct:
		return g.ref(t)
	case reflect.Slice:
		return object{{"type", "array"}, {"items", g.of(t.Elem(), "")}}
	case reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", g.of(t.Elem(), "")}}
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Float64:
		o := object{{"type", map[reflect.Kind]string{reflect.Int: "integer", reflect.Float64: "number"}[t.Kind()]}}
		if least := tag.Get("least"); least != "" {
			o = append(o, member{"minimum", json.Number(least)})
		}
		return o
	case reflect.String:
		if enum := tag.Get("enum"); enum != "" {
			return object{{"enum", strings.Fields(enum)}}
		}
		if p := tag.Get("pattern"); p != "" {
			return object{stringType, {"pattern", p}}
		}
		return nonEmpty
	}
	panic("no schema of " + t.String())
}

// ref returns a reference to the definition of a struct, which it adds.
func (g *generator) ref(t reflect.Type) object {
	if !g.done[t] {
		g.done[t] = true
		def := g.object(t)
		g.defs = append(g.defs, member{t.Name(), def})
	}
	return object{{"$ref", "#/$defs/" + t.Name()}}
}

// object returns the schema of a struct.
func (g *generator) object(t reflect.Type) object {
	var properties object
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		if keyOf(f) == "" {
			continue
		}
		properties = append(properties, member{keyOf(f), append(object{{"description", g.text(t, f)}}, g.of(f.Type, f.Tag)...)})
		if isRequired(f) {
			names = append(names, keyOf(f))
		}
	}
	o := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if names != nil {
		o = append(o, member{"required", names})
	}
	return append(o, rules[t.Name()]...)
}

// schema returns the published schema.
func schema(t *testing.T) []byte {
	t.Helper()
	g := &generator{docs: comments(t), done: map[reflect.Type]bool{}}
	root := g.object(reflect.TypeFor[Config]())
	head := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "A configuration of mcpwire gateway"},
		{"description", "See gateway.md. Generated from the types of the loader."},
	}
	text, err := json.MarshalIndent(append(append(head, root...), member{"$defs", g.defs}), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// fieldTables returns the tables of keys for doc/gateway.md.
func fieldTables(t *testing.T) string {
	t.Helper()
	docs := comments(t)
	g := &generator{docs: docs}
	var b strings.Builder
	for _, section := range []struct {
		key string
		of  reflect.Type
	}{
		{"", reflect.TypeFor[Config]()},
		{"listen", reflect.TypeFor[Listen]()},
		{"listen.tls", reflect.TypeFor[ServerTLS]()},
		{"auth", reflect.TypeFor[Auth]()},
		{"auth.issuers[]", reflect.TypeFor[Issuer]()},
		{"auth.issuers[].introspection", reflect.TypeFor[Introspection]()},
		{"login", reflect.TypeFor[Login]()},
		{"login.identity", reflect.TypeFor[LoginIdentity]()},
		{"upstreams.NAME", reflect.TypeFor[Upstream]()},
		{"upstreams.NAME.tls", reflect.TypeFor[ClientTLS]()},
		{"upstreams.NAME.credentials", reflect.TypeFor[Credentials]()},
		{"upstreams.NAME.credentials.client", reflect.TypeFor[ClientCredentials]()},
		{"upstreams.NAME.credentials.exchange", reflect.TypeFor[Exchange]()},
		{"upstreams.NAME.credentials.login", reflect.TypeFor[UpstreamLogin]()},
		{"upstreams.NAME.timeouts", reflect.TypeFor[Timeouts]()},
		{"upstreams.NAME.tools, upstreams.NAME.prompts, upstreams.NAME.resources", reflect.TypeFor[Filter]()},
		{"upstreams.NAME.limits, limits.upstream", reflect.TypeFor[UpstreamLimits]()},
		{"views[]", reflect.TypeFor[View]()},
		{"views[].match", reflect.TypeFor[Match]()},
		{"limits.perCaller", reflect.TypeFor[CallerLimits]()},
		{"admin", reflect.TypeFor[Admin]()},
	} {
		title := "Top level"
		if section.key != "" {
			title = "`" + strings.ReplaceAll(section.key, ", ", "`, `") + "`"
		}
		fmt.Fprintf(&b, "\n### %s\n\n| key | value | what it does |\n|---|---|---|\n", title)
		for i := range section.of.NumField() {
			f := section.of.Field(i)
			if keyOf(f) == "" {
				continue
			}
			what := strings.ReplaceAll(g.text(section.of, f), "|", `\|`)
			if isRequired(f) {
				what += " Required."
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", keyOf(f), valueOf(f), what)
		}
	}
	return b.String()
}

// valueOf describes the value of a field.
func valueOf(f reflect.StructField) string {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	least := f.Tag.Get("least")
	if least != "" {
		least = ", at least " + least
	}
	switch t {
	case reflect.TypeFor[Duration]():
		return "time" + least
	case reflect.TypeFor[Size]():
		return "size" + least
	case reflect.TypeFor[Reference]():
		return "secret"
	case reflect.TypeFor[Value]():
		return "text or secret"
	case reflect.TypeFor[Texts]():
		return "text or list of texts"
	case reflect.TypeFor[Values]():
		return "texts or secrets by name"
	case reflect.TypeFor[Path]():
		return "file"
	case reflect.TypeFor[Listen](), reflect.TypeFor[Admin]():
		return "text or object"
	case reflect.TypeFor[Upstreams]():
		return "objects by name"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "object"
	case reflect.Slice:
		if t.Elem() == reflect.TypeFor[Reference]() {
			return "list of secrets"
		}
		if t.Elem().Kind() == reflect.Struct {
			return "list of objects"
		}
		return "list of texts"
	case reflect.Map:
		return "texts by name"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Float64:
		return "number" + least
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		return "`" + strings.Join(strings.Fields(enum), "`, `") + "`"
	}
	return "text"
}

// The table of keys in the document is between these lines.
const (
	tableStart = "<!-- The tables of keys are generated: go generate ./cmd/internal/proxy/gateway/config -->\n"
	tableEnd   = "\n<!-- End of the tables of keys. -->\n"
)

// TestSchema checks that the schema and the tables in the document match the types, and that each
// field has a comment.
func TestSchema(t *testing.T) {
	want := schema(t)
	const file = "gateway.schema.json"
	page := filepath.Join(docDir, "gateway.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableStart)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		t.Fatalf("%s has no place for the tables of keys", page)
	}
	wantPage := before + tableStart + fieldTables(t) + tableEnd + after
	if *update {
		if err := os.WriteFile(file, want, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(page, []byte(wantPage), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" && !*update {
		t.Errorf("%s is not up to date: run go generate here (-want +got):\n%s", file, diff)
	}
	if diff := cmp.Diff(wantPage, string(text)); diff != "" && !*update {
		t.Errorf("%s is not up to date: run go generate here (-want +got):\n%s", page, diff)
	}
}

// TestFieldComments checks that the comment of each field begins with its name.
func TestFieldComments(t *testing.T) {
	docs := comments(t)
	for _, of := range structs(reflect.TypeFor[Config](), map[reflect.Type]bool{}) {
		for i := range of.NumField() {
			f := of.Field(i)
			name := of.Name() + "." + f.Name
			if keyOf(f) == "" {
				continue
			}
			if !strings.HasPrefix(docs[name], f.Name+" ") || !strings.HasSuffix(docs[name], ".") {
				t.Errorf("the comment of %s is %q, want sentences that begin with %s", name, docs[name], strconv.Quote(f.Name))
			}
		}
	}
}

// structs returns the structs that a type consists of.
func structs(t reflect.Type, seen map[reflect.Type]bool) []reflect.Type {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return structs(t.Elem(), seen)
	case reflect.Struct:
		if seen[t] || t.PkgPath() != reflect.TypeFor[Config]().PkgPath() {
			return nil
		}
		seen[t] = true
		list := []reflect.Type{t}
		for i := range t.NumField() {
			if keyOf(t.Field(i)) != "" {
				list = append(list, structs(t.Field(i).Type, seen)...)
			}
		}
		return list
	}
	return nil
}

// TestDocument checks that the configurations in the document are valid, for the loader and the
// schema.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docDir, "gateway.md"))
	if err != nil {
		t.Fatal(err)
	}
	validate := compileSchema(t)
	n := 0
	for rest := string(text); ; {
		_, block, ok := strings.Cut(rest, "\n```yaml\n")
		if !ok {
			break
		}
		block, rest, _ = strings.Cut(block, "```\n")
		if !strings.Contains(block, "upstreams:") {
			continue
		}
		n++
		if _, err := Parse("gateway.yaml", []byte(block)); err != nil {
			t.Errorf("the loader returned %v for\n%s", err, block)
		}
		if err := validate(block); err != nil {
			t.Errorf("the schema returned %v for\n%s", err, block)
		}
	}
	if n < 2 {
		t.Errorf("%d configurations in the document, want 2 or more", n)
	}
}
