package resend

import (
	"bytes"
	"slices"
	"strconv"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/lazyregexp"
)

// placeholder matches what replaces a secret in a capture (doc/capture-format.md#redaction).
var placeholder = lazyregexp.New(`~redacted:[a-z]+:[0-9a-f]{12}:[0-9]+~`)

// maxPointers limits the reported places of a message.
const maxPointers = 64

// refuseRedacted returns an error if one of the texts has a placeholder.
func (o *Origin) refuseRedacted(what string, list []string) error {
	err := &RedactedError{What: what}
	for i, s := range list {
		if !placeholder().MatchString(s) {
			continue
		}
		pointer := ""
		if len(list) > 1 {
			pointer = "/" + strconv.Itoa(i)
		}
		err.Pointers = append(err.Pointers, pointer)
	}
	if len(err.Pointers) == 0 {
		return nil
	}
	return err
}

// refuseMessage returns an error if a part of the message was hidden and is still missing. The
// capture's list is needed for numbers, which became 0.
func (o *Origin) refuseMessage(message []byte) error {
	err := &RedactedError{What: "message", Pointers: RedactedIn(message, o.Redacted), More: o.MoreRedacted}
	if len(err.Pointers) == 0 && err.More == 0 {
		return nil
	}
	if len(err.Pointers) == 0 {
		err.Pointers = []string{""}
	}
	return err
}

// Placeholders returns the bounds of the hidden parts of a text, like
// [regexp.Regexp.FindAllStringIndex].
func Placeholders(text string) [][]int { return placeholder().FindAllStringIndex(text, -1) }

// RedactedIn returns the hidden places of a message, as JSON pointers: those with a placeholder,
// and listed ones with the number 0. "" means the whole message, if it is not JSON. The number of
// places is limited.
func RedactedIn(message []byte, listed []string) []string {
	found := placeholder().Match(message)
	switch {
	case jsonwire.Valid(message, 0) != nil:
		if found {
			return []string{""}
		}
	case found || len(listed) > 0:
		s := redactedSearch{listed: listed}
		s.walk("", bytes.TrimSpace(message))
		return s.found
	}
	return nil
}

// A redactedSearch finds the hidden places of a JSON text.
type redactedSearch struct {
	listed []string
	found  []string
}

func (s *redactedSearch) add(pointer string) {
	if len(s.found) < maxPointers && !slices.Contains(s.found, pointer) {
		s.found = append(s.found, pointer)
	}
}

// walk searches a value without space around it. Its depth was checked.
func (s *redactedSearch) walk(at string, value []byte) {
	switch value[0] {
	case '{':
		members := jsonwire.ObjectMembers(value)
		for members.Next() {
			pointer := at + "/" + jsonpointer.Escape(members.KeyString())
			if placeholder().Match(members.RawKey()) {
				s.add(pointer)
			}
			s.walk(pointer, members.Value())
		}
	case '[':
		elements := jsonwire.ArrayElements(value)
		for i := 0; elements.Next(); i++ {
			s.walk(at+"/"+strconv.Itoa(i), elements.Value())
		}
	case '"':
		if placeholder().Match(value) {
			s.add(at)
		}
	case '0':
		if len(value) == 1 && slices.Contains(s.listed, at) {
			s.add(at)
		}
	}
}
