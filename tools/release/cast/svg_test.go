package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseLine(t *testing.T) {
	for _, tt := range []struct {
		line string
		want []segment
	}{
		{"plain", []segment{{text: "plain"}}},
		{"a\x1b[1;31mb\x1b[0mc", []segment{{text: "a"}, {style: style{color: palette[1], bold: true}, column: 1, text: "b"}, {column: 2, text: "c"}}},
		{"\x1b[38;5;208mé\x1b[39mx", []segment{{style: style{color: "#ff8700"}, text: "é"}, {column: 1, text: "x"}}},
		{"\x1b[48;2;1;2;3;7mx", []segment{{style: style{back: "#010203", reverse: true}, text: "x"}}},
		{"\x1b[2mx\x1b[22my", []segment{{style: style{dim: true}, text: "x"}, {column: 1, text: "y"}}},
		{"\x1b[38;5m", nil},
		{"\x1b[1", nil},
	} {
		got, _ := parseLine(tt.line, style{})
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(style{}, segment{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.line, diff)
		}
	}
}

// TestAnimate checks that a picture is XML, has each line once, and shows each frame in its time.
func TestAnimate(t *testing.T) {
	svg := animate([]frame{{"same\n<a>", time.Second}, {"same\n<b>", 3 * time.Second}})
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
	for text, want := range map[string]int{
		">same<": 1, ">&lt;a&gt;<": 1, "25.000%{visibility:hidden}": 1, "{0%{visibility:hidden}25.000%{visibility:visible}100%{visibility:visible}}": 1, `class="f f1 still"`: 1,
	} {
		if got := strings.Count(svg, text); got != want {
			t.Errorf("%q is there %d times, want %d, in %s", text, got, want, svg)
		}
	}
}

// TestPicture checks that the picture of the README is one of this program.
func TestPicture(t *testing.T) {
	data, err := os.ReadFile("../../../doc/pictures/cast.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"WEATHER_API_KEY is missing", "[7 Timing]", "prefers-reduced-motion"} {
		if !strings.Contains(string(data), text) {
			t.Errorf("doc/pictures/cast.svg does not show %q", text)
		}
	}
	if len(data) > 300_000 {
		t.Errorf("doc/pictures/cast.svg has %d bytes, want at most 300,000", len(data))
	}
}
