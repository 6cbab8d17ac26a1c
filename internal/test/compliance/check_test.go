package compliance

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const sample = `# A comment.
== Server
-- Envelope
S1 [all] One.
S2 [legacy] Two.
	open: nobody did
S3 [all] Three.
	user: the author does
S4 [all] Four.
	design: no way round it
-- HTTP
S5 [all] Five.
	design: nor round this
`

func TestParseRequirements(t *testing.T) {
	head := "== P\n-- T\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"sample", sample, nil},
		{"requirement without a table", "S1 [all] One.\n", []string{`requirements.txt:1: "S1 [all] One." is no requirement, status or title, or in the wrong place`}},
		{"table without a part", "-- T\n", []string{`requirements.txt:1: "-- T" is no requirement, status or title, or in the wrong place`}},
		{"no revisions", head + "S1 One.\n", []string{`requirements.txt:3: "S1 One." is no requirement, status or title, or in the wrong place`}},
		{"twice", head + "S1 [all] One.\nS1 [all] One.\n", []string{"requirements.txt:4: S1 appears twice"}},
		{"status of nothing", head + "\topen: why\n", []string{`requirements.txt:3: "\topen: why" is no requirement, status or title, or in the wrong place`}},
		{"unknown status", head + "S1 [all] One.\n\tdone: yes\n", []string{`requirements.txt:4: S1: there is no status "done"`}},
		{"two statuses", head + "S1 [all] One.\n\topen: a\n\tuser: b\n", []string{"requirements.txt:5: S1 has two statuses"}},
		{"no sentence", head + "S1 [all] One.\n\topen:\n", []string{"requirements.txt:4: S1: open needs a sentence that says why"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got := parseRequirements(tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	by := func(ids ...string) map[string][]proof {
		proofs := map[string][]proof{}
		for _, id := range ids {
			proofs[id] = []proof{{dir: "a", test: "TestA"}}
		}
		return proofs
	}
	parts, _ := parseRequirements(sample)
	for _, tt := range []struct {
		name   string
		proofs map[string][]proof
		want   []string
	}{
		{"complete", by("S1"), nil},
		{"tests of a requirement with the status user", by("S1", "S3"), nil},
		{"no test", by(), []string{"S1 has neither a test nor a status: annotate a test, or say in requirements.txt why there is none"}},
		{"no longer open", by("S1", "S2"), []string{"S2 is open by requirements.txt, but a TestA shows it: go test ./internal/test/compliance -update"}},
		{"a test of a requirement with the status design", by("S1", "S4"), []string{`S4 is "design" by requirements.txt, but a TestA shows it: one of the two is wrong`}},
		{"unknown", by("S1", "S99"), []string{"a TestA names S99, which is not in requirements.txt"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, judge(all(parts), tt.proofs)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
	want := strings.Replace(sample, "\topen: nobody did\n", "", 1)
	if diff := cmp.Diff(want, withoutStale(sample, all(parts), by("S1", "S2", "S3"))); diff != "" {
		t.Errorf("without stale statuses (-want +got):\n%s", diff)
	}
	if got := withoutStale(sample, all(parts), by("S1")); got != sample {
		t.Errorf("without a stale status: got %s", got)
	}
}

func TestScan(t *testing.T) {
	const head = "package p\n\nimport \"testing\"\n\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  map[string][]proof
		wrong []string
	}{
		{name: "above a test", files: map[string]string{"a/b/x_test.go": head + "// TestX tests.\n//\n// Spec: S1 C2\n// Spec: S3\nfunc TestX(t *testing.T) {}\n"},
			want: map[string][]proof{"S1": {{"a/b", "TestX", ""}}, "C2": {{"a/b", "TestX", ""}}, "S3": {{"a/b", "TestX", ""}}}},
		{name: "inside", files: map[string]string{"a/x_test.go": head + "func FuzzX(f *testing.F) {\n\t_ = []int{\n\t\t// Spec: T1\n\t\t1, // spec: T2\n\t}\n\tt.Run(\"\", func() {\n\t\t// Spec: T1\n\t})\n}\n"},
			want: map[string][]proof{"T1": {{"a", "FuzzX", ""}}, "T2": {{"a", "FuzzX", ""}}}},
		{name: "in order, each once", files: map[string]string{
			"b/x_test.go": head + "// Spec: S1 S1\nfunc TestX(t *testing.T) {}\n",
			"a/x_test.go": head + "// Spec: S1\nfunc TestY(t *testing.T) {}\n\n// Spec: S1\nfunc Example() {\n\t// Output:\n}\n",
		}, want: map[string][]proof{"S1": {{"a", "Example", ""}, {"a", "TestY", ""}, {"b", "TestX", ""}}}},
		{name: "no annotations", files: map[string]string{
			"a/x_test.go":               head + "// The spec: S1\nfunc TestX(t *testing.T) { _ = `// Spec: S2` }\n",
			"a/x.go":                    "package p\n\n// Spec: S3\nfunc TestX() {}\n",
			"ts/node_modules/x_test.go": head + "// Spec: S4\nfunc TestX(t *testing.T) {}\n",
			"testdata/x.txtar":          "# As Spec: S5 says.\n",
			"doc/x.txtar":               "# Spec: S6\n",
		}, want: map[string][]proof{}},
		{name: "above no test", files: map[string]string{"x_test.go": head + "// Spec: S1\nvar rows []int\n\n// Spec: S2\n\nfunc TestX(t *testing.T) {}\n\n// Spec: S3\nfunc helper() {}\n\n// Spec: S4\nfunc Testing() {}\n\n// Spec: S5\nfunc TestMain(m *testing.M) {}\n"},
			want: map[string][]proof{}, wrong: []string{
				"x_test.go:5: the annotation belongs to no test: it must stand in one, or in the comment above it",
				"x_test.go:8: the annotation belongs to no test: it must stand in one, or in the comment above it",
				"x_test.go:12: the annotation belongs to no test: it must stand in one, or in the comment above it",
				"x_test.go:15: the annotation belongs to no test: it must stand in one, or in the comment above it",
				"x_test.go:18: the annotation belongs to no test: it must stand in one, or in the comment above it",
			}},
		{name: "functions that do not run", files: map[string]string{"x_test.go": head + "// Spec: S1\nfunc Example() {}\n\n// Spec: S2\nfunc ExampleT_m() {\n\t// Output:\n}\n\n// Spec: S3\nfunc (t T) TestX() {}\n\n// Spec: S4\nfunc ExampleT() {\n\tprintln()\n\t// Unordered output:\n\t// x\n}\n"},
			want: map[string][]proof{"S2": {{".", "ExampleT_m", ""}}, "S4": {{".", "ExampleT", ""}}}, wrong: []string{
				"x_test.go:5: Example is not run, as it has no output",
				"x_test.go:13: the annotation belongs to no test: it must stand in one, or in the comment above it",
			}},
		{name: "not ids", files: map[string]string{"x_test.go": head + "// Spec: S1, S2\n// Spec:\nfunc TestX(t *testing.T) {}\n", "testdata/x.txtar": "# Spec: 5\n-- a --\n# Spec:\n"},
			want: map[string][]proof{"S2": {{".", "TestX", ""}}}, wrong: []string{
				"testdata/x.txtar:1: \"5\" is no requirement's id",
				"testdata/x.txtar:3: the annotation names nothing",
				"x_test.go:5: \"S1,\" is neither a requirement's id nor a path of .txtar files",
				"x_test.go:6: the annotation names nothing",
			}},
		{name: "transcripts", files: map[string]string{
			"a/x_test.go":            head + "// Spec: testdata/*.txtar S9\nfunc TestX(t *testing.T) {}\n",
			"a/testdata/s.txtar":     "About it.\n# Spec: S1\n-- first --\n# Spec: S2 S3\r\n-- the second --\n> {}\n# Spec: S3\n",
			"a/testdata/quiet.txtar": "-- first --\n",
		}, want: map[string][]proof{
			"S9": {{"a", "TestX", ""}}, "S1": {{"a", "TestX", "s"}}, "S2": {{"a", "TestX", "s/first"}}, "S3": {{"a", "TestX", "s/first"}, {"a", "TestX", "s/the second"}},
		}},
		{name: "transcripts that nobody plays", files: map[string]string{
			"a/x_test.go":            head + "// Spec: testdata/*/*.txtar\nfunc TestX(t *testing.T) {}\n",
			"a/testdata/s.txtar":     "# Spec: S1\n",
			"a/testdata/quiet.txtar": "-- first --\n",
		}, want: map[string][]proof{}, wrong: []string{
			"a TestX plays a/testdata/*/*.txtar, of which there are none",
			"a/testdata/s.txtar: no test says that it plays this file; see doc.go of internal/test/compliance",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range tt.files {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			s, err := scanTests(files)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, s.proofs, cmp.AllowUnexported(proof{})); diff != "" {
				t.Errorf("proofs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wrong, s.complaints); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := scanTests(fstest.MapFS{"x_test.go": {Data: []byte("packag p")}}); err == nil {
		t.Error("a file that is not Go: no error")
	}
}

func TestRender(t *testing.T) {
	parts, _ := parseRequirements(sample)
	proofs := map[string][]proof{
		"S1": {{"a", "TestA", "one"}, {"a", "TestA", "two/x|y"}, {"a", "TestB", ""}, {"b", "TestA", ""}},
		"S3": {{"a", "TestA", ""}},
	}
	got, ok := strings.CutPrefix(render(parts, proofs), preface)
	if !ok {
		t.Error("the page does not begin with its preface")
	}
	want := "| status | meaning | Server |\n|---|---|---|\n| tested | tests show it | 2 |\n| open | nothing shows it, or it is not so | 1 |\n" +
		"| user | left, wholly or in part, to the application that embeds mcpwire | 0 |\n| design | it cannot be otherwise, for the reason given | 2 |\n" + `
## Server

### Envelope

| id | revisions | requirement | shown by |
|---|---|---|---|
` + "| S1 | all | One. | a `TestA` (`one`, `two/x\\|y`), `TestB`; b `TestA` |\n" + `| S2 | legacy | Two. | open: nobody did |
` + "| S3 | all | Three. | a `TestA`; user: the author does |\n" + `| S4 | all | Four. | design: no way round it |

### HTTP

| id | revisions | requirement | shown by |
|---|---|---|---|
| S5 | all | Five. | design: nor round this |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}
