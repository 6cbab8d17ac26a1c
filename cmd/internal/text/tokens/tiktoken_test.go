package tokens

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
)

// TestTiktoken compares with the library tiktoken. TIKTOKEN_PYTHON names a Python interpreter with
// the packages of tools/interop/py/requirements.txt. MCPWIRE_CORPUS may name a folder with captures
// of real servers, whose tools are counted too.
func TestTiktoken(t *testing.T) {
	python := os.Getenv("TIKTOKEN_PYTHON")
	if python == "" {
		t.Skip("TIKTOKEN_PYTHON is not set")
	}
	texts := slices.Concat(codePoints(), randomTexts(t, 50_000), corpusTexts(t))
	var in bytes.Buffer
	for _, text := range texts {
		in.Write(jsonwire.AppendQuote(nil, text))
		in.WriteByte('\n')
	}
	cmd := exec.CommandContext(t.Context(), python, "../../../../tools/interop/py/tokens.py")
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	counts := strings.Fields(string(out))
	if len(counts) != len(texts) {
		t.Fatalf("tiktoken counted %d texts, want %d", len(counts), len(texts))
	}
	wrong, all, size := 0, 0, 0
	for i, text := range texts {
		got := Count(text)
		if want, _ := strconv.Atoi(counts[i]); got != want {
			if wrong++; wrong <= 5 {
				t.Errorf("Count(%.80q) = %d, want %d", text, got, want)
			}
		}
		all, size = all+got, size+len(text)
	}
	t.Logf("%d differences in %d texts with %d tokens and %d bytes", wrong, len(texts), all, size)
}

// codePoints returns texts that have all characters, each between letters and repeated.
func codePoints() []string {
	var list []string
	var b strings.Builder
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if utf8.ValidRune(r) {
			b.WriteString("aB" + string(r) + "C" + string(r) + string(r) + " ")
		}
		if r%64 == 0 || r == unicode.MaxRune {
			list = append(list, b.String())
			b.Reset()
		}
	}
	return list
}

// randomTexts returns n texts of all kinds, the same ones each time.
func randomTexts(t *testing.T, n int) []string {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	in := func(table *unicode.RangeTable) string {
		for {
			var first, last rune
			if i := rnd.IntN(len(table.R16) + len(table.R32)); i < len(table.R16) {
				first, last = rune(table.R16[i].Lo), rune(table.R16[i].Hi)
			} else {
				r := table.R32[i-len(table.R16)]
				first, last = rune(r.Lo), rune(r.Hi)
			}
			if r := first + rnd.Int32N(last-first+1); unicode.Is(table, r) {
				return string(r)
			}
		}
	}
	var vocab []string
	for token := range vocabulary() {
		if utf8.ValidString(token) {
			vocab = append(vocab, token)
		}
	}
	slices.Sort(vocab)
	code := sourceText(t)
	spaces := []string{" ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "    ", "\u00a0", "\u3000", "\u2028", "\v", "\u0085", "\u200b", "/", "\r"}
	contractions := []string{"'s", "'S", "'ſ", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'LL", "'d", "'x", "'", "’s", "''s"}
	words := []string{"the", "Tool", "HTTP", "createIssue", "ID", "x", "naïve", "Straße", "ǅ", "ΑΒΓ", "привет", "ŒUVRE", "a\u0301", "\u0301"}
	signs := strings.Split("! \" # $ % & ( ) * + , - . : ; < = > ? @ [ \\ ] ^ _ ` { | } ~ // ... -> :: */ ;\n }\n", " ")
	emoji := []string{"😀", "👍🏽", "👩\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "1\ufe0f\u20e3", "\u200d", "\ufe0f", "🏴\U000e0067\U000e007f", "☃"}
	cjk := []string{"中", "文字", "です", "カタカナ", "한국어", "，", "。", "「", "ไทย", "हिन्दी", "العربية", "עברית"}
	parts := []func() string{
		func() string { return pick(vocab) },
		func() string { return pick(words) },
		func() string { return pick(spaces) },
		func() string { return pick(signs) },
		func() string { return pick(words) + pick(contractions) },
		func() string { return strconv.Itoa(rnd.IntN(1_000_000_000)) },
		func() string { return pick(emoji) },
		func() string { return pick(cjk) },
		func() string { return in(unicode.M) },
		func() string { return in(unicode.Lu) },
		func() string { return in(unicode.Lt) },
		func() string { return in(unicode.Ll) },
		func() string { return in(unicode.Lm) },
		func() string { return in(unicode.Lo) },
		func() string { return in(unicode.N) },
		func() string { return in(unicode.S) },
		func() string { return in(unicode.P) },
		func() string { return in(unicode.C) },
		func() string { return strings.Repeat(pick(words)[:1], rnd.IntN(40)) },
		func() string {
			at := rnd.IntN(len(code) - 400)
			return strings.ToValidUTF8(code[at:at+1+rnd.IntN(300)], "")
		},
	}
	list := make([]string, n)
	for i := range list {
		// Few kinds in each text, so that neighbors of the same kind are common.
		kinds := make([]func() string, 1+rnd.IntN(5))
		for j := range kinds {
			kinds[j] = parts[rnd.IntN(len(parts))]
		}
		var b strings.Builder
		for range 1 + rnd.IntN(20) {
			b.WriteString(kinds[rnd.IntN(len(kinds))]())
		}
		list[i] = strings.ToValidUTF8(b.String(), "?")
	}
	return list
}

// sourceText returns source in several languages.
func sourceText(t *testing.T) string {
	var b strings.Builder
	for _, pattern := range []string{"../../../../server/*.go", "../../view/web/page/*", "../../../../tools/interop/py/*.py", "../../../../doc/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil || names == nil {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	return b.String()
}

// corpusTexts returns the definitions of tools in the captures of a corpus, as they are counted and
// as they were received, and the texts in them.
func corpusTexts(t *testing.T) []string {
	folder := os.Getenv("MCPWIRE_CORPUS")
	if folder == "" {
		t.Log("MCPWIRE_CORPUS is not set: without the tools of real servers")
		return nil
	}
	var list []string
	tools := 0
	err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(filepath.Base(name), capture.Suffix) {
			return err
		}
		r, err := capture.Open(name, nil)
		if err != nil {
			return err
		}
		defer r.Close()
		for e, err := range r.Events() {
			if err != nil {
				return err
			}
			for tool := jsonwire.ArrayElements(jsonwire.Lookup(e.Data, "result", "tools")); tool.Next(); {
				tools++
				list = append(list, string(AppendTool(nil, tool.Value())), string(tool.Value()))
				d := json.NewDecoder(bytes.NewReader(tool.Value()))
				for token, err := d.Token(); err == nil; token, err = d.Token() {
					if text, ok := token.(string); ok {
						list = append(list, text)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d texts of %d tools of the corpus", len(list), tools)
	return list
}
