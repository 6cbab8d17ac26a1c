package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Limits on files. They are above what hosts write, among them Claude Code's ~/.claude.json, which has a history in it, and keep what hostile files cost
// below some 200 MiB and a second.
const (
	MaxFileBytes = 16 << 20
	MaxDepth     = 256
	MaxValues    = 200_000
)

// A kind tells what a value is.
type kind byte

const (
	kindObject kind = iota
	kindArray
	kindString
	kindBool
	kindNumber
	kindOther
)

// A node is a value of a document, and where it is in the text. A table of TOML that has its lines in many places has no place.
type node struct {
	kind       kind
	start, end int
	text       string // the value of a string, the text of others that have no parts
	members    []member
	elems      []*node
}

// A member is a name with its value.
type member struct {
	name             string
	keyStart, keyEnd int // of the last part of a dotted key
	lineKey          int // where the whole key begins: a dotted key has parts before keyStart
	block            bool
	value            *node
}

// get returns the member that counts: the last of its name, as JSON.parse has it.
func (n *node) get(name string) *member {
	if n == nil || n.kind != kindObject {
		return nil
	}
	for i := len(n.members) - 1; i >= 0; i-- {
		if n.members[i].name == name {
			return &n.members[i]
		}
	}
	return nil
}

// hasDuplicate tells whether a name comes more than once.
func (n *node) hasDuplicate(name string) bool {
	seen := false
	for _, m := range n.members {
		if m.name == name {
			if seen {
				return true
			}
			seen = true
		}
	}
	return false
}

// lookup follows names from n, and returns nil if one is not there.
func (n *node) lookup(names []string) *node {
	for _, name := range names {
		m := n.get(name)
		if m == nil {
			return nil
		}
		n = m.value
	}
	return n
}

// A ParseError says what is wrong with a file, and where. It quotes nothing of the file but names.
type ParseError struct {
	Path         string
	Line, Column int // from 1, the column in bytes; 0 if it is the file as a whole
	Reason       string
}

func (e *ParseError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Column, e.Reason)
}

// position returns line and column of an offset.
func position(data []byte, offset int) (line, column int) {
	offset = min(offset, len(data))
	return 1 + bytes.Count(data[:offset], []byte("\n")), offset - bytes.LastIndexByte(data[:offset], '\n')
}

// A syntax is a way to write a document.
type syntax byte

const (
	syntaxJSON syntax = iota // with comments and trailing commas
	syntaxTOML
)

// syntaxOf tells what a file is written in: its name says so, or its first character.
func syntaxOf(path string, data []byte) syntax {
	switch lower := strings.ToLower(path); {
	case strings.HasSuffix(lower, ".toml"):
		return syntaxTOML
	case strings.HasSuffix(lower, ".json"), strings.HasSuffix(lower, ".jsonc"), strings.HasSuffix(lower, ".json5"):
		return syntaxJSON
	}
	if rest := bytes.TrimSpace(bytes.TrimPrefix(data, bom)); len(rest) > 0 && (rest[0] == '{' || rest[0] == '/') {
		return syntaxJSON
	}
	return syntaxTOML
}

// bom is the mark that editors on Windows begin files with.
var bom = []byte("\xef\xbb\xbf")

// parse reads a document. An empty one, which some hosts leave behind, is an empty table. Errors are *ParseError without a path.
func parse(data []byte, syn syntax) (*node, error) {
	if len(data) > MaxFileBytes {
		return nil, &ParseError{Reason: tooBig}
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return nil, errorAt(data, i, "a NUL byte: this is no text")
	}
	skip := 0
	if bytes.HasPrefix(data, bom) {
		skip = len(bom)
	}
	if len(bytes.TrimSpace(data[skip:])) == 0 {
		return &node{kind: kindObject, start: len(data), end: len(data)}, nil
	}
	if syn == syntaxTOML {
		return parseTOML(data, skip)
	}
	return parseJSON(data, skip)
}

var tooBig = fmt.Sprintf("the file is larger than %d MiB", MaxFileBytes>>20)

func errorAt(data []byte, offset int, problem string) *ParseError {
	line, column := position(data, offset)
	return &ParseError{Line: line, Column: column, Reason: problem}
}

// withPath puts the path into a ParseError.
func withPath(err error, path string) error {
	var p *ParseError
	if errors.As(err, &p) {
		p.Path = path
	}
	return err
}
