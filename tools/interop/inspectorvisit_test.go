package interop

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pinnedEras are the eras without auto.
var pinnedEras = slices.DeleteFunc(slices.Clone(inspectorEras), func(era inspectorEra) bool { return era.name == "auto" })

// TestInspectorVisit runs single commands of Inspector on the everything server. Each has its own
// session and process.
func TestInspectorVisit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		check  func(t *testing.T, result []byte)
	}{
		{"resources", []string{"--method", "resources/list"}, 0, func(t *testing.T, result []byte) {
			checkNames(t, result, "resources", "uri", append([]string{askedURI}, surfaceResources...))
		}},
		{"templates", []string{"--method", "resources/templates/list"}, 0, func(t *testing.T, result []byte) {
			checkNames(t, result, "resourceTemplates", "uriTemplate", []string{itemTemplate})
		}},
		{"prompts", []string{"--method", "prompts/list"}, 0, func(t *testing.T, result []byte) {
			checkNames(t, result, "prompts", "name", append([]string{"asked"}, surfacePrompts...))
		}},
		{"tools", []string{"--method", "tools/list", "--strict"}, 0, func(t *testing.T, result []byte) {
			checkNames(t, result, "tools", "name", append([]string{"interview", "work"}, surfaceTools...))
		}},
		{"text", []string{"--method", "resources/read", "--uri", greetingURI}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"contents":[{"uri":"test://greeting","mimeType":"text/plain","text":"hello \u2028 w\u00f6rld"}]}`)
		}},
		{"blob", []string{"--method", "resources/read", "--uri", logoURI}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"contents":[{"uri":"test://logo","mimeType":"image/png","blob":"`+logoText+`"}]}`)
		}},
		{"template", []string{"--method", "resources/read", "--uri", itemURI}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"contents":[{"uri":"test://items/7","mimeType":"text/plain","text":"item 7"}]}`)
		}},
		{"unknown resource", []string{"--method", "resources/read", "--uri", missingItem}, 1, nil},
		{"prompt", []string{"--method", "prompts/get", "--prompt-name", "greet", "--prompt-args", "name=Ada", "style=formal"}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"messages":[{"role":"user","content":{"type":"text","text":"Greet Ada in a formal way."}},
				{"role":"assistant","content":{"type":"text","text":"Hello, Ada!"}}]}`)
		}},
		{"missing argument", []string{"--method", "prompts/get", "--prompt-name", "greet"}, 1, nil},
		{"about", []string{"--method", "initialize"}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"instructions":"`+instructions+`"}`)
		}},
		{"roots", []string{"--method", "tools/call", "--tool-name", "roots"}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"content":[{"type":"text","text":""}]}`) // Inspector has no roots
		}},
		{"task", []string{"--method", "tools/call", "--tool-name", "work", "--tool-args-json", `{"text":"a task","for_ms":50}`}, 0, func(t *testing.T, result []byte) {
			checkMembers(t, result, `{"content":[{"type":"text","text":"worked on a task"}]}`)
		}},
	} {
		for _, era := range pinnedEras {
			t.Run(tt.name+" "+era.name, func(t *testing.T) {
				t.Parallel()
				s := newProgram(t, everythingVerb)
				status, out := inspect(t, s, era.name, tt.args...)
				if status != tt.status {
					t.Errorf("status = %d, want %d\n%s", status, tt.status, out)
				}
				s.audit(1)
				if tt.check == nil {
					return
				}
				tt.check(t, resultOf(t, out))
			})
		}
	}
}

// TestInspectorRejected runs commands of Inspector that each era rejects in a different way: input
// requests without the capability, and removed methods.
func TestInspectorRejected(t *testing.T) {
	for _, tt := range []struct {
		name           string
		args           []string
		legacy, modern int // status
	}{
		{"input request of a tool", []string{"--method", "tools/call", "--tool-name", "ask"}, inspectorToolError, 1},
		{"input request of a prompt", []string{"--method", "prompts/get", "--prompt-name", "asked"}, 1, 1},
		{"log level", []string{"--method", "logging/setLevel", "--log-level", "info"}, 0, 1},
	} {
		for _, era := range pinnedEras {
			t.Run(tt.name+" "+era.name, func(t *testing.T) {
				t.Parallel()
				s := newProgram(t, everythingVerb)
				want := tt.legacy
				if era.modern {
					want = tt.modern
				}
				if status, out := inspect(t, s, era.name, tt.args...); status != want {
					t.Errorf("status = %d, want %d\n%s", status, want, out)
				}
				s.audit(1)
			})
		}
	}
}

// checkNames compares the names in a list.
func checkNames(t *testing.T, result []byte, list, member string, want []string) {
	t.Helper()
	var lists map[string]json.RawMessage
	var items []map[string]any
	if err := json.Unmarshal(result, &lists); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(lists[list], &items); err != nil {
		t.Fatalf("decode %s: %v in %s", list, err, result)
	}
	var got []string
	for _, item := range items {
		name, _ := item[member].(string)
		got = append(got, name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(sorted(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", list, diff)
	}
}

// checkMembers compares the members of a result that want has.
func checkMembers(t *testing.T, result []byte, want string) {
	t.Helper()
	var wanted, got map[string]any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(result, &got); err != nil {
		t.Fatal(err)
	}
	for name := range got {
		if _, ok := wanted[name]; !ok {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}
