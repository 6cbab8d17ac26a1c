package environ

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInherit(t *testing.T) {
	t.Setenv("ENVIRON_TEST_A", "1=2")
	t.Setenv("ENVIRON_TEST_B", "")
	t.Setenv("ENVIRON_TESTC", "3")
	for _, tt := range []struct {
		name        string
		allow, deny []string
		want        string
	}{
		{"everything", nil, nil, "ENVIRON_TESTC=3 ENVIRON_TEST_A=1=2 ENVIRON_TEST_B="},
		{"nothing", []string{}, nil, ""},
		{"a name", []string{"ENVIRON_TEST_A"}, nil, "ENVIRON_TEST_A=1=2"},
		{"a prefix", []string{"ENVIRON_TEST_*"}, nil, "ENVIRON_TEST_A=1=2 ENVIRON_TEST_B="},
		{"no prefix", []string{"ENVIRON_TEST_"}, nil, ""},
		{"all", []string{"*"}, nil, "ENVIRON_TESTC=3 ENVIRON_TEST_A=1=2 ENVIRON_TEST_B="},
		{"everything but a name", nil, []string{"ENVIRON_TEST_A"}, "ENVIRON_TESTC=3 ENVIRON_TEST_B="},
		{"everything but no name", nil, []string{""}, "ENVIRON_TESTC=3 ENVIRON_TEST_A=1=2 ENVIRON_TEST_B="},
		{"both", []string{"ENVIRON_TEST_*"}, []string{"ENVIRON_TEST_A", "ENVIRON_TEST_B"}, ""},
		{"prefixes of both", []string{"*"}, []string{"ENVIRON_TEST_*"}, "ENVIRON_TESTC=3"},
	} {
		var got []string
		for _, entry := range Inherit(tt.allow, tt.deny) {
			if strings.HasPrefix(entry, "ENVIRON_TEST") {
				got = append(got, entry)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestName(t *testing.T) {
	for entry, want := range map[string]string{"A=b": "A", "A=b=c": "A", "A=": "A", "A": "A", `=C:=C:\dir`: "=C:", "": ""} {
		if got := Name(entry); got != want {
			t.Errorf("Name(%q): got %q, want %q", entry, got, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		name, pattern string
		want          bool
	}{
		{"PATH", "PATH", true}, {"PATH", "PAT", false}, {"PATH", "PAT*", true}, {"PATH", "*", true}, {"Path", "PATH", runtime.GOOS == "windows"}, {"", "", true},
	} {
		if got := Match(tt.name, []string{"OTHER", tt.pattern}); got != tt.want {
			t.Errorf("Match(%q, %q): got %v, want %v", tt.name, tt.pattern, got, tt.want)
		}
	}
}
