//go:build unix

package stdio

import (
	"bufio"
	"os"
	"testing"
	"time"
)

// eventually polls until the condition is true.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.Now().Add(testTimeout)
	for !cond() {
		if time.Now().After(limit) {
			t.Fatalf("%s did not come about", what)
		}
		<-time.After(time.Millisecond)
	}
}

// eachLine calls f with each line of standard input.
func eachLine(f func(line string)) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		f(in.Text())
	}
}
