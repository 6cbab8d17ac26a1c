package mcp

import (
	"fmt"
	"strings"
)

// Reasons why sampling stopped, besides others that a model may have.
const (
	StopReasonEndTurn      = "endTurn"
	StopReasonStopSequence = "stopSequence"
	StopReasonMaxTokens    = "maxTokens"
	StopReasonToolUse      = "toolUse" // since 2025-11-25
)

// SamplingContent is the content of a sampling message: one block, or several since 2025-11-25. One block is written as an object and any other
// number as an array; an array of one block that was read is remembered in Extra, as "content":[], and written as an array again.
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

// putSampling appends the content of a message with that extra. Revisions without arrays get one text instead of several blocks.
func putSampling(dst []byte, key string, c SamplingContent, extra []byte, r Revision) []byte {
	switch {
	case len(c) == 1 && byValue(c[0]) != nil && !(r.since(Revision20251125) && writtenAsArray(extra)):
		return c[0].AppendRevision(putKey(dst, key), r)
	case r.since(Revision20251125):
		return putBlocks(dst, key, c, r)
	}
	return appendNote(putKey(dst, key), blocksText(c, r))
}

func writtenAsArray(extra []byte) bool {
	if extra == nil {
		return false
	}
	d := readObject(extra)
	for d.next() {
		if string(d.key) == "content" {
			return firstByte(d.val) == '['
		}
	}
	return false
}

// blocksText returns what blocks say, for where only one text can be.
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

// putMessages appends sampling messages. A message of several blocks becomes several messages where a revision allows one block each.
func putMessages(dst []byte, key string, messages []SamplingMessage, r Revision) []byte {
	dst = append(putKey(dst, key), '[')
	first := true
	put := func(m *SamplingMessage) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = m.AppendRevision(dst, r)
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
