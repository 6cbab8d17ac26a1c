package probe

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBounded(t *testing.T) {
	for _, tt := range []struct {
		most int
		want string
		err  error
	}{{4, "abcd", nil}, {5, "abcd", nil}, {3, "abc", errTooLarge}, {0, "", errTooLarge}} {
		for _, in := range []io.Reader{strings.NewReader("abcd"), iotest.OneByteReader(strings.NewReader("abcd"))} {
			got, err := io.ReadAll(&limitedReader{in, tt.most})
			if string(got) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("at most %d: got %q, %v, want %q, %v", tt.most, got, err, tt.want, tt.err)
			}
		}
	}
}
