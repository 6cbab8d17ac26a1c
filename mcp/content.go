package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"mcpwire/internal/jsonwire"
)

// Content is a block of a tool's result or of a prompt's message: [Text], [Image], [Audio], [ResourceLink] or [EmbeddedResource].
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-result)
type Content interface {
	// AppendJSON appends the block's JSON text. It is valid if [CheckContent] finds no fault with the block.
	AppendJSON(dst []byte) []byte
	check() error
}

// Annotations say for whom a block is, and how much it matters.
type Annotations struct {
	Audience     []Role    // empty means everybody
	Priority     *float64  // 0 to 1
	LastModified time.Time // since 2025-06-18; zero is left out
}

// A Role is a side of the conversation with the model.
type Role string

// The roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Text is a text block.
type Text struct {
	Text        string
	Annotations *Annotations
	Meta        json.RawMessage // an object, since 2025-06-18; may be nil
}

// Image is a picture.
type Image struct {
	Data        []byte // not encoded
	MIMEType    string
	Annotations *Annotations
	Meta        json.RawMessage
}

// Audio is sound, since 2025-03-26.
type Audio struct {
	Data        []byte // not encoded
	MIMEType    string
	Annotations *Annotations
	Meta        json.RawMessage
}

// ResourceLink points to a resource that the client may read, since 2025-06-18.
type ResourceLink struct {
	URI         string
	Name        string
	Title       string
	Description string
	MIMEType    string
	Size        *int64 // bytes
	Icons       []Icon // since 2025-11-25
	Annotations *Annotations
	Meta        json.RawMessage
}

// EmbeddedResource is a resource's content within a result.
type EmbeddedResource struct {
	Resource    ResourceContents
	Annotations *Annotations
	Meta        json.RawMessage
}

// ResourceContents is what a resource holds: Text, or Blob if that is not nil.
type ResourceContents struct {
	URI      string
	MIMEType string
	Text     string
	Blob     []byte // not encoded
	Meta     json.RawMessage
}

// AppendJSON implements [Content].
func (c Text) AppendJSON(dst []byte) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"type":"text","text":`...), c.Text)
	o := object{dst: dst, more: true}
	return o.tail(c.Annotations, c.Meta)
}

// AppendJSON implements [Content].
func (c Image) AppendJSON(dst []byte) []byte {
	return appendMedia(append(dst, `{"type":"image","data":"`...), c.Data, c.MIMEType, c.Annotations, c.Meta)
}

// AppendJSON implements [Content].
func (c Audio) AppendJSON(dst []byte) []byte {
	return appendMedia(append(dst, `{"type":"audio","data":"`...), c.Data, c.MIMEType, c.Annotations, c.Meta)
}

func appendMedia(dst, data []byte, mimeType string, a *Annotations, meta []byte) []byte {
	dst = append(base64.StdEncoding.AppendEncode(dst, data), '"')
	o := object{dst: dst, more: true}
	o.must("mimeType", mimeType)
	return o.tail(a, meta)
}

// AppendJSON implements [Content].
func (c ResourceLink) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, `{"type":"resource_link"`...), more: true}
	o.must("uri", c.URI)
	o.must("name", c.Name)
	o.text("title", c.Title)
	o.text("description", c.Description)
	o.text("mimeType", c.MIMEType)
	if c.Size != nil {
		o.key("size")
		o.dst = strconv.AppendInt(o.dst, *c.Size, 10)
	}
	if len(c.Icons) > 0 {
		o.key("icons")
		o.dst = AppendIcons(o.dst, c.Icons)
	}
	return o.tail(c.Annotations, c.Meta)
}

// AppendJSON implements [Content].
func (c EmbeddedResource) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, `{"type":"resource"`...), more: true}
	o.key("resource")
	o.dst = c.Resource.AppendJSON(o.dst)
	return o.tail(c.Annotations, c.Meta)
}

// AppendJSON appends the contents' JSON text.
func (c ResourceContents) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.must("uri", c.URI)
	o.text("mimeType", c.MIMEType)
	if c.Blob != nil {
		o.key("blob")
		o.dst = append(base64.StdEncoding.AppendEncode(append(o.dst, '"'), c.Blob), '"')
	} else {
		o.must("text", c.Text)
	}
	o.raw("_meta", c.Meta)
	return o.end()
}

// tail appends what all blocks may have, and the closing brace.
func (o *object) tail(a *Annotations, meta []byte) []byte {
	if a != nil {
		o.key("annotations")
		o.dst = a.appendJSON(o.dst)
	}
	o.raw("_meta", meta)
	return o.end()
}

func (a *Annotations) appendJSON(dst []byte) []byte {
	o := beginObject(dst)
	if len(a.Audience) > 0 {
		o.key("audience")
		o.dst = append(o.dst, '[')
		for i, r := range a.Audience {
			if i > 0 {
				o.dst = append(o.dst, ',')
			}
			o.dst = jsonwire.AppendQuote(o.dst, r)
		}
		o.dst = append(o.dst, ']')
	}
	if a.Priority != nil {
		o.key("priority")
		o.dst = strconv.AppendFloat(o.dst, *a.Priority, 'g', -1, 64)
	}
	if !a.LastModified.IsZero() {
		o.must("lastModified", a.LastModified.Format(time.RFC3339Nano))
	}
	return o.end()
}

// CallToolResult is what a tool answers (https://modelcontextprotocol.io/specification/2026-07-28/schema#calltoolresult).
type CallToolResult struct {
	Content           []Content
	StructuredContent json.RawMessage // JSON text, since 2025-06-18; nil is left out, null is a value
	IsError           bool            // the tool failed: Content says how
	Meta              json.RawMessage // an object; may be nil
}

// ErrorResult returns the result of a tool that failed, with a text that a model can act on.
func ErrorResult(format string, args ...any) *CallToolResult {
	return &CallToolResult{Content: []Content{Text{Text: fmt.Sprintf(format, args...)}}, IsError: true}
}
