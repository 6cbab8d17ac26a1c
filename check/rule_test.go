package check_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/mcp"
)

// TestDescriptions checks that every rule has a valid id and all texts that people need.
func TestDescriptions(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+/[a-z0-9-]+$`)
	placeholder := regexp.MustCompile(`\$(r[1-5]|rev|meta|version|client)\b`)
	seen := map[string]bool{}
	for _, r := range check.Rules() {
		switch {
		case !id.MatchString(r.ID) || seen[r.ID]:
			t.Errorf("%s: the id is invalid or appears twice", r.ID)
		case r.Title == "" || r.Why == "" || r.Fix == "" || !strings.HasPrefix(r.URL, "https://"):
			t.Errorf("%s: a text is missing", r.ID)
		case strings.HasSuffix(r.Title, ".") || !strings.HasSuffix(r.Why, ".") || !strings.HasSuffix(r.Fix, "."):
			t.Errorf("%s: a title has no full stop, sentences have", r.ID)
		case placeholder.MatchString(r.Title + r.Why + r.Fix + r.URL + r.Good.Transcript() + r.Bad.Transcript()):
			t.Errorf("%s: a placeholder was not replaced", r.ID)
		}
		seen[r.ID] = true
	}
}

func TestOptions(t *testing.T) {
	r, _ := check.Lookup("jsonrpc/unknown-id")
	run := func(o *check.Options) (n int) {
		for range check.Run(capture.NewReader(bytes.NewReader(written(t, r.Bad)), nil), o) {
			n++
		}
		return n
	}
	for _, tt := range []struct {
		name string
		opts *check.Options
		want int
	}{
		{"none", nil, 1},
		{"only", &check.Options{Only: []string{r.ID}}, 1},
		{"only another", &check.Options{Only: []string{"jsonrpc/version"}}, 0},
		{"only a group", &check.Options{Only: []string{"jsonrpc/*"}}, 1},
		{"disabled", &check.Options{Disabled: []string{r.ID}}, 0},
		{"disabled group", &check.Options{Disabled: []string{"jsonrpc/*"}}, 0},
		{"disabled wins", &check.Options{Only: []string{r.ID}, Disabled: []string{r.ID}}, 0},
	} {
		if got := run(tt.opts); got != tt.want {
			t.Errorf("%s: %d findings, want %d", tt.name, got, tt.want)
		}
	}
}

// TestMaxPerRule shows that a rule reports at most MaxPerRule findings.
func TestMaxPerRule(t *testing.T) {
	k := check.New(&check.Options{Limits: check.Limits{MaxPerRule: 10}})
	n := 0
	for i := range 100 {
		n += len(k.Add(&capture.Head{Transport: "stdio"}, &capture.Event{Kind: capture.KindInvalid, N: uint64(i + 1), Dir: capture.ToClient, Data: []byte("log"), Framing: capture.FramingLF}))
	}
	if n != 10 {
		t.Errorf("%d findings, want 10", n)
	}
}

func TestSeverity(t *testing.T) {
	for _, s := range []check.Severity{check.Info, check.Warning, check.Error} {
		var back check.Severity
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("%v becomes %v, %v", s, back, err)
		}
	}
	if new(check.Severity).UnmarshalText([]byte("bad")) == nil {
		t.Error("a severity bad")
	}
}

func ExampleRun() {
	r, _ := check.Lookup("stdio/stray-output")
	head, events, _ := r.Bad.Events()
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, nil)
	_ = enc.Encode(&capture.Event{Kind: capture.KindHead, Head: head})
	for _, e := range events {
		_ = enc.Encode(e)
	}
	_ = enc.Flush()

	for f, err := range check.Run(capture.NewReader(&file, nil), nil) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(f.Rule.Severity, f.Rule.ID, "at event", f.Event)
		fmt.Println(f.Message)
	}
	// Output:
	// error stdio/stray-output at event 1
	// "hello from console.log" is not a message
}

func ExampleExample() {
	x := check.Example{Revision: mcp.Revision20251125, Text: `> {"jsonrpc":"2.0","id":1,"method":"ping"}
! ready
<(crlf) {"jsonrpc":"2.0","id":1,"result":{}}`}
	_, events, err := x.Events()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range events {
		fmt.Println(e.N, e.Kind, e.Dir, e.Framing, string(e.Data))
	}
	// Output:
	// 1 msg c2s lf {"jsonrpc":"2.0","id":1,"method":"ping"}
	// 2 err   ready
	// 3 msg s2c crlf {"jsonrpc":"2.0","id":1,"result":{}}
}
