package mcp

import (
	"encoding/json"
	"testing"

	"mcpwire/jsonrpc"
)

func TestRevision(t *testing.T) {
	names := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
	all := Revisions()
	if len(all) != len(names) || all[len(all)-1] != LatestRevision || all[len(all)-2] != LatestLegacyRevision {
		t.Fatalf("Revisions: got %v", all)
	}
	for i, r := range all {
		if r.String() != names[i] || r.Modern() != (i == 4) {
			t.Errorf("%d: got %v, modern %t", i, r, r.Modern())
		}
		if got, ok := ParseRevision(names[i]); got != r || !ok {
			t.Errorf("ParseRevision(%s): got %v, %t", names[i], got, ok)
		}
		text, err := json.Marshal(map[Revision]Revision{r: r})
		if want := `{"` + names[i] + `":"` + names[i] + `"}`; err != nil || string(text) != want {
			t.Errorf("Marshal: got %s, %v; want %s", text, err, want)
		}
		var back map[Revision]Revision
		if err := json.Unmarshal(text, &back); err != nil || back[r] != r {
			t.Errorf("Unmarshal: got %v, %v", back, err)
		}
	}
	all[0] = RevisionNone // the caller owns the slice
	if Revisions()[0] != Revision20241105 {
		t.Error("Revisions shares its slice")
	}
	for _, text := range []string{"", "none", "2024-11-5", "2024-11-05 ", "2027-01-01"} {
		if r, ok := ParseRevision(text); r != RevisionNone || ok {
			t.Errorf("ParseRevision(%q): got %v, %t", text, r, ok)
		}
		r := Revision20250618
		if err := r.UnmarshalText([]byte(text)); err == nil || r != Revision20250618 {
			t.Errorf("UnmarshalText(%q): got %v, %v", text, r, err)
		}
	}
	for _, r := range []Revision{RevisionNone, LatestRevision + 1, 255} {
		if _, err := r.MarshalText(); err == nil || r.String() != "none" {
			t.Errorf("%d: got %v, %v", r, r, err)
		}
	}
}

func TestLoggingLevel(t *testing.T) {
	names := []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
	for i, name := range names {
		l, ok := ParseLoggingLevel(name)
		if !ok || l != LevelDebug+LoggingLevel(i) || l.String() != name {
			t.Errorf("%s: got %v, %t", name, l, ok)
		}
	}
	for _, name := range []string{"", "Debug", "warn", "none"} {
		if l, ok := ParseLoggingLevel(name); ok || l != LevelNone {
			t.Errorf("%q: got %v", name, l)
		}
	}
	text, err := json.Marshal([]LoggingLevel{LevelDebug, LevelEmergency})
	if err != nil || string(text) != `["debug","emergency"]` {
		t.Errorf("Marshal: %s, %v", text, err)
	}
	var back []LoggingLevel
	if err := json.Unmarshal(text, &back); err != nil || len(back) != 2 || back[0] != LevelDebug || back[1] != LevelEmergency {
		t.Errorf("Unmarshal: %v, %v", back, err)
	}
	if _, err := LevelNone.MarshalText(); err == nil {
		t.Error("no level has a text")
	}
	if err := json.Unmarshal([]byte(`["loud"]`), &back); err == nil {
		t.Error("loud is a level")
	}
	if LevelNone.String() != "" || LoggingLevel(9).String() != "" || LoggingLevel(255).String() != "" {
		t.Error("an invalid level has a name")
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		err  *jsonrpc.Error
		code jsonrpc.Code
		data string
	}{
		{MissingRequiredClientCapability(ClientCapabilities{Elicitation: &ElicitationCapability{URL: json.RawMessage("{}")}}), CodeMissingRequiredClientCapability,
			`{"requiredCapabilities":{"elicitation":{"url":{}}}}`},
		{URLElicitationRequired(ElicitRequestParams{Message: "m", URL: "u", ElicitationID: "1"}), CodeURLElicitationRequired,
			`{"elicitations":[{"mode":"url","message":"m","url":"u","elicitationId":"1"}]}`},
	} {
		if tt.err.Code != tt.code || string(tt.err.Data) != tt.data || tt.err.Message == "" {
			t.Errorf("got %v, data %s; want %d, %s", tt.err, tt.err.Data, tt.code, tt.data)
		}
	}
}
