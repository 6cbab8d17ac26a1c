package capture

import "testing"

// FuzzClassify checks that the tests that come before a look at the lists of names change no result.
func FuzzClassify(f *testing.F) {
	for _, s := range secretNames {
		f.Add(s.suffix)
		for _, q := range qualifiers {
			f.Add("my-" + s.suffix + "_" + q)
		}
	}
	for _, name := range append([]string{"OPENAI_KEY", "GH_PAT", "customs", "api2", "X-Custom", "passKword", "tokenſ"}, harmlessNames...) {
		f.Add(name)
	}
	r := NewRedactor(&Redaction{Names: []string{"Custom", "pi", "Straße"}})
	f.Fuzz(func(t *testing.T, name string) {
		for _, query := range []bool{false, true} {
			for range 2 {
				got, want := r.classify([]byte(name), query), r.classifyName([]byte(name[max(0, len(name)-64):]), query)
				if (got == nil) != (want == nil) || got != nil && *got != *want {
					t.Errorf("classify(%q, %v) = %v, want %v", name, query, got, want)
				}
			}
		}
	})
}
