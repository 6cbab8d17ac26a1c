package detail_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
)

// notify records one message and returns its detail.
func notify(t testing.TB, message string, opts *detail.Options) *detail.Detail {
	return snapshotRecord("stdio").c2s(message).detail(t, 1, opts)
}

func TestPretty(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"structure", `{"method":"x","jsonrpc":"2.0","params":{"a":[1,2.50,-0e+1,[],{ }],"b":null}}`, `{
  "method": "x",
  "jsonrpc": "2.0",
  "params": {
    "a": [
      1,
      2.50,
      -0e+1,
      [],
      {}
    ],
    "b": null
  }
}`},
		{"as on the wire", `{"jsonrpc":"2.0","method":"x","params":{"a\u0062":1e400,"d":1,"d":2,"e":"\u00e9\/\n"}}`, `{
  "jsonrpc": "2.0",
  "method": "x",
  "params": {
    "a\u0062": 1e400,
    "d": 1,
    "d": 2,
    "e": "\u00e9\/\n"
  }
}`},
		{"invisible characters", `{"jsonrpc":"2.0","method":"x","params":{"a":"x` + "\u202egpj\u200b\u200b\u200b\u200b\ufeff\u00a0" + `é🙂"}}`, `{
  "jsonrpc": "2.0",
  "method": "x",
  "params": {
    "a": "x‹U+202E RLO›gpj‹U+200B ZWSP ×4›‹U+FEFF BOM›‹U+00A0 NBSP›é🙂"
  }
}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := notify(t, tt.in, nil)
			if diff := cmp.Diff(tt.want, text(d.Request.Lines, false)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.Request.Form != detail.JSON || d.Request.OmittedBytes != 0 || d.Request.Len != int64(len(tt.in)) {
				t.Errorf("%+v", d.Request)
			}
		})
	}
}

func TestSpanKinds(t *testing.T) {
	d := notify(t, `{"jsonrpc":"2.0","method":"x","params":{"k":["a\tb~c",true,-1,"~redacted:key:0123456789ab:8~!","`+"\x7f"+`"]}}`, nil)
	want := `p[{]
  p["]n[jsonrpc]p[": "]s[2.0]p[",]
  p["]n[method]p[": "]s[x]p[",]
  p["]n[params]p[": {]
    p["]n[k]p[": []
      p["]s[a]e[\t]s[b~c]p[",]
      l[true]p[,]
      0[-1]p[,]
      p["]r[~redacted:key:0123456789ab:8~]s[!]p[",]
      p["]h[␡]p["]
    p[]]
  p[}]
p[}]`
	if diff := cmp.Diff(want, text(d.Request.Lines, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Request.Redacted != 1 {
		t.Errorf("%d placeholders", d.Request.Redacted)
	}
}

func TestRaw(t *testing.T) {
	in := "a  \r\nb\tc\xff \n\n\x1b[2J\x00\x00\x00\x00\x00e" + strings.Repeat("\u0301", 6) + "   "
	d := snapshotRecord("stdio").add(&capture.Event{Kind: capture.KindStderr, Data: []byte(in), Redacted: []string{"/data"}}).detail(t, 1, &detail.Options{Hex: true})
	want := `aw[··␍␊]
bw[␉]cb[‹FF›]w[·␊]
w[␊]
h[␛][2Jh[‹U+0000 ×5›]e` + strings.Repeat("\u0301", 4) + `h[‹U+0301 ×2›]w[···]`
	raw := d.Raw[0]
	if diff := cmp.Diff(want, text(raw.Lines, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(raw.Bytes) != in || raw.Len != int64(len(in)) || raw.OmittedBytes != 0 || len(raw.Redacted) != 1 || d.Redacted != 1 {
		t.Errorf("%+v", raw)
	}
	if diff := cmp.Diff(detail.HexRow{Offset: 0, Hex: "61 20 20 0d 0a 62 09 63  ff 20 0a 0a 1b 5b 32 4a", Text: "a  ..b.c. ...[2J"}, raw.Hex[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d.Request.Form != detail.Binary {
		t.Errorf("the form is %s", d.Request.Form)
	}
}

func TestHexRows(t *testing.T) {
	data := "0123456789abcdefXY" + strings.Repeat(" ", 16*4096)
	d := snapshotRecord("stdio").add(&capture.Event{Kind: capture.KindStderr, Data: []byte(data)}).detail(t, 1, &detail.Options{Hex: true})
	rows := d.Raw[0].Hex
	if len(rows) != 4096 {
		t.Fatalf("%d rows, want 4096", len(rows))
	}
	want := detail.HexRow{Offset: 16, Hex: "58 59 20 20 20 20 20 20  20 20 20 20 20 20 20 20", Text: "XY" + strings.Repeat(" ", 14)}
	if diff := cmp.Diff(want, rows[1]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBlobs(t *testing.T) {
	png := append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{1, 2, 3}, 100)...)
	b64 := base64.StdEncoding.EncodeToString(png)
	svg := base64.StdEncoding.EncodeToString([]byte("<svg onload=alert(1)>" + strings.Repeat(" ", 100)))
	in := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"image","data":"` + b64 + `","mimeType":"image/png"},{"mimeType":"image/svg+xml","blob":"` + svg + `"},
		{"data":"` + svg + `","mimeType":"image/png"},{"data":"` + b64 + `"},{"icon":"data:image/png;base64,` + b64 + `"},{"text":"` + b64 + `","mimeType":"image/png"}]}}`
	d := snapshotRecord("stdio").c2s(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`).s2c(in).detail(t, 1, nil)
	var got []detail.Blob
	for _, b := range d.Response.Blobs {
		if b.Data != nil && !bytes.Equal(b.Data, png) {
			t.Errorf("the data are %q", b.Data)
		}
		b.Data = nil
		got = append(got, b)
	}
	want := []detail.Blob{
		{Pointer: "/result/content/0/data", MediaType: "image/png", Len: 308, Preview: "image"},
		{Pointer: "/result/content/1/blob", MediaType: "image/svg+xml", Len: 121},
		{Pointer: "/result/content/2/data", MediaType: "image/png", Len: 121},
		{Pointer: "/result/content/4/icon", MediaType: "image/png", Len: 308, Preview: "image"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	lines := 0
	for _, l := range d.Response.Lines {
		if l.Blob > 0 {
			lines++
			if s := spans(l.Spans, false); len(s) > 150 || !strings.Contains(s, " … image/") {
				t.Errorf("a line of a blob is %s", s)
			}
		}
	}
	if lines != 4 {
		t.Errorf("%d lines have blobs, want 4", lines)
	}
}

// TestHostile shows that large or deep payloads take little memory, and are shown in part.
func TestHostile(t *testing.T) {
	long := strings.Repeat("x", 50<<20)
	envelope := func(params string) string { return `{"jsonrpc":"2.0","method":"x","params":` + params + `}` }
	for name, in := range map[string]string{
		"a long string":           envelope(`{"a":"` + long + `"}`),
		"a long name":             envelope(`{"` + long + `":1}`),
		"a long number":           envelope(`{"a":1` + strings.Repeat("0", 5<<20) + `}`),
		"deep":                    envelope(`{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`),
		"deeper":                  strings.Repeat(`{"a":[`, 1_000_000) + strings.Repeat("]}", 1_000_000),
		"many members":            envelope(`[` + strings.Repeat("1,", 5_000_000) + `1]`),
		"many lines":              strings.Repeat("\n", 5<<20),
		"nothing but white space": strings.Repeat(" ", 5<<20),
		"white space in JSON":     envelope(strings.Repeat(" ", 5<<20) + "{}"),
		"one of two is invisible": strings.Repeat("a\u200b", 1<<20),
		"one is invisible":        envelope(`{"a":"` + strings.Repeat("\u200b", 1<<20) + `"}`),
		"invalid placeholders":    envelope(`{"a":"` + strings.Repeat("~redacted:", 1<<20) + `"}`),
		"long data":               envelope(`{"data":"` + strings.Repeat("AAAA", 10<<20) + `","mimeType":"image/png"}`),
		"many data":               envelope(`[` + strings.Repeat(`{"data":"`+strings.Repeat("AAAA", 16)+`"},`, 100_000) + `1]`),
		"bad bytes":               strings.Repeat("\xff", 5<<20),
		"marks":                   "e" + strings.Repeat("\u0301\u0302", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			d := notify(t, in, nil)
			out, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			if len(out) > 6<<20 {
				t.Errorf("%d bytes of JSON", len(out))
			}
			if d.Request.OmittedBytes == 0 && len(in) > 1<<20 && name != "white space in JSON" && name != "one is invisible" && name != "nothing but white space" {
				t.Errorf("nothing was left out")
			}
			if d.Request.Len != int64(len(in)) || d.Raw[0].OmittedBytes <= 0 && len(in) > 1<<20 {
				t.Errorf("length %d, %d left of the raw bytes", d.Request.Len, d.Raw[0].OmittedBytes)
			}
		})
	}
}

// TestFindingLines shows that findings are shown at the position of their pointer, or where the
// missing value would be.
func TestFindingLines(t *testing.T) {
	r := snapshotRecord("stdio").c2s(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","a/b":[0,{"c":1}]}}`)
	for _, p := range []string{"/params/a~1b/1/c", "/params/_meta/x", "", "/nothing/at/all", "/params/a~1b/0"} {
		r.model.AddFinding("c", 1, trace.Finding{Rule: "jsonrpc/id-null", Severity: "error", Message: "m\u202e", Pointer: p})
	}
	d := r.detail(t, 1, nil)
	got := map[int]string{}
	for _, l := range d.Request.Lines {
		for _, n := range l.Findings {
			got[n] = strings.TrimSpace(spans(l.Spans, false))
		}
	}
	want := map[int]string{0: `"c": 1`, 1: `"params": {`, 3: "{", 4: "0,"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l := d.Findings[0]
	if l.Message != `m\u202e` || l.Title == "" || l.Fix == "" || l.Why == "" || !strings.HasPrefix(l.URL, "https://") || l.Event != 1 {
		t.Errorf("%+v", l)
	}
}

// FuzzOf builds details of any payload: its texts must be safe, and JSON must be complete.
func FuzzOf(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","method":"x","params":{"a":[1,"\u202e"]}}`, `[{"jsonrpc":"2.0","id":1,"method":"x"},1]`, "a \r\n\x1b\xff", `{"data":"AAAA","mimeType":"image/png"}`, "~redacted:key:0123456789ab:8~",
		`{"a":{"data":"` + strings.Repeat("AAAA", 20) + `","mimeType":"image/png"},"b":"data:image/gif;base64,R0lGODlh` + strings.Repeat("AAAA", 20) + `"}`,
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, raw bool) {
		e := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: data}
		if raw {
			e.Kind = capture.KindBody
		}
		r := snapshotRecord("stdio").add(e)
		row := r.model.Find("c", 1)
		if row == nil {
			return
		}
		d, err := detail.Build(t.Context(), r, detail.TakeSnapshot(row), &detail.Options{Hex: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*detail.Payload{d.Request, d.Response} {
			if p == nil {
				continue
			}
			checkSafe(t, p.Lines)
			if p.Form == detail.JSON && p.OmittedBytes == 0 && !p.Partial && len(data) < 5000 {
				want := string(jsonwire.AppendCompact(nil, data))
				if got := collapse(p.Lines); printable.Line(want) == want && got != collapse([]detail.Line{{Spans: []detail.Span{{Text: want}}}}) {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
		}
		for _, x := range d.Raw {
			checkSafe(t, x.Lines)
			if x.OmittedBytes == 0 && !bytes.Equal(x.Bytes, data) {
				t.Errorf("raw bytes %q", x.Bytes)
			}
		}
		if c, err := detail.CallCommand(d); err == nil && printable.Line(c.Text) != c.Text {
			t.Errorf("the command %q", c.Text)
		}
	})
}

func collapse(lines []detail.Line) string {
	return strings.ReplaceAll(strings.ReplaceAll(text(lines, false), "\n", ""), " ", "")
}

func checkSafe(t *testing.T, lines []detail.Line) {
	t.Helper()
	for _, l := range lines {
		for _, s := range l.Spans {
			if printable.Line(s.Text) != s.Text {
				t.Errorf("a span of kind %q is not safe: %q", s.Kind, s.Text)
			}
		}
	}
}
