package tokens

import (
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// TestCount compares with counts of tiktoken 0.14.0. TestTiktoken compares many more texts.
func TestCount(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int
	}{
		{"", 0},
		{"a", 1},
		{"Hello, world!", 4},
		{"getHTTPServerURL isn't WE'LL 1234567", 12},
		{"  indented\n\n\tx = y // 2;\r\n", 11},
		{`{"name":"read_file","inputSchema":{"type":"object"}}`, 13},
		{"naïve Straße ǅ 中文字です 한국어 हिन्दी العربية", 14},
		{"👩\u200d👩\u200d👧🏽❤\ufe0f a\u0301\u0302 \u200b\u00a0x", 17},
		{"<|endoftext|>", 7},
		{strings.Repeat("a", 1000), 125},
		{"ꙮ\U000105c0\u0897🧿", 13},
	} {
		if got := Count(tt.text); got != tt.want {
			t.Errorf("Count(%.60q) = %d, want %d", tt.text, got, tt.want)
		}
	}
}

func pieces(text string) []string {
	var list []string
	for text != "" {
		n := pieceLen(text)
		list, text = append(list, text[:n]), text[n:]
	}
	return list
}

func TestPieces(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"Hello world", []string{"Hello", " world"}},
		{"getHTTPServer", []string{"get", "HTTPServer"}},
		{"readFile URL", []string{"read", "File", " URL"}},
		{"URLs", []string{"URLs"}},
		{"don't WE'LL we'Ve x'ſ y'no", []string{"don't", " WE'LL", " we'Ve", " x'ſ", " y", "'no"}},
		{"12345678", []string{"123", "456", "78"}},
		{"a1b", []string{"a", "1", "b"}},
		{"  a", []string{" ", " a"}},
		{"a  ", []string{"a", "  "}},
		{" \n \n x", []string{" \n \n", " x"}},
		{"\n\nx", []string{"\n\n", "x"}},
		{"\tx\t\ty", []string{"\tx", "\t", "\ty"}},
		{"\u00a0\u00a0x", []string{"\u00a0", "\u00a0x"}},
		{" {\"a\":", []string{" {\"", "a", "\":"}},
		{"a/b//\n/c", []string{"a", "/b", "//\n/", "c"}},
		{"...\r\n", []string{"...\r\n"}},
		{"中文A", []string{"中文", "A"}},
		{"中Ab", []string{"中Ab"}},
		{"ǅA", []string{"ǅA"}},
		{"\u0301AB", []string{"\u0301", "AB"}},
		{"\u0301Ab", []string{"\u0301Ab"}},
		{"\u0301\u0301A", []string{"\u0301\u0301", "A"}},
		{"e\u0301A", []string{"e\u0301", "A"}},
		{"!\u0301", []string{"!\u0301"}},
		{"!!\u0301", []string{"!!\u0301"}},
		{" \u0301", []string{" \u0301"}},
		{"x\xffy", []string{"x", "\xffy"}},
		{"\U000105c0\u0897", []string{"\U000105c0\u0897"}}, // of Unicode 16
		{"😀😀 😀", []string{"😀😀", " 😀"}},
	} {
		if diff := cmp.Diff(tt.want, pieces(tt.text)); diff != "" {
			t.Errorf("pieces of %q (-want +got):\n%s", tt.text, diff)
		}
	}
}

// TestNewer fails once package unicode has the characters of newer itself. The table can go then,
// but the versions of Unicode in Go and tiktoken must be compared again.
func TestNewer(t *testing.T) {
	for _, n := range newer {
		for r := n.first; r <= n.last; r++ {
			if unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.S, unicode.P, unicode.Z) {
				t.Errorf("%U is in package unicode %s", r, unicode.Version)
			}
		}
	}
}

// TestLongPieces has texts for which an algorithm that is not linear takes many minutes.
func TestLongPieces(t *testing.T) {
	for _, unit := range []string{"a", "A", " ", "\n", "!", "中", "\u0301", "\u0301A", "ab", " \n", "Aa", "7", "\xff", "😀"} {
		text := strings.Repeat(unit, 128<<10)
		if n := Count(text); n <= 0 || n > len(text) {
			t.Errorf("%q: %d tokens in %d bytes", unit, n, len(text))
		}
	}
}

func TestAppendTool(t *testing.T) {
	for _, tt := range []struct{ tool, want string }{
		{`{}`, `{}`},
		{`{"name":"a"}`, `{"name":"a"}`},
		{
			"{ \"inputSchema\" : {\"type\": \"object\",\n\t\"x\" : [1.0, 2, null]} , \"title\":\"T\", \"description\" : \"a\\u00e9\\/ \\\"\\n\\u003c\", \"name\":\"a\", \"outputSchema\":{} }",
			`{"name":"a","description":"aé/ \"\n<","inputSchema":{"type":"object","x":[1.0,2,null]}}`,
		},
	} {
		if got := string(AppendTool([]byte("x"), []byte(tt.tool))); got != "x"+tt.want {
			t.Errorf("AppendTool(%s) = %s, want x%s", tt.tool, got, tt.want)
		}
	}
}
