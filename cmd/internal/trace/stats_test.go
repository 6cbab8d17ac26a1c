package trace

import (
	"strings"
	"testing"
)

func TestDefinitionTokens(t *testing.T) {
	table := newStatTable()
	s, other := table.get("shop", "a", true), table.get("shop", "b", true)
	large := `{"name":"` + strings.Repeat("b ", maxDefinitionBytes/2) + `"}`
	for _, tt := range []struct {
		stat       *Stat
		definition string
		want       int
	}{
		{s, `{"name":"a", "title":"not counted"}`, 5},
		{s, `{"name":"a", "title":"not counted"}`, 5},
		{s, `{"name":"a","description":"Adds two numbers."}`, 12},
		{other, large, len(large) / 4},
		{other, `{"name":"b"}`, 5},
	} {
		table.define(tt.stat, []byte(tt.definition))
		for range 2 {
			if got := tt.stat.DefinitionTokens(); got != tt.want {
				t.Errorf("tokens of %.60s = %d, want %d", tt.definition, got, tt.want)
			}
		}
	}
	if want := len(s.definition) + len(other.definition); table.definitionBytes != want {
		t.Errorf("%d bytes of definitions are kept, want %d", table.definitionBytes, want)
	}
	if got := new(Stat).DefinitionTokens(); got != 0 {
		t.Errorf("without a list: %d tokens", got)
	}
}
