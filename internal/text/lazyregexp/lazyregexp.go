// Package lazyregexp compiles regular expressions at their first use, so that programs start
// without those that they do not use.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// inTest reports whether the program is a test. Tests compile all expressions when they start: an
// invalid one fails each test of its package.
var inTest = len(os.Args) > 0 && strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test")

// New returns a function that returns the compiled expr, and panics if expr is invalid. The
// function may be called concurrently.
func New(expr string) func() *regexp.Regexp {
	l := &lazy{expr: expr}
	if inTest {
		l.compiled()
	}
	return l.compiled
}

type lazy struct {
	expr string
	once sync.Once
	re   *regexp.Regexp
}

func (l *lazy) compiled() *regexp.Regexp {
	l.once.Do(func() { l.re = regexp.MustCompile(l.expr) })
	return l.re
}
