package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// specDir is a directory outside the repository with the specification's schema.json of each
// revision. Without it, messages are not validated.
const specDir = "../../../shared/spec"

// A schemaSet has the schemas of all revisions.
type schemaSet struct {
	mu       sync.Mutex
	docs     map[string]*schemaDoc // by revision
	compiled map[string]*schema.Validator
}

// A schemaDoc is the schema.json of one revision.
type schemaDoc struct {
	defs  string                     // the name of the member with the definitions
	all   map[string]json.RawMessage // the definitions by name
	names map[string]string          // the names of definitions by method
}

var schemasOnce = sync.OnceValues(readSchemas)

// openSchemas returns the schemas, or nil if specDir does not exist.
func openSchemas(t *testing.T) *schemaSet {
	t.Helper()
	set, err := schemasOnce()
	if err != nil {
		t.Fatal(err)
	}
	if set == nil {
		t.Logf("messages are not validated against the specification's schemas: %s does not exist", specDir)
	}
	return set
}

func readSchemas() (*schemaSet, error) {
	if _, err := os.Stat(specDir); os.IsNotExist(err) {
		return nil, nil
	}
	set := &schemaSet{docs: map[string]*schemaDoc{}, compiled: map[string]*schema.Validator{}}
	for _, revision := range append([]string{modern}, legacyRevisions...) {
		text, err := os.ReadFile(filepath.Join(specDir, revision, "schema.json"))
		if err != nil {
			return nil, err
		}
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(text, &parts); err != nil {
			return nil, err
		}
		doc := &schemaDoc{defs: "$defs", names: map[string]string{}}
		if parts[doc.defs] == nil {
			doc.defs = "definitions"
		}
		if err := json.Unmarshal(parts[doc.defs], &doc.all); err != nil {
			return nil, err
		}
		for name, def := range doc.all {
			var d struct {
				Properties struct{ Method struct{ Const string } }
			}
			// A definition may be a boolean.
			if json.Unmarshal(def, &d) == nil && d.Properties.Method.Const != "" && name != "ClientNotification" {
				doc.names[d.Properties.Method.Const] = name
			}
		}
		set.docs[revision] = doc
	}
	return set, nil
}

// check validates a message against the schema of its revision; a response has the revision of its
// request. It must be called before the auditor takes the message.
func (s *schemaSet) check(a *auditor, m *message, r rule) {
	if s == nil {
		return
	}
	open := a.open
	if r == clientSchema {
		open = a.openToClient
	}
	revision, name, value := modern, "", json.RawMessage(m.raw)
	if a.initSent {
		revision = a.revision
	}
	switch p := open[string(m.ID)]; {
	case m.Method == "initialize":
		revision = latestLegacy // the requested revision may be any
		fallthrough
	case m.Method != "":
		if revision == "" {
			revision = latestLegacy // a ping during the handshake
		}
		if s.extension(m) {
			return
		}
		if name = s.docs[revision].names[m.Method]; name == "" {
			a.violated(r, "unknown method in %s: %s", revision, m.raw)
			return
		}
	case m.Result == nil || p == nil:
		return // other rules check errors
	default:
		if p.Method == "initialize" {
			revision = m.result.Revision
		}
		if name, value = s.resultName(revision, p, m), m.Result; name == "" {
			return
		}
	}
	if s.docs[revision] == nil {
		a.violated(r, "unknown revision %q: %s", revision, m.raw)
		return
	}
	if err := s.validate(revision, name, value); err != nil {
		a.violated(r, "%s of %s: %v: %.2000s", name, revision, err, m.raw)
	}
}

// extension reports whether a message belongs to the tasks extension, which the schema does not
// cover.
func (s *schemaSet) extension(m *message) bool {
	modernTask := strings.HasPrefix(m.Method, "tasks/") && m.params.Meta.Revision != ""
	return modernTask || m.Method == "notifications/tasks"
}

// resultName returns the name of the definition of a result. Empty means that it has none.
func (s *schemaSet) resultName(revision string, p *pending, m *message) string {
	doc := s.docs[revision]
	if doc == nil {
		return "InitializeResult"
	}
	switch {
	case s.extension(p.message) || m.result.ResultType == "task":
		return ""
	case m.result.ResultType == "input_required":
		return "InputRequiredResult"
	case m.result.Task != nil:
		return "CreateTaskResult"
	}
	name := strings.TrimSuffix(doc.names[p.Method], "Request") + "Result"
	if doc.all[name] == nil {
		return "EmptyResult"
	}
	return name
}

// validate validates a value against a definition.
func (s *schemaSet) validate(revision, name string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := revision + " " + name
	v := s.compiled[key]
	if v == nil {
		doc := s.docs[revision]
		dialect := "https://json-schema.org/draft/2020-12/schema"
		if doc.defs == "definitions" {
			dialect = "http://json-schema.org/draft-07/schema#"
		}
		text, err := json.Marshal(map[string]any{"$schema": dialect, "$ref": "#/" + doc.defs + "/" + name, doc.defs: doc.all})
		if err != nil {
			return err
		}
		if v, err = schema.Compile(text, fullschema.Engine); err != nil {
			return err
		}
		s.compiled[key] = v
	}
	return v.Validate(value)
}
