package server

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxURI is the longest URI, in bytes, that is held against the resource templates. A longer one is that of no resource but a registered one.
const maxURI = 8 << 10

var (
	errNoScheme = errors.New("it must be a URI that begins with a scheme, as file:///a does")
	errLongURI  = fmt.Errorf("it is longer than %d bytes", maxURI)
)

// checkURI returns an error unless the text is a URI with a scheme (https://www.rfc-editor.org/rfc/rfc3986, appendix A).
func checkURI(uri string) error {
	rest := uri[schemeEnd(uri):]
	if rest == uri {
		return errNoScheme
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	authority := 0 // where it ends: brackets may stand in it and nowhere else
	if strings.HasPrefix(rest, "//") {
		if authority = strings.IndexAny(rest[2:], "/?") + 2; authority < 2 {
			authority = len(rest)
		}
	}
	for _, part := range []struct{ text, also string }{{rest[:authority], "[]"}, {rest[authority:], ""}, {fragment, ""}} {
		if err := checkURIChars(part.text, part.also); err != nil {
			return err
		}
	}
	return nil
}

// schemeEnd returns the index behind the colon of the scheme, or 0 if there is none.
func schemeEnd(uri string) int {
	for i := 0; i < len(uri); i++ {
		switch c := uri[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z':
		case c == ':' && i > 0:
			return i + 1
		case i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.':
			return 0
		}
	}
	return 0
}

func checkURIChars(s, also string) error {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9', strings.IndexByte("-._~:/?@!$&'()*+,;=", c) >= 0, strings.IndexByte(also, c) >= 0:
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			i += 2
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return fmt.Errorf("it must be a URI: %q cannot stand there unless it is percent-encoded", string(r))
		}
	}
	return nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }
