package era

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A header repeats text of a message unchanged if HTTP preserves it, and else as the Base64 of its
// UTF-8 between a prefix and a suffix
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#value-encoding).
// Both are case-sensitive.
const (
	headerPrefix = "=?base64?"
	headerSuffix = "?="
)

// isEncodedHeader reports if s has the prefix and the suffix. They must not overlap, as in
// "=?base64?=".
func isEncodedHeader(s string) bool {
	return len(s) >= len(headerPrefix)+len(headerSuffix) && strings.HasPrefix(s, headerPrefix) && strings.HasSuffix(s, headerSuffix)
}

// PlainHeaderValue reports if EncodeHeaderValue returns s unchanged.
func PlainHeaderValue(s string) bool {
	i := 0
	for ; len(s)-i >= 8; i += 8 { // most headers are several words long
		// A borrow or a carry comes only from an invalid byte.
		if w := word8(s[i:]); ((w-' '*lows)|(w+lows)|w)&highs != 0 {
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

// Words with the lowest, or the highest, bit of each byte.
const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// word8 returns the first eight bytes of s.
func word8(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// EncodeHeaderValue returns the header value for s, which is usually s itself.
func EncodeHeaderValue(s string) string {
	if PlainHeaderValue(s) {
		return s
	}
	return string(AppendHeaderValue(make([]byte, 0, len(headerPrefix)+base64.StdEncoding.EncodedLen(len(s))+len(headerSuffix)), s))
}

// AppendHeaderValue appends the result of EncodeHeaderValue.
func AppendHeaderValue(dst []byte, s string) []byte {
	if PlainHeaderValue(s) {
		return append(dst, s...)
	}
	dst = append(dst, headerPrefix...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(s))
	return append(dst, headerSuffix...)
}

// EncodeHeaderArgument returns the header value for the JSON text of an argument. ok is false if it
// has none: null, an object or an array.
func EncodeHeaderArgument(text []byte) (value string, ok bool) {
	switch text[0] {
	case '"':
		return EncodeHeaderValue(jsonwire.Text(text)), true
	case 't', 'f':
		return string(text), true
	case 'n', '{', '[':
		return "", false
	}
	f, _ := strconv.ParseFloat(string(text), 64)
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 && bytes.ContainsAny(text, ".eE") {
		// 42.0 is an integer.
		return strconv.FormatFloat(f, 'f', 0, 64), true
	}
	return string(text), true
}

var (
	errHeaderBytes = errors.New("contains bytes that are not visible ASCII: encode it")
	errHeaderText  = errors.New("is Base64 of invalid UTF-8")
)

// DecodeHeaderValue returns the text of a header value. It ignores white space around the value.
// The error text is meant to follow the header's name, and does not contain the value.
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
		return "", fmt.Errorf("is not Base64 with the standard alphabet and padding: %w", err)
	}
	if !utf8.Valid(text) {
		return "", errHeaderText
	}
	return string(text), nil
}

// NameParam returns the param that the header Mcp-Name repeats for a method, or ""
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
