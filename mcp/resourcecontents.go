package mcp

import "encoding/json"

// ResourceContents is what a resource holds, or a part of it: Text, or Blob if that is not nil. The specification has a type for each,
// TextResourceContents and BlobResourceContents.
// (https://modelcontextprotocol.io/specification/2026-07-28/schema#textresourcecontents)
type ResourceContents struct {
	URI      string
	MIMEType string
	Text     string
	Blob     []byte          // not encoded
	Meta     json.RawMessage // since 2025-06-18
	Extra    json.RawMessage // members that no field holds, an object
}

// AppendJSON appends the JSON text of all that is set.
func (v *ResourceContents) AppendJSON(dst []byte) []byte { return v.AppendRevision(dst, RevisionNone) }

// AppendRevision appends the JSON text without what the revision does not have.
func (v *ResourceContents) AppendRevision(dst []byte, r Revision) []byte {
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
	return v.AppendRevision(nil, RevisionNone), nil
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
				d.fail("text and blob exclude one another")
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
		d.err = &DecodeError{Path: "text", Problem: "missing, and so is blob"}
	}
	return d.end(&v.Extra, "uri")
}
