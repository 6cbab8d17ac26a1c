package mcp

import (
	"encoding/json"

	"mcpwire/internal/jsonwire"
)

// A Tool describes a tool to clients (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool).
type Tool struct {
	Name         string
	Title        string          // since 2025-06-18
	Description  string          //
	InputSchema  json.RawMessage // JSON Schema with "type":"object" at its root
	OutputSchema json.RawMessage // since 2025-06-18, with any root since 2026-07-28; may be nil
	Annotations  *ToolAnnotations
	Icons        []Icon          // since 2025-11-25
	Meta         json.RawMessage // an object; may be nil
}

// ToolAnnotations are hints about a tool, since 2025-03-26. A nil hint is left out and has the specification's default, which is named here.
type ToolAnnotations struct {
	Title       string
	ReadOnly    *bool // false: it may change something
	Destructive *bool // true: what it changes may be lost
	Idempotent  *bool // false: calling it again changes more
	OpenWorld   *bool // true: it reaches beyond this system
}

// An Icon is a picture for a user interface, since 2025-11-25.
type Icon struct {
	Src      string   // https: or data: URI
	MIMEType string   //
	Sizes    []string // "48x48", "any"
	Theme    string   // "light", "dark" or empty
}

// An Implementation names a client or a server. The title is there since 2025-06-18, what follows it since 2025-11-25.
type Implementation struct {
	Name        string
	Version     string
	Title       string
	Description string
	WebsiteURL  string
	Icons       []Icon
}

// AppendJSON appends the annotations' JSON text.
func (a *ToolAnnotations) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.text("title", a.Title)
	o.flag("readOnlyHint", a.ReadOnly)
	o.flag("destructiveHint", a.Destructive)
	o.flag("idempotentHint", a.Idempotent)
	o.flag("openWorldHint", a.OpenWorld)
	return o.end()
}

// AppendIcons appends the JSON array of the icons.
func AppendIcons(dst []byte, icons []Icon) []byte {
	dst = append(dst, '[')
	for i, icon := range icons {
		if i > 0 {
			dst = append(dst, ',')
		}
		o := beginObject(dst)
		o.must("src", icon.Src)
		o.text("mimeType", icon.MIMEType)
		if len(icon.Sizes) > 0 {
			o.key("sizes")
			o.dst = appendStrings(o.dst, icon.Sizes)
		}
		o.text("theme", icon.Theme)
		dst = o.end()
	}
	return append(dst, ']')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, s)
	}
	return append(dst, ']')
}
