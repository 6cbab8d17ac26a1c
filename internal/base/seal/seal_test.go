package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
)

const purpose = "test"

// secret returns a fixed secret in place of a random one.
func secret(n byte) []byte {
	s := make([]byte, MinSecret)
	for i := range s {
		s[i] = n ^ byte(i*7)
	}
	return s
}

func ring(t testing.TB, secrets ...[]byte) *Ring {
	t.Helper()
	r := new(Ring)
	if err := r.Replace(secrets...); err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t testing.TB, r *Ring, plain, bound string) string {
	t.Helper()
	text, _, err := r.Seal(nil, purpose, []byte(plain), []byte(bound))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRoundTrip(t *testing.T) {
	for name, r := range map[string]*Ring{"ring": ring(t, secret(1)), "zero ring": new(Ring)} {
		for _, plain := range []string{"", "x", strings.Repeat("long ", 10_000)} {
			text, stamp, err := r.Seal([]byte("head "), purpose, []byte(plain), []byte("bound"))
			if err != nil {
				t.Fatal(err)
			}
			body, ok := strings.CutPrefix(string(text), "head ")
			if !ok || len(body) != Len(len(plain)) {
				t.Errorf("%s: sealed to %d bytes, want %d behind the head", name, len(body), Len(len(plain)))
			}
			got, again, err := r.Open(body, len(body), purpose, []byte("bound"))
			if err != nil || string(got) != plain || again != stamp {
				t.Errorf("%s: opened %d bytes, stamp %x, %v; want %d bytes, stamp %x", name, len(got), again, err, len(plain), stamp)
			}
		}
	}
}

// TestEveryTextDiffers checks that equal contents have different texts.
func TestEveryTextDiffers(t *testing.T) {
	r := ring(t, secret(1))
	seen := make(map[string]bool)
	for range 1000 {
		text := sealed(t, r, "same", "same")
		if seen[text] {
			t.Fatal("the same text twice")
		}
		seen[text] = true
	}
}

func TestOpenRejects(t *testing.T) {
	r := ring(t, secret(1))
	text := sealed(t, r, "plain", "bound")
	box, err := encoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(b []byte) string { return encoding.EncodeToString(b) }
	open := func(r *Ring, text string, maxLen int, purpose, bound string) error {
		_, _, err := r.Open(text, maxLen, purpose, []byte(bound))
		return err
	}
	if err := open(r, text, len(text), purpose, "bound"); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"another purpose":         open(r, text, len(text), "other", "bound"),
		"another bound":           open(r, text, len(text), purpose, "Bound"),
		"longer bound":            open(r, text, len(text), purpose, "bound "),
		"no bound":                open(r, text, len(text), purpose, ""),
		"too long":                open(r, text, len(text)-1, purpose, "bound"),
		"another secret":          open(ring(t, secret(2)), text, len(text), purpose, "bound"),
		"another ring":            open(new(Ring), text, len(text), purpose, "bound"),
		"empty":                   open(r, "", math.MaxInt, purpose, "bound"),
		"not base64":              open(r, text[:len(text)-1]+"!", math.MaxInt, purpose, "bound"),
		"padding":                 open(r, text+"=", math.MaxInt, purpose, "bound"),
		"a suffix":                open(r, text+"-TAMPERED", math.MaxInt, purpose, "bound"),
		"a line break":            open(r, text+"\n", math.MaxInt, purpose, "bound"),
		"a line break inside":     open(r, text[:9]+"\r\n"+text[9:], math.MaxInt, purpose, "bound"),
		"standard alphabet":       open(r, base64.RawStdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 80)), math.MaxInt, purpose, "bound"),
		"another format":          open(r, encode(append([]byte{2}, box[1:]...)), math.MaxInt, purpose, "bound"),
		"an unknown name":         open(r, encode(append([]byte{format}, make([]byte, len(box)-1)...)), math.MaxInt, purpose, "bound"),
		"a byte more":             open(r, encode(append(bytes.Clone(box), 0)), math.MaxInt, purpose, "bound"),
		"the head of another one": open(r, encode(append(bytes.Clone(mustBox(t, r)[:headLen]), box[headLen:]...)), math.MaxInt, purpose, "bound"),
	} {
		if !errors.Is(err, ErrOpen) || err.Error() != ErrOpen.Error() {
			t.Errorf("%s: %v, want %v", name, err, ErrOpen)
		}
	}
}

func mustBox(t *testing.T, r *Ring) []byte {
	box, err := encoding.DecodeString(sealed(t, r, "plain", "bound"))
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// TestEveryBit flips each bit of a text's bytes, and of the text itself, and cuts it at each
// length.
func TestEveryBit(t *testing.T) {
	r := ring(t, secret(1))
	text := sealed(t, r, "plain", "bound")
	refused := func(text string, what string, i int) {
		if got, _, err := r.Open(text, math.MaxInt, purpose, []byte("bound")); err != ErrOpen || got != nil {
			t.Errorf("%s %d: opened to %q, %v", what, i, got, err)
		}
	}
	box, err := encoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(box) * 8 {
		b := bytes.Clone(box)
		b[i/8] ^= 1 << (i % 8)
		refused(encoding.EncodeToString(b), "bit", i)
	}
	for i := range len(text) * 8 {
		b := []byte(text)
		b[i/8] ^= 1 << (i % 8)
		refused(string(b), "bit of the text", i)
	}
	for i := range len(text) {
		refused(text[:i], "cut at", i)
	}
}

func TestRotation(t *testing.T) {
	r := ring(t, secret(1))
	old := sealed(t, r, "old", "")
	opens := func(text string) bool {
		_, _, err := r.Open(text, math.MaxInt, purpose, nil)
		return err == nil
	}
	if err := r.Replace(secret(2), secret(1)); err != nil {
		t.Fatal(err)
	}
	fresh := sealed(t, r, "new", "")
	if !opens(old) || !opens(fresh) {
		t.Error("a ring with both secrets does not open what each has sealed")
	}
	if _, _, err := ring(t, secret(1)).Open(fresh, math.MaxInt, purpose, nil); err == nil {
		t.Error("the old secret still seals")
	}
	if err := r.Replace(secret(2)); err != nil {
		t.Fatal(err)
	}
	if opens(old) || !opens(fresh) {
		t.Error("a removed secret still opens, or the remaining one does not")
	}
}

func TestReplaceRejects(t *testing.T) {
	r := ring(t, secret(1))
	text := sealed(t, r, "x", "")
	many := make([][]byte, maxKeys+1)
	for i := range many {
		many[i] = secret(byte(i))
	}
	for name, secrets := range map[string][][]byte{
		"none": nil, "too many": many, "short": {secret(1), secret(2)[:31]}, "twice": {secret(1), secret(2), secret(1)}, "zeros": {make([]byte, 32)}, "nil": {nil},
	} {
		if err := r.Replace(secrets...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, err := r.Open(text, math.MaxInt, purpose, nil); err != nil {
		t.Error("a failed Replace changed the ring")
	}
	if err := r.Replace(many[:maxKeys]...); err != nil {
		t.Errorf("%d secrets: %v", maxKeys, err)
	}
}

// TestSecretsAreCopied checks that the caller may overwrite the secrets.
func TestSecretsAreCopied(t *testing.T) {
	s := secret(1)
	r := ring(t, s)
	clear(s)
	if _, _, err := ring(t, secret(1)).Open(sealed(t, r, "x", ""), math.MaxInt, purpose, nil); err != nil {
		t.Error("the ring's secret changed with the caller's slice")
	}
}

func TestConcurrent(t *testing.T) {
	r := new(Ring)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				text, _, err := r.Seal(nil, purpose, []byte("x"), nil)
				if err != nil {
					t.Error(err)
				}
				if _, _, err := r.Open(string(text), math.MaxInt, purpose, nil); err != nil {
					t.Error("goroutines that used a zero ring first do not share its secret")
				}
			}
		})
	}
	wg.Wait()
}

func FuzzOpen(f *testing.F) {
	r := ring(f, secret(1))
	const text = golden
	f.Add(text, "bound")
	f.Add(text[:len(text)-1], "bound")
	f.Add(text+"=", "bound")
	f.Add("", "")
	f.Add(strings.Repeat("A", Len(0)), "")
	f.Fuzz(func(t *testing.T, s, bound string) {
		plain, _, err := r.Open(s, 1<<20, purpose, []byte(bound))
		switch {
		case err == nil && (s != text || bound != "bound"):
			t.Errorf("opened %q for %q, which was never sealed", s, bound)
		case err == nil && string(plain) != "plain":
			t.Errorf("opened to %q", plain)
		case err != nil && (err != ErrOpen || plain != nil):
			t.Errorf("%q, %v", plain, err)
		}
	})
}

// golden was sealed by an earlier process, for "bound".
const golden = "Ae99tv0OdJfxJAEpKudTAPB6Klso3CSUBvqzyCOnO6wsrUpKxMYOGDQs6WbN0jX8NMCJIFpV"

func TestGolden(t *testing.T) {
	got, _, err := ring(t, secret(1)).Open(golden, math.MaxInt, purpose, []byte("bound"))
	if err != nil || string(got) != "plain" {
		t.Errorf("%q, %v: the format has changed, so texts of other versions are lost; give it a new number", got, err)
	}
}

func BenchmarkSealOpen(b *testing.B) {
	r := ring(b, secret(1))
	plain := bytes.Repeat([]byte("x"), 1000)
	bound := make([]byte, 100)
	b.ReportAllocs()
	b.SetBytes(int64(len(plain)))
	var buf []byte
	for b.Loop() {
		var err error
		if buf, _, err = r.Seal(buf[:0], purpose, plain, bound); err != nil {
			b.Fatal(err)
		}
		if _, _, err := r.Open(string(buf), 1<<20, purpose, bound); err != nil {
			b.Fatal(err)
		}
	}
}
