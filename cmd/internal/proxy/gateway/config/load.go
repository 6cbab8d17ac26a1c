package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxFileBytes limits the size of a file.
const MaxFileBytes = 4 << 20

// An Error is one error of a file.
type Error struct {
	// Path is the path of the file.
	Path string
	// Line and Column are where the error is, counted from 1. They are zero if the file has no such
	// place.
	Line, Column int
	// Message says what is wrong, and how to correct it if that is not obvious.
	Message string
}

// Error returns PATH:LINE:COLUMN: MESSAGE.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Path + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Path, e.Line, e.Column, e.Message)
}

// Errors are the errors of a file, in the order of the file.
type Errors []*Error

// Error returns all errors, one per line.
func (l Errors) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// sort sorts the errors by their place.
func (l Errors) sort() {
	slices.SortStableFunc(l, func(a, b *Error) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
}

// A located is a reference and the path of the value that has it.
type located struct {
	path string
	Reference
}

// A file is what is known about a file beside its content.
type file struct {
	name, dir string
	// keys and positions are the places of keys and values, by path.
	keys, positions map[string]position
	// unknown has the paths of objects with unknown keys.
	unknown map[string]bool
	// references are to secrets, and paths are of other files, in the order of the file.
	references, paths []located
	errors            Errors
}

// errorf adds an error.
func (f *file) errorf(at position, format string, args ...any) {
	f.errors = append(f.errors, &Error{Path: f.name, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...)})
}

// at returns the place of a value, or else of the nearest value around it.
func (f *file) at(path string) position {
	for {
		if p, ok := f.positions[path]; ok {
			return p
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return position{1, 1}
		}
		path = path[:i]
	}
}

// key returns the place of a key, or else of its value.
func (f *file) key(path string) position {
	if p, ok := f.keys[path]; ok {
		return p
	}
	return f.at(path)
}

// err returns the errors so far, sorted, or nil.
func (f *file) err() error {
	if len(f.errors) == 0 {
		return nil
	}
	f.errors.sort()
	return f.errors
}

// Errorf returns an error at the value with a path such as upstreams.files.url, for problems that
// only the user of the configuration can see.
func (c *Config) Errorf(path, format string, args ...any) *Error {
	at := c.file.at(path)
	return &Error{Path: c.file.name, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...)}
}

// Load reads a file. If its content is invalid, the error is [Errors], with all that is wrong.
func Load(path string) (*Config, error) {
	data, err := readLimited(path, MaxFileBytes)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse is [Load] for the content of the file at path.
func Parse(path string, data []byte) (*Config, error) {
	f := &file{name: path, dir: filepath.Dir(path), keys: map[string]position{}, positions: map[string]position{}, unknown: map[string]bool{}}
	root, err := parseYAML(data)
	if err != nil {
		f.errorf(err.position, "%s", err.message)
		return nil, f.err()
	}
	c := &Config{file: f}
	(&decoder{file: f}).value("", root, reflect.ValueOf(c).Elem(), "")
	c.validate()
	if err := f.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// A syntaxError is an error of the YAML itself.
type syntaxError struct {
	position
	message string
}

// parseYAML parses a file of one document.
func parseYAML(data []byte) (*yaml.Node, *syntaxError) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, &syntaxError{position{1, 1}, "the file is empty: it needs at least upstreams"}
	}
	if err == nil {
		if err = decoder.Decode(&second); errors.Is(err, io.EOF) {
			return document.Content[0], nil
		}
		if err == nil {
			return nil, &syntaxError{positionOf(&second), "the file has more than one document"}
		}
	}
	return nil, newSyntaxError(data, err)
}

// newSyntaxError returns the error for one of package yaml.
func newSyntaxError(data []byte, err error) *syntaxError {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return &syntaxError{position{1, 1}, "not YAML: " + err.Error()}
	}
	s := &syntaxError{position{e.Mark.Line, e.Mark.Column}, "not YAML: " + e.Message}
	if e.Stage == yaml.ReaderStage { // it has the offset only
		s.position = positionAt(data[:min(max(e.Mark.Index, 0), len(data))])
	}
	if c := e.ContextMark; e.ContextMsg != "" && c.Line > 0 && c != e.Mark {
		s.message += fmt.Sprintf(", %s that begins at %d:%d", e.ContextMsg, c.Line, c.Column)
	}
	return s
}

// positionAt returns the position after the text before it.
func positionAt(before []byte) position {
	line := bytes.LastIndexByte(before, '\n') + 1
	return position{bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[line:]) + 1}
}
