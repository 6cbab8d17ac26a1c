package streamable

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// How text of a message stands in a header that mirrors it: as it is if it survives that unchanged, and else as Base64 of its UTF-8 between two marks
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#value-encoding). The marks are compared exactly: text that
// only looks like them is text.
const (
	mirrorPrefix = "=?base64?"
	mirrorSuffix = "?="
)

// isMarked reports whether s stands between the marks. They may not overlap, as in "=?base64?=".
func isMarked(s string) bool {
	return len(s) >= len(mirrorPrefix)+len(mirrorSuffix) && strings.HasPrefix(s, mirrorPrefix) && strings.HasSuffix(s, mirrorSuffix)
}

// isPlain reports whether s can stand in a header as it is.
func isPlain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' ' && !isMarked(s)
}

// encodeHeaderValue returns s as the value of a header. It is s itself for most.
func encodeHeaderValue(s string) string {
	if isPlain(s) {
		return s
	}
	return string(appendHeaderValue(make([]byte, 0, len(mirrorPrefix)+base64.StdEncoding.EncodedLen(len(s))+len(mirrorSuffix)), s))
}

// appendHeaderValue appends what encodeHeaderValue returns.
func appendHeaderValue(dst []byte, s string) []byte {
	if isPlain(s) {
		return append(dst, s...)
	}
	dst = append(dst, mirrorPrefix...)
	dst = base64.StdEncoding.AppendEncode(dst, []byte(s))
	return append(dst, mirrorSuffix...)
}

var (
	errHeaderBytes = errors.New("has bytes that are no visible ASCII: encode it")
	errHeaderText  = errors.New("is Base64 of something that is no UTF-8")
)

// decodeHeaderValue returns the text that the value of a header stands for. White space around the value is no part of it. The error says what is wrong with
// it, to stand behind the header's name, and has nothing of the value in it.
func decodeHeaderValue(s string) (string, error) {
	s = strings.Trim(s, " \t")
	for i := 0; i < len(s); i++ {
		if (s[i] < ' ' || s[i] > '~') && s[i] != '\t' {
			return "", errHeaderBytes
		}
	}
	if !isMarked(s) {
		return s, nil
	}
	if strings.IndexByte(s, '\t') >= 0 {
		return "", errHeaderBytes
	}
	text, err := base64.StdEncoding.Strict().DecodeString(s[len(mirrorPrefix) : len(s)-len(mirrorSuffix)])
	if err != nil {
		return "", fmt.Errorf("is not in Base64 with the standard alphabet and padding: %w", err)
	}
	if !utf8.Valid(text) {
		return "", errHeaderText
	}
	return string(text), nil
}
