package jsonwire

import (
	"os/exec"
	"strings"
	"testing"
)

// TestInlining shows that the compiler inlines the functions that are called for every byte, word
// or member.
func TestInlining(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the compiler")
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(tool, "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "can inline") {
		t.Skip("not the gc compiler")
	}
	for _, name := range []string{
		"load64", "load32", "special", "uneven", "equals", "firstByte", "sequenceLen", "space", "digitsEnd", "escapeLen", "escapedQuote",
		"(*Scanner).Pos", "(*Scanner).Peek",
		"(*Scanner).EnterObject", "(*Scanner).NextMember", "(*Scanner).EnterArray", "(*Scanner).NextElement",
		"(*Members).RawKey", "(*Members).KeyIs", "(*Members).Value", "(*Elements).Value",
	} {
		if !strings.Contains(string(out), "can inline "+name+"\n") {
			t.Errorf("%s is not inlined", name)
		}
	}
}
