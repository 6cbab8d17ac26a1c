package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestOversize tells whose a frame above the limit is.
func TestOversize(t *testing.T) {
	x := strings.Repeat(`x\"}],`, 50)
	many := `[{"id":9,"result":"` + x + `"},` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `]`
	tests := []struct {
		name, msg string
		kind      Kind
		id        ID
	}{
		{"id first", `{"jsonrpc":"2.0","id":7,"result":{"a":"` + x + `"}}`, KindResponse, ID("7")},
		{"id last", `{"result":{"id":1,"a":["` + x + `",{"method":"m"}]},"jsonrpc":"2.0","id":7}`, KindResponse, ID("7")},
		{"id in the middle", `{"result":` + many + ` , "id" : "a\"b" ,"jsonrpc":"2.0"}`, KindResponse, ID(`"a\"b"`)},
		{"id between two that are long", `{"` + x + `":"` + x + `","id":-3,"error":{"code":1,"message":"` + x + `"}}`, KindError, ID("-3")},
		{"escaped names", `{"\u0069d":7,"r\u0065sult":"` + x + `"}`, KindResponse, ID("7")},
		{"request", `{"jsonrpc":"2.0","id":7,"method":"m","params":["` + x + `"]}`, KindRequest, ID("7")},
		{"notification", `{"jsonrpc":"2.0","method":"m","params":["` + x + `"]}`, KindNotification, nil},
		{"no id", `{"result":{"id":1,"a":"` + x + `"}}`, KindResponse, nil},
		{"id null", `{"id":null,"result":{"a":"` + x + `"}}`, KindResponse, nil},
		{"id with a fraction", `{"id":1.5,"result":{"a":"` + x + `"}}`, KindResponse, nil},
		{"id is an object", `{"id":{"a":1},"result":{"a":"` + x + `"}}`, KindResponse, nil},
		{"id too long", `{"id":"` + strings.Repeat("1", 300) + `","result":{}}`, KindResponse, nil},
		{"two ids", `{"id":1,"id":2,"result":"` + x + `"}`, KindResponse, nil},
		{"id as a value", `{"a":"id","result":"` + x + `"}`, KindResponse, nil},
		{"id in a string", `{"result":"` + x + `,\"id\":5}`, KindResponse, nil},
		{"nothing of a message", `{"a":"` + x + `"}`, KindInvalid, nil},
		{"batch", many, KindInvalid, nil},
		{"noise", strings.Repeat("x", 200), KindInvalid, nil},
		{"brackets that close nothing", strings.Repeat("}", 200), KindInvalid, nil},
	}
	for _, test := range tests {
		for framing, stream := range map[Framing]string{
			FramingLine:   "{}\n" + test.msg + "\n[]\n",
			FramingHeader: block("{}") + block(test.msg) + block("[]"),
		} {
			for _, sizes := range [][]byte{nil, {1}, {3, 50}} {
				f := NewFramer(&chunks{data: []byte(stream), sizes: sizes}, &FramerOptions{Framing: framing, MaxFrame: 100})
				if frame, err := f.ReadFrame(); string(frame) != "{}" || err != nil {
					t.Fatalf("%s, %v: %q, %v before it", test.name, framing, frame, err)
				}
				_, err := f.ReadFrame()
				got, ok := errors.AsType[*TooLargeError](err)
				if bad, isFrame := errors.AsType[*FrameError](err); !ok || !isFrame || bad.Code != CodeInvalidRequest {
					t.Fatalf("%s, %v: %v", test.name, framing, err)
				}
				want := &TooLargeError{Limit: 100, Kind: test.kind, ID: test.id}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(TooLargeError{}, "Size")); diff != "" {
					t.Errorf("%s, %v, cut by %v (-want +got):\n%s", test.name, framing, sizes, diff)
				}
				if got.Size <= 100 || got.Size > int64(len(test.msg)) || framing == FramingHeader && got.Size != int64(len(test.msg)) {
					t.Errorf("%s, %v: size %d of %d", test.name, framing, got.Size, len(test.msg))
				}
				lost, isCall := errors.AsType[*CallError](err)
				if wantCall := test.id != nil && test.kind != KindRequest; isCall != wantCall || isCall && !bytes.Equal(lost.ID, test.id) {
					t.Errorf("%s, %v: call error %v", test.name, framing, lost)
				}
				if frame, err := f.ReadFrame(); string(frame) != "[]" || err != nil {
					t.Errorf("%s, %v: %q, %v behind it", test.name, framing, frame, err)
				}
			}
		}
	}
}

// TestAnswerTooLarge: an answer above the limit fails its call at once, though its end has not come, and no other.
func TestAnswerTooLarge(t *testing.T) {
	head := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"text":"`, id) + strings.Repeat("x", 200)
	}
	tail := func(id int) string {
		return `{"result":{"text":"` + strings.Repeat("x", 200) + fmt.Sprintf(`"},"jsonrpc":"2.0","id":%d}`, id)
	}
	const rest = `"}}`
	tests := []struct {
		name   string
		calls  int
		first  string // what comes of the answer
		second string // and then
		early  []int  // calls that fail when first has come
		failed []int  // calls that have failed in the end
	}{
		{"id first", 3, head(2), rest, []int{2}, []int{2}},
		{"id last", 3, tail(2)[:150], tail(2)[150:], nil, []int{2}},
		{"of no call", 3, head(9), rest, nil, nil},
		{"no id, one call", 1, `{"result":"` + strings.Repeat("x", 200), `"}`, nil, []int{1}},
		{"no id, several calls", 2, `{"result":"` + strings.Repeat("x", 200), `"}`, nil, nil},
		{"noise, one call", 1, strings.Repeat("x", 150), strings.Repeat("x", 150), nil, nil},
		{"a notification, one call", 1, `{"method":"m","params":["` + strings.Repeat("x", 200), `"]}`, nil, nil},
	}
	for _, test := range tests {
		for _, framing := range []Framing{FramingLine, FramingHeader} {
			t.Run(test.name+", "+framing.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, far := memoryPipe(0)
					c := NewConn(NewFramer(near, &FramerOptions{Framing: framing, MaxFrame: 100}), nil)
					go c.Run(context.Background())
					defer c.Close()
					var calls []*Pending
					for range test.calls {
						p, err := c.NewCall("m")
						if err == nil {
							err = p.Send(t.Context(), nil)
						}
						if err != nil {
							t.Fatal(err)
						}
						calls = append(calls, p)
					}
					send := func(text string) {
						io.WriteString(far, text)
						synctest.Wait()
					}
					failed := func() (ids []int) {
						for i, p := range calls {
							select {
							case <-p.Done():
							default:
								continue
							}
							_, err := p.Result()
							if large, ok := errors.AsType[*TooLargeError](err); !ok || large.Limit != 100 {
								t.Errorf("call %d: %v", i+1, err)
								continue
							}
							if lost, ok := errors.AsType[*CallError](err); !ok || lost.Outcome != OutcomeUnknown {
								t.Errorf("call %d: %v", i+1, err)
							}
							ids = append(ids, i+1)
						}
						return ids
					}
					first, second := test.first, test.second+"\n"
					if framing == FramingHeader {
						whole := block(test.first + test.second)
						at := len(whole) - len(test.second)
						first, second = whole[:at], whole[at:]
					}
					send(first)
					if diff := cmp.Diff(test.early, failed()); diff != "" {
						t.Errorf("failed before the end of the answer (-want +got):\n%s", diff)
					}
					send(second)
					if diff := cmp.Diff(test.failed, failed()); diff != "" {
						t.Errorf("failed (-want +got):\n%s", diff)
					}
					// The connection goes on.
					last := calls[len(calls)-1]
					if len(test.failed) == test.calls {
						last, _ = c.NewCall("m")
						last.Send(t.Context(), nil)
					}
					answer := result(last.ID().String(), "{}")
					if framing == FramingHeader {
						send(block(answer))
					} else {
						send(answer + "\n")
					}
					if text, err := last.Wait(t.Context()); string(text) != "{}" || err != nil {
						t.Errorf("the next answer: %q, %v", text, err)
					}
				})
			})
		}
	}
}

// TestRequestTooLarge: a request above the limit is refused under its own id, for peers that take no answer without one; a notification is not answered.
func TestRequestTooLarge(t *testing.T) {
	x := strings.Repeat("x", 200)
	for _, framing := range []Framing{FramingLine, FramingHeader} {
		near, far := memoryPipe(0)
		for _, msg := range []string{request(5, "m", `["`+x+`"]`), notification("n", `["`+x+`"]`), request(6, "ping")} {
			if framing == FramingHeader {
				io.WriteString(far, block(msg))
			} else {
				io.WriteString(far, msg+"\n")
			}
		}
		far.out.end(io.EOF)
		c := NewConn(NewFramer(near, &FramerOptions{Framing: framing, MaxFrame: 100}), &Options{Handler: pingHandler{}})
		if err := c.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		answers := NewFramer(far, nil)
		var got []string
		for frame, err := answers.ReadFrame(); err == nil; frame, err = answers.ReadFrame() {
			got = append(got, string(frame))
		}
		want := []string{failure("5", CodeInvalidRequest, newTooLarge(100).Reason, ""), result(6, "{}")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", framing, diff)
		}
	}
}

// TestOversizeMemory: what is skipped is not kept, and whose it is, is found also if the frame was kept in parts until then.
func TestOversizeMemory(t *testing.T) {
	const size = 16 << 20
	for _, limit := range []int{256 << 10, 4 << 20} {
		for _, ends := range [][2]string{{`{"id":7,"result":{"text":"`, `"}}`}, {`{"result":{"text":"`, `"},"id":7}`}} {
			for _, framing := range []Framing{FramingLine, FramingHeader} {
				body := io.MultiReader(strings.NewReader(ends[0]), io.LimitReader(xs{}, size), strings.NewReader(ends[1]+"\n"))
				if framing == FramingHeader {
					body = io.MultiReader(strings.NewReader(fmt.Sprintf("Content-Length: %d\r\n\r\n", len(ends[0])+size+len(ends[1]))), body)
				}
				f := NewFramer(readOnly{body}, &FramerOptions{Framing: framing, MaxFrame: limit})
				held := 0
				var told *TooLargeError
				var err error
				for err != io.EOF {
					_, err = f.next()
					if large, ok := errors.AsType[*TooLargeError](err); ok {
						if told != nil {
							t.Errorf("%v, limit %d: told twice: %v", framing, limit, large)
						}
						told = large
					}
					if err == errNeedMore {
						err = f.fill(false)
						held = max(held, f.bufferSize()+f.chunkBytes)
					}
				}
				if told == nil || string(told.ID) != "7" || told.Kind != KindResponse || told.Size <= int64(limit) {
					t.Errorf("%v, limit %d: %v", framing, limit, told)
				}
				if most := limit + max(limit/10, maxIdleBuffer); held > most {
					t.Errorf("%v, limit %d: %d bytes were held of a message of %d", framing, limit, held, size)
				}
			}
		}
	}
}

type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type readOnly struct{ io.Reader }

func (readOnly) Write(p []byte) (int, error) { return len(p), nil }
func (readOnly) Close() error                { return nil }

// BenchmarkOversize passes over a message above the limit whose id comes last.
func BenchmarkOversize(b *testing.B) {
	msg := []byte(`{"result":[` + strings.Repeat(`{"text":"twenty characters!","n":1},`, 100000) + `1],"jsonrpc":"2.0","id":7}`)
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	for b.Loop() {
		o := &oversizeScanner{limit: 100}
		for piece := msg; len(piece) > 0; {
			n := min(len(piece), minBuffer)
			if err := o.feed(piece[:n], n == len(piece)); err != nil && n < len(piece) {
				b.Fatal(err)
			}
			piece = piece[n:]
		}
	}
}
