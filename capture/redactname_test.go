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
				got, ok := r.classify([]byte(name), query)
				if want, wantOK := r.classifyName([]byte(name[max(0, len(name)-64):]), query); got != want || ok != wantOK {
					t.Errorf("classify(%q, %v) = %v, %v; want %v, %v", name, query, got, ok, want, wantOK)
				}
			}
		}
	})
}
