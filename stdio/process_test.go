package stdio

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("y", tailMaxLine)
	tests := []struct {
		name          string
		writes        []string
		want, forward string
	}{
		{"nothing", nil, "", ""},
		{"lines", []string{"a\nb\n"}, "a\nb\n", "a\nb\n"},
		{"split", []string{"a", "b\nc", "", "\n"}, "ab\nc\n", "ab\nc\n"},
		{"blank", []string{"\n\na\n"}, "\n\na\n", "\n\na\n"},
		{"unfinished", []string{"a\nb"}, "a\nb", "a\n"},
		{"at the limit", []string{long + "\n"}, long + "\n", long + "\n"},
		{"too long", []string{long, "yyy", "y\nz\n"}, long + tailCutMark + "z\n", long + tailCutMark + "z\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var forward strings.Builder
			tail := tail{forward: &forward}
			for _, w := range tt.writes {
				if n, err := tail.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if diff := cmp.Diff(tt.want, tail.String()); diff != "" {
				t.Errorf("String (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.forward, forward.String()); diff != "" {
				t.Errorf("forwarded (-want +got)\n%s", diff)
			}
		})
	}
}

func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	var tail tail
	for i := range 100_000 {
		fmt.Fprintf(&tail, "line %d\n", i)
	}
	got := tail.String()
	if len(got) > tailSize || len(got) < tailSize/2 || !strings.HasPrefix(got, "line ") || !strings.HasSuffix(got, "line 99999\n") {
		t.Errorf("kept %d bytes: %q…", len(got), got[:20])
	}
	for range 1000 {
		tail.Write([]byte(strings.Repeat("z", 10_000)))
	}
	if c := cap(tail.buf) + cap(tail.line); c > 4*tailSize {
		t.Errorf("%d bytes of memory", c)
	}
	tail.flush()
	if got := tail.String(); !strings.HasSuffix(got, "zzz"+tailCutMark) {
		t.Errorf("the unfinished line is missing: …%q", got[len(got)-20:])
	}
}

func TestExitErrorText(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "line %d\n\n", i)
	}
	tests := []struct {
		name string
		err  ExitError
		want string
	}{
		{"status", ExitError{Name: "node server.js", Code: 1, After: 1234567 * time.Microsecond}, `server "node server.js" exited with status 1 after 1.235s`},
		{"long run", ExitError{Name: "x", Code: 0, After: 90*time.Minute + 1234*time.Millisecond}, `server "x" exited with status 0 after 1h30m1s`},
		{"stderr", ExitError{Name: "x", Code: 2, Stderr: "\nError: no such module\r\n\n  at y\x1b[0m\n\n"},
			"server \"x\" exited with status 2 after 0s; last stderr lines:\n\tError: no such module\n\t  at y\\x1b[0m"},
		{"many lines", ExitError{Name: "x", Code: 2, Stderr: many.String()},
			"server \"x\" exited with status 2 after 0s; last stderr lines:\n\tline 90\n\tline 91\n\tline 92\n\tline 93\n\tline 94\n\tline 95\n\tline 96\n\tline 97\n\tline 98\n\tline 99"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.err.Error()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
	long := ExitError{Stderr: strings.Repeat("q", 60_000)}
	if n := len(long.Error()); n > 3*tailBytes {
		t.Errorf("an endless line makes an error of %d bytes", n)
	}
}
