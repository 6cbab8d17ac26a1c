package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	"mcpwire/internal/jsonwire"
)

// ContentBlock is a block of a tool's result, of a prompt's message or of a sampling message: [TextContent], [ImageContent], [AudioContent],
// [ResourceLink], [EmbeddedResource], and for sampling [ToolUseContent] and [ToolResultContent]; or [UnknownContent]. What this package reads are
// values, not pointers; pointers are content too.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-result)
type ContentBlock interface {
	// AppendJSON appends the block's JSON text. It is valid if [CheckContent] finds no fault with the block.
	AppendJSON(dst []byte) []byte
	// AppendRevision appends the block's JSON text without what the revision does not have. A kind of block that it lacks becomes a
	// text that says what was there.
	AppendRevision(dst []byte, r Revision) []byte
	check() error
}

// UnknownContent is a block of a kind that this package does not know.
type UnknownContent struct {
	Raw json.RawMessage // the whole block, an object
}

// AppendJSON implements [ContentBlock].
func (v UnknownContent) AppendJSON(dst []byte) []byte { return v.AppendRevision(dst, RevisionNone) }

// AppendRevision implements [ContentBlock].
func (v UnknownContent) AppendRevision(dst []byte, _ Revision) []byte {
	return jsonwire.AppendCompact(dst, v.Raw)
}

// MarshalJSON implements [json.Marshaler].
func (v UnknownContent) MarshalJSON() ([]byte, error) {
	return v.AppendRevision(nil, RevisionNone), nil
}

// ErrorResult returns the result of a tool that failed, with a text that a model can act on.
func ErrorResult(format string, args ...any) *CallToolResult {
	return &CallToolResult{Content: []ContentBlock{TextContent{Text: fmt.Sprintf(format, args...)}}, IsError: true}
}

// ParseContent reads one block, of any kind. data is valid JSON; it is not kept. The error is a [*DecodeError].
func ParseContent(data []byte) (ContentBlock, error) {
	c, err := readBlock(data, true)
	return c, err.orNil()
}

// readBlock reads a block of the kind that its type names. The kinds about tools are of sampling alone; elsewhere they are unknown, which also keeps the
// results of tools from nesting.
func readBlock(text []byte, sampling bool) (ContentBlock, *DecodeError) {
	if !isObject(text) {
		return nil, &DecodeError{Problem: "expected an object"}
	}
	kind := ""
	members := jsonwire.ObjectMembers(text)
	for kind == "" && members.Next() {
		if members.KeyIs("type") { // a second one is an error of the type that reads it
			var ok bool
			if kind, ok = stringOf(members.Value()); !ok {
				return nil, &DecodeError{Path: "type", Problem: "expected a string"}
			}
		}
	}
	switch kind {
	case "":
		return nil, &DecodeError{Path: "type", Problem: "missing"}
	case "text":
		return readValue(text, (*TextContent).read)
	case "image":
		return readValue(text, (*ImageContent).read)
	case "audio":
		return readValue(text, (*AudioContent).read)
	case "resource_link":
		return readValue(text, (*ResourceLink).read)
	case "resource":
		return readValue(text, (*EmbeddedResource).read)
	case "tool_use":
		if sampling {
			return readValue(text, (*ToolUseContent).read)
		}
	case "tool_result":
		if sampling {
			return readValue(text, (*ToolResultContent).read)
		}
	}
	return UnknownContent{Raw: bytes.Clone(text)}, nil
}

func readValue[T ContentBlock](text []byte, read func(*T, []byte) *DecodeError) (ContentBlock, *DecodeError) {
	var v T
	if err := read(&v, text); err != nil {
		return nil, err
	}
	return v, nil
}

func (r *reader) block(dst *ContentBlock) {
	var err *DecodeError
	*dst, err = readBlock(r.val, false)
	r.wrong(err)
}

func (r *reader) blocks(dst *[]ContentBlock) { r.readBlocks(dst, false) }

func (r *reader) readBlocks(dst *[]ContentBlock, sampling bool) {
	*dst = []ContentBlock{}
	r.array(func(element []byte) *DecodeError {
		c, err := readBlock(element, sampling)
		if err == nil {
			*dst = append(*dst, c)
		}
		return err
	})
}

// putBlocks appends an array of blocks, also if it is empty or nil. Blocks that are nil are passed over.
func putBlocks(dst []byte, key string, blocks []ContentBlock, r Revision) []byte {
	dst = append(putKey(dst, key), '[')
	first := true
	for _, c := range blocks {
		if c = byValue(c); c == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = c.AppendRevision(dst, r)
	}
	return append(dst, ']')
}

// appendNote appends a text in place of what a revision does not have.
func appendNote(dst []byte, note string) []byte { return TextContent{Text: note}.AppendJSON(dst) }

func (v AudioContent) note(r Revision) string {
	return fmt.Sprintf("[%s, %d bytes: revision %s has no audio content]", v.MIMEType, len(v.Data), r)
}

func (v ResourceLink) note(Revision) string { return fmt.Sprintf("[resource %s: %s]", v.Name, v.URI) }

func (v ToolUseContent) note(Revision) string {
	return fmt.Sprintf("[call of the tool %s with %s]", v.Name, jsonwire.AppendCompact(nil, v.Input))
}

func (v ToolResultContent) note(r Revision) string {
	return fmt.Sprintf("[result of tool call %s: %s]", v.ToolUseID, blocksText(v.Content, r))
}
