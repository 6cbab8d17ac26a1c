package jsonrpc

import (
	"fmt"
	"strings"
	"testing"
)

// block is a message with its header.
func block(msg string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(msg), msg) }

func badHeader(reason string) string { return "error -32700 bad frame header: " + reason }

const (
	noLength    = "Content-Length is missing"
	cutInHeader = "error -32700 the input ended within a header"
	cutInFrame  = "error -32700 the input ended within a frame: Content-Length is larger than what followed"
)

var headerStreams = []streamTest{
	{"nothing", "", 0, []string{end}},
	{"one", block("{}"), 0, []string{"frame {}", end}},
	{"several", block("{}") + block("[]") + block("1"), 0, []string{"frame {}", "frame []", "frame 1", end}},
	{"LF alone", "Content-Length: 2\n\n{}", 0, []string{"frame {}", end}},
	{"any case, any space", "cOnTeNt-LENGTH \t:\t 2 \r\n\r\n{}CONTENT-LENGTH:2\r\n\r\n[]", 0, []string{"frame {}", "frame []", end}},
	{"Content-Type before", "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n" + block("{}"), 0, []string{"frame {}", end}},
	{"Content-Type behind", "Content-Length: 2\r\nContent-Type: x\r\nX: y:z\r\n\r\n{}", 0, []string{"frame {}", end}},
	{"bytes, not characters", "Content-Length: 6\r\n\r\n\"\u00e9\u00e9\"" + block("{}"), 0, []string{"frame \"\u00e9\u00e9\"", "frame {}", end}},
	{"line breaks in the body", block("{\n\r\n}") + block("{}"), 0, []string{"frame {\n\r\n}", "frame {}", end}},
	{"line breaks between", "\r\n\n" + block("{}") + "\r\n\r\n" + block("[]") + "\n", 0, []string{"frame {}", "frame []", end}},
	{"length 0", block("") + block("{}"), 0, []string{"frame ", "frame {}", end}},
	{"leading zeros", "Content-Length: 0002\r\n\r\n{}", 0, []string{"frame {}", end}},
	{"the same twice", "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 0, []string{"frame {}", end}},
	{"header in the body", block(block("{}")) + block("[]"), 0, []string{"frame " + block("{}"), "frame []", end}},

	{"length missing", "Content-Type: x\r\n\r\n{}" + block("[]"), 0, []string{badHeader(noLength), "frame []", end}},
	{"length empty", "Content-Length:\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "" is not a length in bytes`), "frame []", end}},
	{"length bad", "Content-Length: two\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "two" is not a length in bytes`), "frame []", end}},
	{"length hexadecimal", "Content-Length: 0x2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "0x2" is not a length in bytes`), "frame []", end}},
	{"length negative", "Content-Length: -2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "-2" is not a length in bytes`), "frame []", end}},
	{"length with a sign", "Content-Length: +2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "+2" is not a length in bytes`), "frame []", end}},
	{"length with a fraction", "Content-Length: 2.0\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "2.0" is not a length in bytes`), "frame []", end}},
	{"two lengths in one", "Content-Length: 2, 2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "2, 2" is not a length in bytes`), "frame []", end}},
	{"length of 2^64", "Content-Length: 18446744073709551616\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "18446744073709551616" is not a length in bytes`), "frame []", end}},
	{"two that differ", "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + block("[]"), 0, []string{badHeader("two Content-Length headers that differ"), "frame []", end}},
	{"no colon", "Content-Length 2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`line "Content-Length 2" is no header field`), "frame []", end}},
	{"folded line", "Content-Length: 2\r\n folded\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`line "folded" is no header field`), "frame []", end}},

	{"garbage before a header", "hello\nworld\n" + block("{}"), 0, []string{badHeader(`line "hello" is no header field`), "frame {}", end}},
	{"garbage run on", "xyz" + block("{}") + block("[]"), 0, []string{badHeader(noLength), "frame {}", "frame []", end}},
	{"NULs", "\x00\x00" + block("{}") + block("[]"), 0, []string{badHeader(`line "\x00\x00Content-Length: 2" is no header field`), "frame {}", "frame []", end}},
	{"no name", ": 2\r\n" + block("{}"), 0, []string{badHeader(`line ": 2" is no header field`), "frame {}", end}},
	{"a line of the other framing", block("{}") + "{\"a\":\"b\"}\n" + block("[]"), 0, []string{"frame {}", badHeader(`line "{\"a\":\"b\"}" is no header field`), "frame []", end}},
	{"endless header", strings.Repeat("X-Junk: 1\r\n", 2000) + block("{}"), 0, []string{badHeader("no end of the header within 8192 bytes"), "frame {}", end}},
	{"endless line", strings.Repeat("x", 20000) + block("{}"), 0, []string{badHeader("no end of the header within 8192 bytes"), "frame {}", end}},
	{"header of 8 KiB and a bit", "X: " + strings.Repeat("x", 8192) + "\r\nContent-Length: 2\r\n\r\n{}", 0, []string{badHeader("no end of the header within 8192 bytes"), "frame {}", end}},
	{"header that is looked for has a long line", "bad\n\nContent-Length:" + strings.Repeat(" ", 40) + "2\n\n{}" + block("[]"), 0, []string{badHeader(`line "bad" is no header field`), "frame []", end}},
	{"looks like a header", "bad\n\ncontent-length\nContent-Length: x\nContent-Length:\n" + block("[]"), 0, []string{badHeader(`line "bad" is no header field`), "frame []", end}},

	{"length too small", "Content-Length: 3\r\n\r\n{}{}" + block("[]") + block("1"), 0, []string{"frame {}{", badHeader(`line "}Content-Length: 2" is no header field`), "frame []", "frame 1", end}},
	{"length too large", "Content-Length: 10\r\n\r\n{}" + block("[]") + block("1"), 0, []string{"frame {}Content-", badHeader(noLength), "frame 1", end}},
	{"length larger than all there is", "Content-Length: 1000\r\n\r\n" + block("[]"), 0, []string{cutInFrame, end}},
	{"cut off in the header", block("{}") + "Content-Len", 0, []string{"frame {}", cutInHeader, end}},
	{"cut off behind the header", block("{}") + "Content-Length: 2\r\n\r\n", 0, []string{"frame {}", cutInFrame, end}},
	{"cut off before the blank line", block("{}") + "Content-Length: 2\r\n", 0, []string{"frame {}", cutInHeader, end}},
	{"cut off in the body", block("{}") + "Content-Length: 3\r\n\r\n{}", 0, []string{"frame {}", cutInFrame, end}},

	{"exactly at the limit", block(strings.Repeat("x", 20)) + block("{}"), 20, []string{"frame " + strings.Repeat("x", 20), "frame {}", end}},
	{"one more than the limit", block(strings.Repeat("x", 21)) + block("{}"), 20, []string{tooLarge20, "frame {}", end}},
	{"far above the limit", block(strings.Repeat("x", 200000)) + block("{}"), 20, []string{tooLarge20, "frame {}", end}},
	{"two above the limit", block(strings.Repeat("x", 50)) + block(strings.Repeat("y", 21)) + block("{}"), 20, []string{tooLarge20, tooLarge20, "frame {}", end}},
	{"answers above the limit", block(`{"id":1,"result":"`+strings.Repeat("x", 20)+`"}`) + block(`{"result":"`+strings.Repeat("y", 20)+`","id":2}`), 20, []string{tooLarge20 + " of response 1", tooLarge20 + " of response 2", end}},
	{"above the limit and cut off", block("{}") + "Content-Length: 50\r\n\r\nxxx", 20, []string{"frame {}", tooLarge20, end}},
	{"above the limit, and a lie", "Content-Length: 999999999999\r\n\r\n{}" + block("[]"), 20, []string{tooLarge20, "frame []", end}},
	{"above the limit, with what is nearly a header", block("Content-Length: "+strings.Repeat("9", 50)+"\n\n") + block("{}"), 20, []string{tooLarge20, "frame {}", end}},
	{"large", block(strings.Repeat("x", 300000)) + block("{}"), 0, []string{"frame " + strings.Repeat("x", 300000), "frame {}", end}},
}

func TestHeaderFraming(t *testing.T) { testStreams(t, FramingHeader, headerStreams) }
