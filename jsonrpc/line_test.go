package jsonrpc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A stream and what a framer makes of it; see readAll.
type streamTest struct {
	name   string
	stream string
	max    int
	want   []string
}

const end = "end EOF"

var tooLarge20 = "error -32600 " + newTooLarge(20).Reason

var lineStreams = []streamTest{
	{"nothing", "", 0, []string{end}},
	{"one", "{}\n", 0, []string{"frame {}", end}},
	{"without newline at the end", "{}\n[]", 0, []string{"frame {}", "frame []", end}},
	{"CRLF", "{}\r\n[]\r\n", 0, []string{"frame {}\r", "frame []\r", end}},
	{"lone CR is part of the line", "{}\r[]\n", 0, []string{"frame {}\r[]", end}},
	{"blank lines", "\n\r\n  \t\n{}\n\n \r\n[]\n\n", 0, []string{"frame {}", "frame []", end}},
	{"only blank lines", "\n\n \r\n", 0, []string{end}},
	{"white space at the end", "{}\n  ", 0, []string{"frame {}", end}},
	{"garbage is a frame", "{}\nhello\n[]\n", 0, []string{"frame {}", "frame hello", "frame []", end}},
	{"NUL", "\x00\n", 0, []string{"frame \x00", end}},
	{"BOM", "\ufeff{}\n", 0, []string{"frame \ufeff{}", end}},
	{"form feed is not white space", "\f\n", 0, []string{"frame \f", end}},
	{"header of the other framing, later", "{}\nContent-Length: 2\n\n{}\n", 0, []string{"frame {}", "frame Content-Length: 2", "frame {}", end}},

	{"exactly at the limit", strings.Repeat("x", 20) + "\n{}\n", 20, []string{"frame " + strings.Repeat("x", 20), "frame {}", end}},
	{"exactly at the limit at the end", strings.Repeat("x", 20), 20, []string{"frame " + strings.Repeat("x", 20), end}},
	{"one more than the limit", strings.Repeat("x", 21) + "\n{}\n", 20, []string{tooLarge20, "frame {}", end}},
	{"CR counts", strings.Repeat("x", 20) + "\r\n{}\n", 20, []string{tooLarge20, "frame {}", end}},
	{"far above the limit", "[]\n" + strings.Repeat("x", 100000) + "\n{}\n", 20, []string{"frame []", tooLarge20, "frame {}", end}},
	{"above the limit at the end", "{}\n" + strings.Repeat("x", 30), 20, []string{"frame {}", tooLarge20, end}},
	{"two above the limit", strings.Repeat("x", 30) + "\n" + strings.Repeat("y", 100) + "\n{}", 20, []string{tooLarge20, tooLarge20, "frame {}", end}},
	{"answers above the limit", `{"id":1,"result":"` + strings.Repeat("x", 20) + `"}` + "\n" + `{"result":"` + strings.Repeat("y", 20) + `","id":2}`, 20, []string{tooLarge20 + " of response 1", tooLarge20 + " of response 2", end}},
	{"large", `"` + strings.Repeat("x", 300000) + "\"\n{}\n", 0, []string{`frame "` + strings.Repeat("x", 300000) + `"`, "frame {}", end}},
}

// testStreams reads each stream whole and cut up.
func testStreams(t *testing.T, framing Framing, tests []streamTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, sizes := range [][]byte{nil, {1}, {5, 1}, {200, 255}} {
				for _, joint := range []bool{false, true} {
					got := readAll(t, &chunks{data: []byte(test.stream), sizes: sizes, joint: joint}, &FramerOptions{Framing: framing, MaxFrame: test.max})
					if diff := cmp.Diff(test.want, got); diff != "" {
						t.Fatalf("cut by %v (-want +got):\n%s", sizes, diff)
					}
				}
			}
		})
	}
}

func TestLineFraming(t *testing.T) { testStreams(t, FramingLine, lineStreams) }
