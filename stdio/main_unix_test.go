//go:build unix

package stdio

import (
	"bufio"
	"os"
)

// eachLine calls f with each line of standard input.
func eachLine(f func(line string)) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		f(in.Text())
	}
}
