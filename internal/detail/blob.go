package detail

import (
	"bytes"
	"encoding/base64"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
	"mcpwire/internal/wireview"
)

const (
	maxBlobs    = 16      // in one payload that are told apart from other long strings
	minBlob     = 64      // characters; shorter data are shown in full
	blobPrefix  = 24      // characters that are shown
	maxPreview  = 1 << 20 // bytes of data that a page gets to show
	maxPreviews = 4 << 20 // of all in one payload
)

// writeBlob writes a string in short if it is data in Base64, and reports whether it has.
func (jp *jsonPrinter) writeBlob(text []byte) bool {
	if len(text) < minBlob || len(jp.blobs) >= maxBlobs || jp.depth == 0 || jp.depth > maxIndent || jp.kinds[jp.depth-1] != '{' {
		return false
	}
	data := text
	media := ""
	if rest, ok := bytes.CutPrefix(text, []byte("data:")); ok { // https://www.rfc-editor.org/rfc/rfc2397
		head, body, ok := bytes.Cut(rest[:min(len(rest), 256)], []byte(";base64,"))
		if !ok {
			return false
		}
		media = string(head)
		data = rest[len(rest[:min(len(rest), 256)])-len(body):]
	} else if f := &jp.path[jp.depth-1]; string(f.name) == "data" || string(f.name) == "blob" {
		if !f.mediaKnown && jp.mediaLookups < maxBlobs {
			f.mediaKnown, f.media = true, mediaOf(f.object)
			jp.mediaLookups++
		}
		media = f.media
	}
	if media == "" || len(data) < minBlob || !isBase64(data) {
		return false
	}
	b := Blob{MediaType: printable.Line(media[:min(len(media), 100)]), Len: int64(base64.StdEncoding.DecodedLen(len(data)) - (len(data) - len(bytes.TrimRight(data, "="))))}
	b.Pointer, _ = jp.pointer()
	b.Pointer = printable.Line(b.Pointer)
	jp.preview(&b, media, data)
	jp.blobs = append(jp.blobs, b)
	jp.lines[len(jp.lines)-1].Blob = len(jp.blobs)
	shown := min(len(text), len(text)-len(data)+blobPrefix)
	writeText(jp.lineWriter, text[:shown], String)
	writeText(jp.lineWriter, " … "+b.MediaType+", "+trace.FormatSize(b.Len)+" ", Annotation)
	jp.omittedBytes += int64(len(text) - shown)
	return true
}

// mediaOf returns the mimeType of an object.
func mediaOf(object []byte) string {
	for m := jsonwire.ObjectMembers(object); m.Next(); {
		if v := m.Value(); m.KeyIs("mimeType") && len(v) > 2 && v[0] == '"' && len(v) < 256 {
			return jsonwire.UnquoteString(v[1 : len(v)-1])
		}
	}
	return ""
}

func isBase64(text []byte) bool {
	if len(text)%4 != 0 {
		return false
	}
	body := bytes.TrimRight(text, "=")
	if len(text)-len(body) > 2 {
		return false
	}
	for _, c := range body {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/') {
			return false
		}
	}
	return true
}

// preview decodes what can be shown as a picture or heard. Kinds that can carry script, as SVG does, are not among it.
func (jp *jsonPrinter) preview(b *Blob, media string, text []byte) {
	kind, _, _ := strings.Cut(strings.ToLower(media), ";")
	begins, ok := map[string][]string{
		"image/png": {"\x89PNG\r\n\x1a\n"}, "image/jpeg": {"\xff\xd8\xff"}, "image/gif": {"GIF87a", "GIF89a"}, "image/webp": {"RIFF"},
		"audio/wav": {"RIFF"}, "audio/x-wav": {"RIFF"}, "audio/mpeg": {"ID3", "\xff\xfb", "\xff\xf3", "\xff\xf2"}, "audio/mp3": {"ID3", "\xff\xfb", "\xff\xf3", "\xff\xf2"},
		"audio/ogg": {"OggS"}, "audio/flac": {"fLaC"},
	}[strings.TrimSpace(kind)]
	if !ok {
		return
	}
	var head [24]byte // of 32 characters
	n, _ := base64.StdEncoding.Decode(head[:], text[:32])
	for _, begin := range begins {
		if bytes.HasPrefix(head[:n], []byte(begin)) {
			b.Preview, _, _ = strings.Cut(kind, "/")
		}
	}
	if b.Preview == "" || b.Len > maxPreview || int(b.Len) > jp.previewBytesLeft {
		return
	}
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		b.Preview = ""
		return
	}
	jp.previewBytesLeft -= len(data)
	b.Data = data
}
