package procgroup

import (
	"go/build"
	"slices"
	"testing"
)

// TestOtherSystems shows that a build for a system without processes fails, with one error that says
// what needs them.
func TestOtherSystems(t *testing.T) {
	for _, system := range []string{"wasip1", "js"} {
		ctx := build.Default
		ctx.GOOS, ctx.GOARCH = system, "wasm"
		pkg, err := ctx.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"doc.go", "procgroup_other.go"}; !slices.Equal(pkg.GoFiles, want) {
			t.Errorf("%s: got the files %q, want %q", system, pkg.GoFiles, want)
		}
	}
}
