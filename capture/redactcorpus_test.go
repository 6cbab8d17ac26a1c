package capture_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"mcpwire/capture"
)

// corpus returns the fields of the lines of a file, without comments.
func corpus(t *testing.T, name string, fields int) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/redaction/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		all := strings.Split(line, "\t")
		if len(all) != fields {
			t.Fatalf("%s: %d fields, want %d: %s", name, len(all), fields, line)
		}
		for i := 2; i < fields; i++ {
			if all[i], err = strconv.Unquote(all[i]); err != nil {
				t.Fatalf("%s: %v: %s", name, err, line)
			}
			all[i] = strings.ReplaceAll(all[i], "·", "")
		}
		lines = append(lines, append(all, line))
	}
	if len(lines) < 60 {
		t.Errorf("%s has %d entries, want at least 60", name, len(lines))
	}
	return lines
}

// redactedForms returns a text of the corpus and what becomes of it, in each form in which it is
// recorded.
func redactedForms(t *testing.T, kind, text string) (in, out []string) {
	t.Helper()
	r := capture.NewRedactor(nil)
	switch kind {
	case "text":
		message := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":` + quoted(text) + `}]}}`
		redacted, _ := capture.NewRedactor(nil).Message(nil, []byte(message))
		return []string{text, message}, []string{r.Text(text), string(redacted)}
	case "json":
		redacted, _ := r.Message(nil, []byte(text))
		return []string{text}, []string{string(redacted)}
	case "args":
		var args []string
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			t.Fatal(err)
		}
		return []string{strings.Join(args, "\n")}, []string{strings.Join(r.Args(args), "\n")}
	case "header":
		name, value, _ := strings.Cut(text, ": ")
		return []string{value}, []string{r.Header(name, value)}
	}
	t.Fatalf("unknown kind %q", kind)
	return nil, nil
}

// TestRedactionCorpus checks which forms of secrets are hidden, and which texts stay. The corpus
// marks what is known to be wrong; who mends it removes the mark.
func TestRedactionCorpus(t *testing.T) {
	for _, f := range corpus(t, "hidden.txt", 4) {
		_, out := redactedForms(t, f[1], f[3])
		shown := false
		for _, o := range out {
			shown = shown || strings.Contains(o, f[2])
		}
		if shown != (f[0] == "-") {
			t.Errorf("shown: %v, which the mark denies: %s", shown, f[4])
		}
	}
	for _, f := range corpus(t, "kept.txt", 3) {
		in, out := redactedForms(t, f[1], f[2])
		changed := strings.Join(in, "\n") != strings.Join(out, "\n")
		if changed != (f[0] == "-") {
			t.Errorf("changed: %v, which the mark denies: %s", changed, f[3])
		}
	}
}
