package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"mcpwire/internal/json/jsonwire"
)

// ContentBlock is a block of a tool's result, of a prompt's message or of a sampling message:
// [TextContent], [ImageContent], [AudioContent], [ResourceLink], [EmbeddedResource], and for
// sampling [ToolUseContent] and [ToolResultContent]; or [UnknownContent]. Decoding produces values,
// not pointers; pointers also implement the interface.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#tool-result)
type ContentBlock interface {
	// appendRevision appends the block's JSON text without what the revision lacks. A kind of block
	// that the revision lacks becomes a text that describes it. The text is valid if [CheckContent]
	// returns no error.
	appendRevision(dst []byte, r Revision) []byte
	check() error
}

// UnknownContent is a block of a kind that this package does not know.
type UnknownContent struct {
	// Raw is the whole block, an object.
	Raw json.RawMessage
}

// appendRevision implements [ContentBlock].
func (v UnknownContent) appendRevision(dst []byte, _ Revision) []byte {
	return jsonwire.AppendCompact(dst, v.Raw)
}

// MarshalJSON implements [json.Marshaler].
func (v UnknownContent) MarshalJSON() ([]byte, error) {
	return v.appendRevision(nil, RevisionNone), nil
}

// ParseContent decodes one block of any kind. data must be valid JSON; it is not kept. The error is
// a [*DecodeError].
func ParseContent(data []byte) (ContentBlock, error) {
	c, err := readBlock(data, true)
	return c, err.orNil()
}

// readBlock decodes a block of the kind in its type. The tool kinds exist only in sampling;
// elsewhere they are unknown, so that tool results cannot nest.
func readBlock(text []byte, sampling bool) (ContentBlock, *DecodeError) {
	if !isObject(text) {
		return nil, &DecodeError{Problem: "expected an object"}
	}
	kindText := jsonwire.Lookup(bytes.TrimSpace(text), "type") // readValue rejects a second one
	kind, ok := jsonwire.String(kindText)
	if kindText != nil && !ok {
		return nil, &DecodeError{Path: "type", Problem: "expected a string"}
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

// putBlocks appends an array of blocks even if it is empty or nil. It skips nil blocks.
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
		dst = c.appendRevision(dst, r)
	}
	return append(dst, ']')
}

// appendNote appends a text in place of a block that a revision lacks.
func appendNote(dst []byte, note string) []byte {
	return TextContent{Text: note}.appendRevision(dst, RevisionNone)
}

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

// CheckContent returns the block by value, also if c is a pointer. It returns an error if the
// block's JSON text would be invalid (for example, a Meta that is not a JSON object, or a priority
// outside of 0 to 1), or if c is nil.
func CheckContent(c ContentBlock) (ContentBlock, error) {
	if c = byValue(c); c == nil {
		return nil, errors.New("content block is nil")
	}
	return c, c.check()
}

// byValue returns the block that c points to, nil for a nil pointer, and otherwise c.
func byValue(c ContentBlock) ContentBlock {
	switch p := c.(type) {
	case *TextContent:
		c = deref(p)
	case *ImageContent:
		c = deref(p)
	case *AudioContent:
		c = deref(p)
	case *ResourceLink:
		c = deref(p)
	case *EmbeddedResource:
		c = deref(p)
	case *ToolUseContent:
		c = deref(p)
	case *ToolResultContent:
		c = deref(p)
	case *UnknownContent:
		c = deref(p)
	}
	return c
}

func deref[T ContentBlock](p *T) ContentBlock {
	if p == nil {
		return nil
	}
	return *p
}

func checkMeta(meta []byte) error { return checkObject("_meta", meta) }

// checkObject returns an error unless text is nil or the JSON text of an object.
func checkObject(name string, text []byte) error {
	if text == nil {
		return nil
	}
	if err := jsonwire.Valid(text, 0); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !isObject(text) {
		return fmt.Errorf("%s must be a JSON object", name)
	}
	return nil
}

func (v TextContent) check() error  { return checkBlock(v.Annotations, v.Meta, v.Extra) }
func (v ImageContent) check() error { return checkBlock(v.Annotations, v.Meta, v.Extra) }
func (v AudioContent) check() error { return checkBlock(v.Annotations, v.Meta, v.Extra) }
func (v ResourceLink) check() error { return checkBlock(v.Annotations, v.Meta, v.Extra) }

func (v EmbeddedResource) check() error {
	if err := errors.Join(checkMeta(v.Resource.Meta), checkObject("Extra", v.Resource.Extra)); err != nil {
		return err
	}
	return checkBlock(v.Annotations, v.Meta, v.Extra)
}

func (v ToolUseContent) check() error {
	return errors.Join(checkObject("input", v.Input), checkMeta(v.Meta), checkObject("Extra", v.Extra))
}

func (v ToolResultContent) check() error {
	for i, c := range v.Content {
		if _, err := CheckContent(c); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	if v.StructuredContent != nil {
		if err := jsonwire.Valid(v.StructuredContent, 0); err != nil {
			return fmt.Errorf("structuredContent: %w", err)
		}
	}
	return errors.Join(checkMeta(v.Meta), checkObject("Extra", v.Extra))
}

func (v UnknownContent) check() error {
	if v.Raw == nil {
		return errors.New("content block is empty")
	}
	return checkObject("content block", v.Raw)
}

func checkBlock(a *Annotations, meta, extra []byte) error {
	if a != nil {
		if a.Priority != nil && !(*a.Priority >= 0 && *a.Priority <= 1) { // also excludes NaN
			return fmt.Errorf("annotations: priority %v is not from 0 to 1", *a.Priority)
		}
		if err := checkObject("annotations: Extra", a.Extra); err != nil {
			return err
		}
	}
	if err := checkObject("Extra", extra); err != nil {
		return err
	}
	return checkMeta(meta)
}

// ResourceContents is the content of a resource or of a part of it: Text, or Blob if that is not
// nil. The specification has the types TextResourceContents and BlobResourceContents.
// (https://modelcontextprotocol.io/specification/2026-07-28/schema#textresourcecontents)
type ResourceContents struct {
	// URI is the URI of the resource, or of a part of it.
	URI string
	// MIMEType is the media type of the content. Empty means unknown.
	MIMEType string
	// Text is the content of a text resource.
	Text string
	// Blob is the binary content, not encoded.
	Blob []byte
	// Meta exists since 2025-06-18.
	Meta json.RawMessage
	// Extra is an object with the members that no field holds.
	Extra json.RawMessage
}

// appendRevision appends the JSON text without what the revision lacks.
func (v *ResourceContents) appendRevision(dst []byte, r Revision) []byte {
	start := len(dst)
	dst = append(dst, '{')
	dst = putString(dst, `"uri":`, v.URI)
	dst = putText(dst, `"mimeType":`, v.MIMEType)
	if v.Blob != nil {
		dst = putBytes(dst, `"blob":`, v.Blob)
	} else {
		dst = putString(dst, `"text":`, v.Text)
	}
	if r.since(Revision20250618) {
		dst = putRaw(dst, `"_meta":`, v.Meta)
	}
	return putEnd(dst, start, v.Extra)
}

// MarshalJSON implements [json.Marshaler].
func (v ResourceContents) MarshalJSON() ([]byte, error) {
	return v.appendRevision(nil, RevisionNone), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. The error is a [*DecodeError].
func (v *ResourceContents) UnmarshalJSON(data []byte) error {
	*v = ResourceContents{}
	return v.read(data).orNil()
}

func (v *ResourceContents) read(text []byte) *DecodeError {
	d := readObject(text)
	hasContent := false
	for d.next() {
		switch string(d.key) {
		case "uri":
			if d.must(0) {
				d.string(&v.URI)
			}
		case "mimeType":
			if d.may(1) {
				d.text(&v.MIMEType)
			}
		case "text", "blob":
			switch {
			case string(d.val) == "null":
				d.keep()
			case hasContent:
				d.fail("text and blob exclude each other")
			case string(d.key) == "text":
				hasContent = true
				d.string(&v.Text)
			default:
				hasContent = true
				d.bytes(&v.Blob)
			}
		case "_meta":
			if d.may(2) {
				d.object(&v.Meta)
			}
		default:
			d.keep()
		}
	}
	if d.err == nil && !hasContent {
		d.err = &DecodeError{Path: "text", Problem: "missing, like blob"}
	}
	return d.end(&v.Extra, "uri")
}

// A StopReason says why sampling stopped. Models may have other reasons.
type StopReason string

// The reasons why sampling stopped.
const (
	StopReasonEndTurn      StopReason = "endTurn"
	StopReasonStopSequence StopReason = "stopSequence"
	StopReasonMaxTokens    StopReason = "maxTokens"
	StopReasonToolUse      StopReason = "toolUse" // since 2025-11-25
)

// SamplingContent is the content of a sampling message: one block, or several since 2025-11-25. One
// block is written as an object, any other number as an array. A decoded array of one block is
// recorded in Extra, as "content":[], and written as an array again.
type SamplingContent []ContentBlock

func (r *reader) sampling(dst *SamplingContent) {
	if firstByte(r.val) == '[' {
		if r.readBlocks((*[]ContentBlock)(dst), true); len(*dst) == 1 && r.err == nil {
			r.val = []byte("[]")
			r.keep()
		}
		return
	}
	one, err := readBlock(r.val, true)
	*dst = SamplingContent{one}
	r.wrong(err)
}

// putSampling appends the content of a message with the given extra. For revisions without arrays,
// several blocks become one text.
func putSampling(dst []byte, key string, c SamplingContent, extra []byte, r Revision) []byte {
	switch {
	case len(c) == 1 && byValue(c[0]) != nil && !(r.since(Revision20251125) && writtenAsArray(extra)):
		return c[0].appendRevision(putKey(dst, key), r)
	case r.since(Revision20251125):
		return putBlocks(dst, key, c, r)
	}
	return appendNote(putKey(dst, key), blocksText(c, r))
}

func writtenAsArray(extra []byte) bool {
	return firstByte(jsonwire.Lookup(bytes.TrimSpace(extra), "content")) == '['
}

func blocksText(blocks []ContentBlock, r Revision) string {
	var parts []string
	for _, c := range blocks {
		switch v := byValue(c).(type) {
		case TextContent:
			parts = append(parts, v.Text)
		case ImageContent:
			parts = append(parts, fmt.Sprintf("[%s, %d bytes]", v.MIMEType, len(v.Data)))
		case AudioContent:
			parts = append(parts, fmt.Sprintf("[%s, %d bytes]", v.MIMEType, len(v.Data)))
		case EmbeddedResource:
			parts = append(parts, fmt.Sprintf("[resource %s]", v.Resource.URI))
		case interface{ note(Revision) string }:
			parts = append(parts, v.note(r))
		}
	}
	return strings.Join(parts, "\n")
}

// putMessages appends sampling messages. For revisions that allow one block in a message, it splits
// messages of several blocks.
func putMessages(dst []byte, key string, messages []SamplingMessage, r Revision) []byte {
	dst = append(putKey(dst, key), '[')
	first := true
	put := func(m *SamplingMessage) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = m.appendRevision(dst, r)
	}
	for i := range messages {
		m := messages[i]
		if r.since(Revision20251125) || len(m.Content) < 2 {
			put(&m)
			continue
		}
		for k := range m.Content {
			m.Content = messages[i].Content[k : k+1]
			put(&m)
		}
	}
	return append(dst, ']')
}

// Reference is the subject of a completion: a [PromptReference] or a [ResourceTemplateReference].
// Decoding produces values, not pointers.
type Reference interface {
	// appendRevision appends the JSON text without what the revision lacks.
	appendRevision(dst []byte, r Revision) []byte
	isReference()
}

func (PromptReference) isReference()           {}
func (ResourceTemplateReference) isReference() {}

func (r *reader) reference(dst *Reference) {
	if !isObject(r.val) {
		r.fail("expected an object")
		return
	}
	switch jsonwire.Text(jsonwire.Lookup(r.val, "type")) { // read rejects a second one
	case "ref/prompt":
		var ref PromptReference
		r.wrong(ref.read(r.val))
		*dst = ref
	case "ref/resource":
		var ref ResourceTemplateReference
		r.wrong(ref.read(r.val))
		*dst = ref
	default:
		r.wrong(&DecodeError{Path: "type", Problem: `expected "ref/prompt" or "ref/resource"`})
	}
}
