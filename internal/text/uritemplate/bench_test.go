package uritemplate

import (
	"strings"
	"testing"
)

func BenchmarkMatch(b *testing.B) {
	for _, bb := range []struct{ name, uri string }{
		{"matches", "db://users/42"},
		{"another prefix", "file:///users/42"},
		{"too long", "db://" + strings.Repeat("x", 8000)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			t, err := Parse("db://{table}/{id}")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				t.Match(bb.uri)
			}
		})
	}
}

// BenchmarkFirstMatch has what a template costs once.
func BenchmarkFirstMatch(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		t, err := Parse("db://{table}/{id}")
		if err != nil {
			b.Fatal(err)
		}
		t.Match("db://")
	}
}
