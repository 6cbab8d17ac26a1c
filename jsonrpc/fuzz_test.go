package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/json/jsonwire"
)

// FuzzParse compares Parse with encoding/json, which is made as strict as Parse: exact names, no
// duplicates, valid UTF-8.
func FuzzParse(f *testing.F) {
	for _, test := range goodFrames {
		f.Add([]byte(test.frame))
	}
	for _, test := range badFrames {
		f.Add([]byte(test.frame))
	}
	for _, test := range brokenFrames {
		f.Add([]byte(test.frame))
	}
	for _, test := range paramTests {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":` + test.params + `}`))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if depthOf(frame) > 100 {
			return // the two libraries have different depth limits
		}
		before := bytes.Clone(frame)
		var m Message
		err := Parse(frame, &m, 0)
		if !bytes.Equal(frame, before) {
			t.Fatalf("the frame was changed to %q", frame)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("error is a %T", err)
		}
		if valid := json.Valid(frame) && utf8.Valid(frame); valid == (e != nil && e.Code == CodeParseError) {
			t.Fatalf("encoding/json says valid: %v; Parse: %v", valid, err)
		} else if !valid {
			return
		}
		checkEnvelope(t, frame, &m, err == nil)
		if err == nil {
			checkMembers(t, &m)
			checkMembers(t, m.Clone())
		}
	})
}

// depthOf returns an upper bound of the depth of a text.
func depthOf(text []byte) int {
	return bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{"))
}

// checkEnvelope compares m with the members that encoding/json finds in frame, which is valid JSON.
func checkEnvelope(t *testing.T, frame []byte, m *Message, ok bool) {
	members, twice := topLevel(t, frame)
	var version, method string
	version, versionOK := stringOf(members["jsonrpc"])
	method, methodOK := stringOf(members["method"])
	id := string(members["id"])
	hasID := id != "" && (id[0] == '"' || !strings.ContainsAny(id, ".eEtfn{["))
	_, hasMethod := members["method"]
	_, hasResult := members["result"]
	_, hasError := members["error"]
	params := string(members["params"])
	if params == "null" {
		params = ""
	}
	want := envelope{ID: id, Method: method, Params: params, Result: string(members["result"]), ErrObj: string(members["error"])}
	good := version == "2.0" && versionOK && !twice && (params == "" || params[0] == '{' || params[0] == '[')
	switch {
	case hasMethod && !hasResult && !hasError && id == "":
		want.Kind = KindNotification
		good = good && methodOK
	case hasMethod && !hasResult && !hasError:
		want.Kind = KindRequest
		good = good && methodOK && hasID
	case !hasMethod && hasResult && !hasError:
		want.Kind = KindResponse
		good = good && hasID
	case !hasMethod && !hasResult && hasError:
		want.Kind = KindError
		good = good && (id == "" || id == "null" || hasID)
	default:
		good = false
	}
	if good != ok {
		t.Fatalf("got a message: %v, want %v, from %s", ok, good, frame)
	}
	if ok {
		if diff := cmp.Diff(want, envelopeOf(m)); diff != "" {
			t.Fatalf("%s: -want +got:\n%s", frame, diff)
		}
	} else if m.Kind != KindInvalid && !hasResult && !hasError {
		t.Fatalf("%s: neither a message nor a response, but of kind %v", frame, m.Kind)
	}
}

// topLevel returns the members of an object by name, or nil for another value, and whether a member
// of the JSON-RPC envelope appears twice.
func topLevel(t *testing.T, text []byte) (members map[string]json.RawMessage, twice bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	members = make(map[string]json.RawMessage)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		key := name.(string)
		if _, dup := members[key]; dup {
			switch key {
			case "jsonrpc", "id", "method", "params", "result", "error":
				twice = true
			}
		}
		members[key] = v
	}
	return members, twice
}

func stringOf(text json.RawMessage) (s string, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(text, &s) == nil
}

// checkMembers compares Param and DuplicateParam with encoding/json.
func checkMembers(t *testing.T, m *Message) {
	if len(m.Params) == 0 || m.Params[0] != '{' {
		if _, ok := m.Param(""); ok || m.DuplicateParam() {
			t.Fatalf("there are members in %q", m.Params)
		}
		return
	}
	seen := make(map[string]int)
	last := make(map[string]string)
	d := json.NewDecoder(bytes.NewReader(m.Params))
	d.Token()
	for d.More() {
		name, _ := d.Token()
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		seen[name.(string)]++
		last[name.(string)] = string(v)
	}
	twice := false
	for name, n := range seen {
		twice = twice || n > 1
		got, ok := m.Param(name)
		if !ok || n == 1 && string(got) != last[name] {
			t.Fatalf("Param(%q) of %s = %s, %v; want %s", name, m.Params, got, ok, last[name])
		}
	}
	if got := m.DuplicateParam(); got != twice {
		t.Fatalf("DuplicateParam of %s = %v", m.Params, got)
	}
	if _, ok := m.Param("no such member of any object"); ok {
		t.Fatal("found a member that is absent")
	}
}

// chunkReader returns data in chunks of the given sizes, which repeat. A size of zero fills the
// buffer.
type chunkReader struct {
	data        []byte
	sizes       []byte
	i           int
	eofWithData bool // the last chunk and io.EOF are returned together
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := len(p)
	if len(c.sizes) > 0 {
		if size := int(c.sizes[c.i%len(c.sizes)]); size > 0 {
			n = min(n, size)
		}
		c.i++
	}
	n = copy(p[:n], c.data)
	c.data = c.data[n:]
	if c.eofWithData && len(c.data) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (c *chunkReader) Write(p []byte) (int, error) { return len(p), nil }
func (c *chunkReader) Close() error                { return nil }

// readAll returns the frames and errors of a stream in order, and how it ended.
func readAll(t testing.TB, rw io.ReadWriteCloser, opts *FramerOptions) []string {
	f := NewFramer(rw, opts)
	var got []string
	for range 1 << 20 {
		frame, err := f.ReadFrame()
		var bad *FrameError
		switch {
		case err == nil:
			got = append(got, "frame "+string(frame))
		case errors.As(err, &bad):
			text := fmt.Sprintf("error %d %s", bad.Code, bad.Reason)
			if large, ok := errors.AsType[*TooLargeError](err); ok && large.Kind != KindInvalid {
				text += fmt.Sprintf(" of %v %s", large.Kind, large.ID)
			}
			got = append(got, text)
		default:
			return append(got, "end "+err.Error())
		}
	}
	t.Fatal("the framer does not reach the end")
	return nil
}

// FuzzFramers reads any stream in chunks of any sizes, and compares the result with that of the
// whole stream.
func FuzzFramers(f *testing.F) {
	for i, test := range slices.Concat(lineStreams, headerStreams) {
		if len(test.stream) < 10000 { // longer seeds make the fuzzer slow
			f.Add([]byte(test.stream), []byte{1, 3, 7}, uint8(test.max), i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, stream, sizes []byte, limit uint8, eofWithData bool) {
		for _, framing := range []Framing{FramingAuto, FramingLine, FramingHeader} {
			opts := &FramerOptions{Framing: framing, MaxFrame: int(limit)}
			want := readAll(t, &chunkReader{data: stream}, opts)
			for _, cut := range [][]byte{{1}, sizes, {2, 0}} {
				got := readAll(t, &chunkReader{data: stream, sizes: cut, eofWithData: eofWithData}, opts)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%v framing, limit %d, %q chunks of %v: -whole +chunks:\n%s", framing, limit, stream, cut, diff)
				}
			}
			for _, s := range want {
				if body, ok := strings.CutPrefix(s, "frame "); ok && limit > 0 && len(body) > int(limit) {
					t.Fatalf("frame of %d bytes, limit %d", len(body), limit)
				}
			}
		}
	})
}

// FuzzID passes ids through Parse and Append.
func FuzzID(f *testing.F) {
	for _, class := range idClasses {
		for _, id := range class {
			f.Add(id, class[0], "x")
		}
	}
	f.Add(`1.0`, `null`, "\xff\x00")
	f.Fuzz(func(t *testing.T, a, b, s string) {
		x, okX := idOf(a)
		y, okY := idOf(b)
		for _, id := range []ID{x, y} {
			if id == nil {
				continue
			}
			if back := parse(t, string(AppendRequest(nil, id, "m", nil))).ID; string(back) != string(id) {
				t.Fatalf("%s came back as %s", id, back)
			}
			if !id.Valid() || !id.Equal(id) || !id.Equal(id.Clone()) || !id.Equal(ID(id.Canonical())) {
				t.Fatalf("%s is not what it is", id)
			}
			if c := ID(id.Canonical()); string(c.Canonical()) != string(c) {
				t.Fatalf("canonical form %s of %s has canonical form %s", c, id, c.Canonical())
			}
		}
		if okX && okY {
			if x.Equal(y) != y.Equal(x) || x.Equal(y) != (sameValue(t, x) == sameValue(t, y)) {
				t.Fatalf("%s equal %s: %v, %s equal %s: %v", x, y, x.Equal(y), y, x, y.Equal(x))
			}
		}
		if text, ok := StringID(s).Text(); !ok || text != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Fatalf("StringID(%q) has text %q", s, text)
		}
		if id := StringID(s); string(id.Canonical()) != string(id) {
			t.Fatalf("StringID(%q) = %s is not canonical", s, id)
		}
	})
}

// idOf returns the id that text contains, if it is valid.
func idOf(text string) (ID, bool) {
	var m Message
	if Parse([]byte(`{"jsonrpc":"2.0","method":"m","id":`+text+`}`), &m, 0) != nil || m.Kind != KindRequest {
		return nil, false
	}
	return m.ID, true
}

// sameValue returns a text that is equal for ids of equal value, without the code under test.
func sameValue(t *testing.T, id ID) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(id))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if n, ok := v.(json.Number); ok && n == "-0" {
		v = json.Number("0")
	}
	return fmt.Sprintf("%T %v", v, v)
}

// FuzzAppend reads the results of the Append functions with Parse and with encoding/json.
//
// Spec: S9 S25 S63 C18 C37
func FuzzAppend(f *testing.F) {
	f.Add(int64(1), "a\u0062", "tools/call", `{"a":[1,"x"]}`, 5, "message")
	f.Add(int64(-1), "\xff\u2028\"\\", "\x00\n", "[\n1 ]", 0, "\x7f\ufffe")
	f.Add(int64(1)<<62, "", "", ` null`, -32603, "")
	f.Fuzz(func(t *testing.T, n int64, s, method, text string, code int, message string) {
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) || depthOf([]byte(text)) > 100 {
			text = "{}"
		}
		value := jsonwire.OneLine([]byte(strings.TrimSpace(text)))
		if bytes.ContainsAny(value, "\r\n") {
			t.Fatalf("OneLine(%q) = %q", text, value)
		}
		var params []byte
		if value[0] == '{' || value[0] == '[' {
			params = value
		}
		for _, id := range []ID{IntID(n), StringID(s)} {
			checkAppended(t, AppendRequest(nil, id, method, params), envelope{KindRequest, id.String(), clean(method), string(params), "", ""})
			checkAppended(t, AppendNotification(nil, method, params), envelope{KindNotification, "", clean(method), string(params), "", ""})
			checkAppended(t, AppendResult(nil, id, value), envelope{KindResponse, id.String(), "", "", string(value), ""})

			e := &Error{Code: Code(code), Message: message, Data: value}
			m := parse(t, string(AppendError(nil, id, e, true)))
			if code == 0 {
				e.Code = CodeInternalError
			}
			e.Message = clean(message)
			if diff := cmp.Diff(e, m.Err()); diff != "" {
				t.Fatalf("error: -want +got:\n%s", diff)
			}
			checkAppended(t, AppendError(nil, id, e, false), envelope{KindError, id.String(), "", "", "", string(m.Error)})
		}
		for _, null := range []bool{false, true} {
			m := parse(t, string(AppendError(nil, nil, &Error{Code: 1, Message: message}, null)))
			if m.Kind != KindError || m.ID.IsNull() != null {
				t.Fatalf("error without id: kind %v, id %q", m.Kind, m.ID)
			}
		}
	})
}

// clean returns the wire form of a Go string, with U+FFFD for each invalid byte.
func clean(s string) string { return string([]rune(s)) }

func checkAppended(t *testing.T, frame []byte, want envelope) {
	t.Helper()
	if bytes.ContainsAny(frame, "\r\n") {
		t.Fatalf("line break in %q", frame)
	}
	m := parse(t, string(frame))
	if diff := cmp.Diff(want, envelopeOf(m)); diff != "" {
		t.Fatalf("%s: -want +got:\n%s", frame, diff)
	}
	if !json.Valid(frame) || !utf8.Valid(frame) {
		t.Fatalf("encoding/json does not take %q", frame)
	}
	checkEnvelope(t, frame, m, true)
}
