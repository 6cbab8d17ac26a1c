package lazyregexp_test

import (
	"testing"

	"mcpwire/internal/text/lazyregexp"
)

func TestNew(t *testing.T) {
	re := lazyregexp.New(`^a+$`)
	if first, second := re(), re(); first != second || !first.MatchString("aa") || first.MatchString("b") {
		t.Errorf("got %v and %v", first, second)
	}
	defer func() {
		if recover() == nil {
			t.Error("a test starts with an invalid expression")
		}
	}()
	lazyregexp.New(`(`)
}
