// Package raw has what the limits have in common that servers and clients are
// compared with: they find and splice bytes, and parse and check nothing. So it
// is right only for the benchmark's own messages.
package raw

import "bytes"

const (
	legacyText  = `"content":[{"type":"text","text":"`
	modernText  = `"resultType":"complete",` + legacyText
	modernOf    = `"resultType":"complete","ttlMs":0,"cacheScope":"private",`
	tools       = `"tools":[{"name":"echo","inputSchema":{"type":"object"}}]`
	initialized = `","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1.0.0"}`
	discovered  = modernOf + `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`
)

// Answer appends the response to one request, with a newline, or nothing to a
// notification.
func Answer(dst, request []byte) []byte {
	id := After(request, `"id":`, ",}")
	if id == nil {
		return dst
	}
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), id...), `,"result":{`...)
	modern := bytes.Contains(request, []byte(`"_meta"`))
	switch {
	case bytes.Contains(request, []byte(`"tools/call"`)):
		result := legacyText
		if modern {
			result = modernText
		}
		dst = append(append(dst, result...), After(request, `"text":"`, `"`)...)
		dst = append(dst, `"}]`...)
	case bytes.Contains(request, []byte(`"initialize"`)):
		dst = append(append(dst, `"protocolVersion":"`...), After(request, `"protocolVersion":"`, `"`)...)
		dst = append(dst, initialized...)
	case bytes.Contains(request, []byte(`"server/discover"`)):
		dst = append(dst, discovered...)
	case bytes.Contains(request, []byte(`"tools/list"`)):
		if modern {
			dst = append(dst, modernOf...)
		}
		dst = append(dst, tools...)
	}
	return append(dst, "}}\n"...)
}

// After returns the bytes between the first key in message and the first of the characters in end
// that follows, or nil if there is no key.
func After(message []byte, key, end string) []byte {
	_, rest, found := bytes.Cut(message, []byte(key))
	if !found {
		return nil
	}
	if i := bytes.IndexAny(rest, end); i >= 0 {
		return rest[:i]
	}
	return rest
}
