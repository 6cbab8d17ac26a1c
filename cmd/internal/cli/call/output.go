package call

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A part is a piece of a server's answer, for people: a text, or data with a line that describes
// it.
type part struct {
	// text is not escaped. It is "" for data.
	text string
	// note describes the data.
	note string
	data []byte
	// kind is the MIME type of the data.
	kind string
}

// contentPart returns the part to show for a content block.
func contentPart(c mcp.ContentBlock) part {
	switch b := c.(type) {
	case mcp.TextContent:
		return part{text: b.Text}
	case mcp.ImageContent:
		return dataPart("image", b.MIMEType, b.Data)
	case mcp.AudioContent:
		return dataPart("audio", b.MIMEType, b.Data)
	case mcp.EmbeddedResource:
		p := resourcePart(b.Resource)
		if p.data != nil {
			p.note = strings.TrimSuffix(p.note, "]") + ", " + safe.Clip(b.Resource.URI, 200) + "]"
		}
		return p
	case mcp.ResourceLink:
		note := "[link to " + safe.Clip(b.URI, 500)
		if b.Name != "" {
			note += ", " + safe.Clip(b.Name, 100)
		}
		if b.MIMEType != "" {
			note += ", " + safe.Clip(b.MIMEType, 60)
		}
		return part{note: note + "]"}
	}
	return part{note: "[content of a kind that is not known: " + safe.Clip(string(mcp.Append(nil, c, mcp.RevisionNone)), 500) + "]"}
}

func resourcePart(r mcp.ResourceContents) part {
	if r.Blob != nil {
		return dataPart("data", r.MIMEType, r.Blob)
	}
	return part{text: r.Text}
}

func dataPart(what, kind string, data []byte) part {
	if data == nil {
		data = []byte{}
	}
	kind = cmp.Or(kind, "application/octet-stream")
	return part{note: fmt.Sprintf("[%s: %s, %s]", what, safe.Clip(kind, 60), kit.SizeText(len(data))), data: data, kind: kind}
}

// minData is the length from which a base64 string counts as data, in bytes.
const minData = 512

// withoutData appends a JSON text in which each long base64 string is replaced by its size.
func withoutData(dst []byte, value []byte) []byte {
	switch {
	case len(value) == 0:
	case value[0] == '{':
		dst = append(dst, '{')
		members := jsonwire.ObjectMembers(value)
		for i := 0; members.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
			dst = withoutData(dst, members.Value())
		}
		return append(dst, '}')
	case value[0] == '[':
		dst = append(dst, '[')
		elements := jsonwire.ArrayElements(value)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = withoutData(dst, elements.Value())
		}
		return append(dst, ']')
	case value[0] == '"' && len(value) > minData:
		text := jsonwire.Text(value)
		if _, data, ok := strings.Cut(text, ";base64,"); ok {
			text = data
		}
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"
		if strings.Trim(text, alphabet) == "" {
			return jsonwire.AppendQuote(dst, "["+kit.SizeText(len(text)/4*3)+" of base64]")
		}
	}
	return append(dst, value...)
}

// writeParts writes parts one below the other. If file isn't "", it writes the data there; "-" is
// standard output.
func (s *session) writeParts(parts []part, file string) error {
	if file == "" {
		for _, p := range parts {
			if err := s.writePart(p); err != nil {
				return err
			}
		}
		return nil
	}
	var data []part
	for _, p := range parts {
		if p.data != nil {
			data = append(data, p)
		}
	}
	// Without data, the user wants the text.
	if data == nil {
		var text strings.Builder
		for _, p := range parts {
			text.WriteString(p.text)
		}
		data = []part{{data: []byte(text.String())}}
	} else if file != "-" {
		for _, p := range parts {
			if p.data == nil {
				if err := s.writePart(p); err != nil {
					return err
				}
			}
		}
	}
	return s.writeData(data, file)
}

func (s *session) writePart(p part) error {
	if p.note != "" {
		return s.write(p.note + "\n")
	}
	return s.writeText(p.text)
}

// maxFiles limits how many files are written for one result, because the user named only one.
const maxFiles = 100

// writeData writes data to a file, and further data to files next to it: a-2.png and a-3.png next
// to a.png.
func (s *session) writeData(data []part, file string) error {
	if file != "-" && len(data) > maxFiles {
		return exit.Fail(exit.Unexpected, "output", "--json prints all of it", fmt.Errorf("the result has %d pieces of data, but at most %d files are written", len(data), maxFiles))
	}
	for i, p := range data {
		if file == "-" {
			text := string(p.data)
			if p.kind == "" && kit.WriterIsTerminal(s.e.Stdout) { // text of the server
				text = safe.Text(text)
			}
			if err := s.write(text); err != nil {
				return err
			}
			continue
		}
		name := file
		if i > 0 {
			ext := filepath.Ext(file)
			name = strings.TrimSuffix(file, ext) + "-" + strconv.Itoa(i+1) + ext
		}
		if err := writeWhole(name, p.data); err != nil {
			return exit.Fail(exit.Unexpected, "output", "", err)
		}
		s.notes.Linef("%s: %s", safe.Line(name), kit.SizeText(len(p.data)))
	}
	return nil
}

// writeWhole writes a file. It removes the file if only a part of it could be written, for example
// on a full disk.
func writeWhole(name string, data []byte) error {
	err := os.WriteFile(name, data, 0o666)
	if path, ok := errors.AsType[*fs.PathError](err); ok && path.Op != "open" {
		if info, serr := os.Lstat(name); serr == nil && info.Mode().IsRegular() {
			_ = os.Remove(name) // err says what failed
		}
	}
	return err
}

// signature shows a tool as a function: name(arg: type, opt?: type).
func signature(name string, schema json.RawMessage) string {
	args, _ := argumentTexts(schema)
	return safe.Line(name) + args
}

// argumentTexts returns the arguments of a tool in parentheses, with and without their types.
func argumentTexts(schema json.RawMessage) (typed, plain string) {
	props, _ := targets.Properties(schema)
	var args, names []string
	for _, p := range props {
		arg := safe.Line(p.Name)
		if !p.Required {
			arg += "?"
		}
		args = append(args, arg+": "+safe.Clip(typeText(p.Schema, 0), 80))
		names = append(names, arg)
	}
	return "(" + strings.Join(args, ", ") + ")", "(" + strings.Join(names, ", ") + ")"
}

const maxTypeDepth = 3

// typeText shows a schema as a type: integer, string[], "a" | "b".
func typeText(schema json.RawMessage, depth int) string {
	if len(schema) == 0 || schema[0] != '{' || depth > maxTypeDepth {
		return "any"
	}
	var s struct {
		Type  json.RawMessage
		Enum  []json.RawMessage
		Const json.RawMessage
		Items json.RawMessage
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
		Ref   string            `json:"$ref"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return "any"
	}
	switch {
	case s.Enum != nil:
		return alternatives(s.Enum, func(v json.RawMessage) string { return string(jsonwire.AppendCompact(nil, v)) })
	case s.Const != nil:
		return string(s.Const)
	case s.OneOf != nil || s.AnyOf != nil:
		return alternatives(append(s.OneOf, s.AnyOf...), func(v json.RawMessage) string { return typeText(v, depth+1) })
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case len(s.Type) == 0:
		return "any"
	case s.Type[0] == '[':
		var types []json.RawMessage
		_ = json.Unmarshal(s.Type, &types) // it is an array
		return alternatives(types, func(v json.RawMessage) string { return strings.Trim(string(v), `"`) })
	}
	kind := strings.Trim(string(s.Type), `"`)
	if kind == "array" && s.Items != nil {
		if item := typeText(s.Items, depth+1); item != "any" {
			if strings.Contains(item, " ") {
				item = "(" + item + ")"
			}
			return item + "[]"
		}
	}
	return kind
}

func alternatives(list []json.RawMessage, text func(json.RawMessage) string) string {
	var parts []string
	for i, v := range list {
		if i == 12 {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, text(v))
	}
	return strings.Join(parts, " | ")
}
