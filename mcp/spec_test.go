package mcp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"mcpwire/internal/test/specschema"
)

// A spec is the schema.json of one revision.
type spec struct {
	*specschema.Schema
	revision Revision
}

func openSpecs(t *testing.T) []*spec {
	t.Helper()
	var all []*spec
	for _, r := range Revisions() {
		all = append(all, &spec{specschema.Open(t, r.String(), nil), r})
	}
	return all
}

// at returns the schema below a schema by keys, or nil.
func at(schema any, keys ...string) any {
	for _, key := range keys {
		m, _ := schema.(map[string]any)
		schema = m[key]
	}
	return schema
}

// properties returns the names of all properties of a schema, including those of its references.
func (s *spec) properties(schema any) map[string]any {
	all := map[string]any{}
	add := func(more map[string]any) {
		for name, p := range more {
			all[name] = p
		}
	}
	if ref, ok := at(schema, "$ref").(string); ok {
		add(s.properties(s.Defs[ref[strings.LastIndexByte(ref, '/')+1:]]))
	}
	for _, keyword := range []string{"allOf", "anyOf"} {
		parts, _ := at(schema, keyword).([]any)
		for _, part := range parts {
			add(s.properties(part))
		}
	}
	own, _ := at(schema, "properties").(map[string]any)
	add(own)
	return all
}

// union reports whether a value must match only one of several schemas.
func (s *spec) union(schema any) bool {
	if ref, ok := at(schema, "$ref").(string); ok {
		return s.union(s.Defs[ref[strings.LastIndexByte(ref, '/')+1:]])
	}
	return at(schema, "anyOf") != nil
}

// renamedDefs are the definitions that have another name in Go.
var renamedDefs = map[string]string{
	"ResourceReference":       "ResourceTemplateReference",
	"ElicitRequestFormParams": "ElicitRequestParams", "ElicitRequestURLParams": "ElicitRequestParams",
	"TextResourceContents": "ResourceContents", "BlobResourceContents": "ResourceContents",
}

// paramsTypes are the types of params by definition of the request. Some revisions define them
// inline.
func paramsTypes(specs []*spec) map[string]string {
	types := map[string]string{}
	for _, s := range specs {
		for name, def := range s.Defs {
			if at(def, "properties", "method", "const") == nil {
				continue
			}
			if ref, ok := at(def, "properties", "params", "$ref").(string); ok {
				types[name] = ref[strings.LastIndexByte(ref, '/')+1:]
			} else if types[name] == "" {
				types[name] = name + "Params"
			}
		}
	}
	return types
}

// goTypes returns the types that the schema describes, by path.
func (s *spec) goTypes(params map[string]string) map[string]string {
	types := map[string]string{}
	for name, def := range s.Defs {
		switch typ := params[name]; {
		case typ != "" && at(def, "properties", "params") != nil:
			types[name+"/properties/params"] = typ
		case codecs[name] != nil:
			types[name] = name
		case codecs[renamedDefs[name]] != nil && at(def, "properties") != nil:
			types[name] = renamedDefs[name]
		}
		parts, _ := at(def, "properties", "error", "allOf").([]any)
		if len(parts) == 2 && at(parts[1], "properties", "data") != nil {
			types[name+"/properties/error/allOf/1/properties/data"] = strings.TrimSuffix(name, "Error") + "Data"
		}
	}
	return types
}

// find returns the schema at a path of goTypes.
func (s *spec) find(path string) any {
	var schema any = s.Defs
	for key := range strings.SplitSeq(path, "/") {
		if list, ok := schema.([]any); ok {
			schema = list[key[0]-'0']
		} else {
			schema = at(schema, key)
		}
	}
	return schema
}

// baseMembers are allowed in all params and results, but are omitted in inline definitions.
var baseMembers = []string{"_meta"}

// TestAppendRevision shows that appendRevision encodes exactly the members in the schema of each
// revision for a full value.
func TestAppendRevision(t *testing.T) {
	specs := openSpecs(t)
	params := paramsTypes(specs)
	checked := map[string]bool{}
	for _, s := range specs {
		for path, typ := range s.goTypes(params) {
			checked[typ] = true
			for variant := range variants(typ) {
				v := filled(t, typ, variant)
				text := v.appendRevision(nil, s.revision)
				if of(path, variant) {
					s.Check(t, path, string(text))
					s.checkMembers(t, path, variant, text)
				}
			}
		}
	}
	for typ := range codecs {
		if !checked[typ] && !slices.Contains(inPlace, typ) {
			t.Errorf("%s is in no schema", typ)
		}
	}
}

// inPlace are the types without their own definition: they are checked within others, or belong to
// the tasks extension.
var inPlace = []string{
	"ClientTaskRequests", "ClientTasksCapability", "CompleteArgument", "CompleteContext", "Completion", "ElicitationCapability", "ElicitationTaskRequests",
	"PromptsCapability", "ResourcesCapability", "RootsCapability", "SamplingCapability", "SamplingTaskRequests", "ServerTaskRequests",
	"ServerTasksCapability", "ToolTaskRequests", "ToolsCapability",
	"DetailedTask", "ExtensionCreateTaskResult", "ExtensionTask", "UpdateTaskRequestParams",
}

// checkMembers compares the members of an object, and of those within it, with the properties of
// the schema.
func (s *spec) checkMembers(t *testing.T, path string, variant int, text []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	s.compareMembers(t, path, s.find(path), value)
}

func (s *spec) compareMembers(t *testing.T, path string, schema, value any) {
	t.Helper()
	object, ok := value.(map[string]any)
	properties := s.properties(schema)
	if !ok || len(properties) == 0 || strings.HasSuffix(path, ".inputSchema") || strings.HasSuffix(path, ".outputSchema") || strings.HasSuffix(path, ".requestedSchema") {
		return // the last three are JSON text
	}
	if !s.union(schema) {
		for name := range properties {
			if _, ok := object[name]; !ok {
				t.Errorf("%v, %s: member %s is missing", s.revision, path, name)
			}
		}
	}
	for name, member := range object {
		sub, ok := properties[name]
		if !ok && !slices.Contains(baseMembers, name) && !slices.Contains(beyondSchema, name) {
			t.Errorf("%v, %s: member %s is not defined in this revision", s.revision, path, name)
			continue
		}
		if name != "_meta" {
			s.compareMembers(t, path+"."+name, sub, member)
		}
	}
}

// beyondSchema are members that are encoded although the schema does not define them: extensions to
// all revisions, and the filter of the tasks extension.
var beyondSchema = []string{"extensions", "taskIds"}
