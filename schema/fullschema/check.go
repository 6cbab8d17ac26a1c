package fullschema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"mcpwire/internal/json/jsonwire"
)

// maxCheckBytes is how long a schema may be that is checked, in bytes.
const maxCheckBytes = 64 << 10

// Check reports what is certainly wrong with a schema, by the rules of the dialect that its $schema
// names: 2020-12, which is the default, 2019-09 and the drafts 4, 6 and 7. text is not kept. The
// error is nil for a schema that is right, and for one that cannot be judged: of another dialect,
// with a reference to another document, or of more than 64 KiB. Patterns are judged as those of
// ECMA-262, also where Go's regexp does not know them.
func Check(text []byte) error {
	if len(text) > maxCheckBytes {
		return nil
	}
	if _, ok := hugeNumber(text); ok {
		return nil
	}
	if err := jsonwire.Valid(text, 0); err != nil {
		return err
	}
	v, err := decode(text)
	if err != nil {
		return err
	}
	if _, err = newCompiler(anyPattern).compile(v); errors.Is(err, errOutside) {
		return nil
	}
	return err
}

// anyPattern takes the patterns of ECMA-262. Those that Go's regexp does not know match everything.
func anyPattern(source string) (matcher, error) {
	if re, err := regexp.Compile(source); err == nil {
		return re, nil
	}
	if err := patternError(source); err != nil {
		return nil, err
	}
	return matchAll(source), nil
}

// matchAll is a pattern that is not judged.
type matchAll string

func (matchAll) MatchString(string) bool { return true }
func (e matchAll) String() string        { return string(e) }

// patternError reports what is certainly wrong with a pattern, in whatever dialect of regular
// expressions it is written: what does not end, and what repeats nothing.
func patternError(source string) error {
	depth := 0
	nothing := true // there is nothing to repeat
	for i := 0; i < len(source); i++ {
		switch source[i] {
		case '\\':
			if i++; i == len(source) {
				return errors.New("a backslash at the end")
			}
			nothing = false
		case '[':
			end := classEnd(source, i)
			if end < 0 {
				return errors.New("[ without ]")
			}
			i, nothing = end, false
		case '(':
			depth++
			nothing = true
			if strings.HasPrefix(source[i+1:], "?") {
				i++ // (?: and the like
			}
		case ')':
			if depth--; depth < 0 {
				return errors.New(") without (")
			}
			nothing = false
		case '|':
			nothing = true
		case '*', '+', '?':
			if nothing {
				return fmt.Errorf("%c has nothing to repeat", source[i])
			}
		default:
			nothing = false
		}
	}
	if depth > 0 {
		return errors.New("( without )")
	}
	return nil
}

// classEnd returns where the class that begins at i ends, -1 if it does not.
func classEnd(source string, i int) int {
	for i++; i < len(source); i++ {
		switch source[i] {
		case '\\':
			i++
		case ']':
			return i
		}
	}
	return -1
}
