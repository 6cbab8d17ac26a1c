package era

import (
	"errors"
	"fmt"
	"strings"
)

var (
	errKeyLabel  = errors.New("a label of its prefix must start with a letter, end with a letter or a digit, and have only letters, digits and hyphens between")
	errKeyName   = errors.New("its name must begin and end with a letter or a digit, and have letters, digits, hyphens, underscores and dots between")
	errKeyEmpty  = errors.New("it is empty")
	errNoPrefix  = errors.New("it needs a prefix, such as com.example/")
	errNoKeyName = errors.New("it needs a name after its prefix")
)

// CheckMetaKey returns an error unless key is a valid key of a _meta object: a name, optionally
// after a prefix of labels and a slash
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta). Use it for your own keys;
// forward those of others unchanged. It does not check the meaning of reserved prefixes.
func CheckMetaKey(key string) error {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	err := checkKeyName(name)
	switch {
	case key == "":
		err = errKeyEmpty
	case found && err == nil:
		err = checkKeyPrefix(prefix)
	}
	if err != nil {
		return fmt.Errorf("_meta key %.100q: %w", key, err)
	}
	return nil
}

// CheckExtensionID returns an error unless id is a valid extension identifier: like a key of _meta,
// but with a required prefix (https://modelcontextprotocol.io/specification/2026-07-28/basic).
func CheckExtensionID(id string) error {
	prefix, name, found := strings.Cut(id, "/")
	err := checkKeyName(name)
	switch {
	case !found:
		err = errNoPrefix
	case name == "":
		err = errNoKeyName
	case err == nil:
		err = checkKeyPrefix(prefix)
	}
	if err != nil {
		return fmt.Errorf("extension %.100q: %w", id, err)
	}
	return nil
}

func checkKeyPrefix(prefix string) error {
	for label := range strings.SplitSeq(prefix, ".") {
		if label == "" || !isLetter(label[0]) || !isAlphanumeric(label[len(label)-1]) {
			return errKeyLabel
		}
		for i := range len(label) {
			if c := label[i]; !isAlphanumeric(c) && c != '-' {
				return errKeyLabel
			}
		}
	}
	return nil
}

// checkKeyName checks a name. An empty name is valid.
func checkKeyName(name string) error {
	if name == "" {
		return nil
	}
	if !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return errKeyName
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return errKeyName
		}
	}
	return nil
}

func isLetter(c byte) bool       { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isAlphanumeric(c byte) bool { return isLetter(c) || c >= '0' && c <= '9' }
