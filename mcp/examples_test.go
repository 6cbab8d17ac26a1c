package mcp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/specschema"
	"mcpwire/jsonrpc"
)

// TestExamples shows that each example of the specification is decoded into its type and encoded as
// the same JSON value.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(specschema.Dir(t), "2026-07-28/examples/*/*.json"))
	if err != nil || len(paths) < 100 {
		t.Fatalf("%d examples, %v", len(paths), err)
	}
	params := paramsTypes(openSpecs(t))
	for _, path := range paths {
		kind := filepath.Base(filepath.Dir(path))
		if strings.HasSuffix(kind, "Schema") {
			continue // part of a requestedSchema, which is JSON text
		}
		t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, text, recode(t, kind, text, params))
		})
	}
}

// recode decodes and encodes an example of a definition.
func recode(t *testing.T, kind string, text []byte, params map[string]string) []byte {
	switch {
	case codecs[renamedDefs[kind]] != nil:
		return again(t, renamedDefs[kind], text)
	case codecs[kind] != nil:
		return again(t, kind, text)
	case kind == "InputRequests":
		wrapped := again(t, "InputRequiredResult", append(append([]byte(`{"resultType":"input_required","inputRequests":`), text...), '}'))
		return member(t, wrapped, "inputRequests")
	case kind == "InputResponses":
		wrapped := again(t, "CallToolRequestParams", append(append([]byte(`{"name":"n","inputResponses":`), text...), '}'))
		for key, response := range members(t, text) {
			equalJSON(t, response, again(t, map[string]string{"github_login": "ElicitResult", "capital_of_france": "CreateMessageResult"}[key], response))
		}
		return member(t, wrapped, "inputResponses")
	case members(t, text)["code"] != nil: // an error object
		m := jsonrpc.Message{Kind: jsonrpc.KindError, Error: text}
		return member(t, jsonrpc.AppendError(nil, nil, m.Err(), false), "error")
	case members(t, text)["jsonrpc"] == nil: // a request within a result
		var r InputRequest
		if err := r.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		if r.Params != nil {
			r.Params = again(t, params[kind], r.Params)
		}
		return r.appendRevision(nil, RevisionNone)
	}
	return envelope(t, kind, text, params)
}

// envelope is recode for a whole message.
func envelope(t *testing.T, kind string, text []byte, params map[string]string) []byte {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(text, &m, 0); err != nil {
		t.Fatal(err)
	}
	switch m.Kind {
	case jsonrpc.KindRequest:
		return jsonrpc.AppendRequest(nil, m.ID, string(m.Method), again(t, params[kind], m.Params))
	case jsonrpc.KindNotification:
		if m.Params == nil {
			return jsonrpc.AppendNotification(nil, string(m.Method), nil)
		}
		return jsonrpc.AppendNotification(nil, string(m.Method), again(t, params[kind], m.Params))
	case jsonrpc.KindResponse:
		return jsonrpc.AppendResult(nil, m.ID, again(t, strings.TrimSuffix(kind, "Response"), m.Result))
	case jsonrpc.KindError:
		e := m.Err()
		if typ := strings.TrimSuffix(kind, "Error") + "Data"; codecs[typ] != nil {
			e.Data = again(t, typ, e.Data)
		}
		return jsonrpc.AppendError(nil, m.ID, e, false)
	}
	t.Fatalf("a %v", m.Kind)
	return nil
}

// again decodes a text into a type and encodes it.
func again(t *testing.T, typ string, text []byte) []byte {
	t.Helper()
	if codecs[typ] == nil {
		t.Fatalf("no type %s", typ)
	}
	v := codecs[typ]()
	if err := v.UnmarshalJSON(text); err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	if extra := reflect.ValueOf(v).Elem().FieldByName("Extra"); extra.Len() > 0 && string(extra.Bytes()) != `{"isError":false}` {
		t.Errorf("%s: Extra is %s", typ, extra.Bytes())
	}
	return v.appendRevision(nil, RevisionNone)
}

func members(t *testing.T, text []byte) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return m
}

func member(t *testing.T, text []byte, name string) []byte { return members(t, text)[name] }

// equalJSON compares JSON values.
func equalJSON(t testing.TB, want, got []byte) {
	t.Helper()
	if diff := cmp.Diff(decodeJSON(t, want), decodeJSON(t, got)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// decodeJSON preserves the text of numbers.
func decodeJSON(t testing.TB, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}
