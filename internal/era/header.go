package era

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"mcpwire/mcp"
)

// How text of a message stands in a header that mirrors it: as it is if it survives that unchanged, and else as Base64 of its UTF-8 between two marks
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#value-encoding). The marks are compared exactly: text that
// only looks like them is text.
const (
	headerPrefix = "=?base64?"
	headerSuffix = "?="
)

// isEncodedHeader reports whether s stands between the marks. They may not overlap, as in "=?base64?=".
func isEncodedHeader(s string) bool {
	return len(s) >= len(headerPrefix)+len(headerSuffix) && strings.HasPrefix(s, headerPrefix) && strings.HasSuffix(s, headerSuffix)
}

// PlainHeaderValue reports whether s can stand in a header as it is: EncodeHeaderValue leaves it so.
func PlainHeaderValue(s string) bool {
	i := 0
	for ; len(s)-i >= 8; i += 8 { // most headers that are compared with a body are as long as that several times
		if w := word8(s[i:]); ((w-' '*lows)|(w+lows)|w)&highs != 0 { // a borrow or a carry comes only from a byte that is bad itself
			return false
		}
	}
	for ; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' ' && !isEncodedHeader(s)
}

// Bytes of which each has the lowest, or the highest bit.
const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// word8 returns the first eight bytes of s.
func word8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// EncodeHeaderValue returns s as the value of a header. It is s itself for most.
func EncodeHeaderValue(s string) string {
	if PlainHeaderValue(s) {
		return s
	}
	return string(AppendHeaderValue(make([]byte, 0, len(headerPrefix)+base64.StdEncoding.EncodedLen(len(s))+len(headerSuffix)), s))
}

// AppendHeaderValue appends what EncodeHeaderValue returns.
func AppendHeaderValue(dst []byte, s string) []byte {
	if PlainHeaderValue(s) {
		return append(dst, s...)
	}
	dst = append(dst, headerPrefix...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(s))
	return append(dst, headerSuffix...)
}

var (
	errHeaderBytes = errors.New("has bytes that are no visible ASCII: encode it")
	errHeaderText  = errors.New("is Base64 of something that is no UTF-8")
)

// DecodeHeaderValue returns the text that the value of a header stands for. White space around the value is no part of it. The error says what is wrong with
// it, to stand behind the header's name, and has nothing of the value in it.
func DecodeHeaderValue(s string) (string, error) {
	s = strings.Trim(s, " \t")
	for i := 0; i < len(s); i++ {
		if (s[i] < ' ' || s[i] > '~') && s[i] != '\t' {
			return "", errHeaderBytes
		}
	}
	if !isEncodedHeader(s) {
		return s, nil
	}
	if strings.IndexByte(s, '\t') >= 0 {
		return "", errHeaderBytes
	}
	text, err := base64.StdEncoding.Strict().DecodeString(s[len(headerPrefix) : len(s)-len(headerSuffix)])
	if err != nil {
		return "", fmt.Errorf("is not in Base64 with the standard alphabet and padding: %w", err)
	}
	if !utf8.Valid(text) {
		return "", errHeaderText
	}
	return string(text), nil
}

// NameParam returns the parameter that the header Mcp-Name repeats in requests of a method, "" if there is none
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func NameParam[T ~string | ~[]byte](method T) string {
	switch string(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet:
		return "name"
	case mcp.MethodResourcesRead:
		return "uri"
	case mcp.MethodTasksGet, mcp.MethodTasksUpdate, mcp.MethodTasksCancel:
		return "taskId"
	}
	return ""
}
