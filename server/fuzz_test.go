package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// buffers is an in-memory stream with fixed input and recorded output.
type buffers struct {
	io.Reader
	out bytes.Buffer
}

func (b *buffers) Write(p []byte) (int, error) { return b.out.Write(p) }
func (b *buffers) Close() error                { return nil }

// FuzzServer sends any bytes to a server. It must end without a panic, and write only JSON-RPC
// messages.
//
// Spec: S1 S9 S11 S25 S63 S65
func FuzzServer(f *testing.F) {
	for _, s := range fuzzSeeds(f) {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	// Excludes tools that wait for another call or change the state for later inputs.
	srv := newWireServer(f, &server.Options{Limits: server.Limits{DrainTimeout: 5 * time.Second, PageSize: 3}}, []string{"echo", "word_count", "add", "weather", "range", "progress", "fail", "crash", "refuse", "content", "log", "whoami", "raw"})
	lenient := newWireServer(f, &server.Options{Limits: server.Limits{DrainTimeout: 5 * time.Second}, Lenient: true, Goroutines: true}, []string{"echo", "add", "progress", "crash", "content", "log"})
	lenient.Use(passOn)
	f.Fuzz(func(t *testing.T, input []byte, isLenient bool) {
		b := &buffers{Reader: bytes.NewReader(input)}
		ended := make(chan error, 1)
		go func() {
			target := srv
			if isLenient {
				target = lenient
			}
			ended <- target.Serve(t.Context(), jsonrpc.NewFramer(b, &jsonrpc.FramerOptions{MaxFrame: 1 << 20}))
		}()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(testTimeout):
			buf := make([]byte, 1<<20)
			t.Fatalf("the server hangs\n%s", buf[:runtime.Stack(buf, true)])
		}
		checkOutput(t, b.out.Bytes())
	})
}

// fuzzSeeds returns the input of each transcript, in both framings.
func fuzzSeeds(f *testing.F) []string {
	f.Helper()
	var seeds []string
	for _, s := range scripts(f) {
		v := vars{"$MODERN": modernMeta, "$REVISION": "2025-06-18", "$DIGITS": "77777777777777777777777", "$LONG": "long", "$DEEP": "[[[]]]", "$TOODEEP": standing["$TOODEEP"]}
		for _, framing := range []string{"line", "header"} {
			var b strings.Builder
			if s.handshake != "" {
				b.WriteString(frameText(framing, v.expand(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+s.handshake+`"}}`)))
				b.WriteString(frameText(framing, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
			}
			for _, step := range s.steps {
				for _, fr := range step.send {
					if fr.raw {
						b.WriteString(fr.text)
					} else if !fr.eof {
						b.WriteString(frameText(framing, v.expand(fr.text)))
					}
				}
			}
			seeds = append(seeds, b.String())
		}
	}
	return seeds
}

// checkOutput checks that the output consists of framed messages, with a parser that does not use
// package jsonrpc.
func checkOutput(t *testing.T, out []byte) {
	t.Helper()
	framing := "line"
	if bytes.HasPrefix(out, []byte("Content-Length:")) {
		framing = "header"
	}
	r := bufio.NewReader(bytes.NewReader(out))
	for {
		text, err := readFrame(r, framing)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if !utf8.ValidString(text) {
			t.Errorf("not UTF-8: %q", text)
		}
		if strings.HasPrefix(text, "[") {
			var members []json.RawMessage
			if err := json.Unmarshal([]byte(text), &members); err != nil || len(members) == 0 {
				t.Errorf("batch %s: %v", text, err)
			}
			for _, m := range members {
				checkResponse(t, m)
			}
			continue
		}
		checkResponse(t, []byte(text))
	}
}

func checkResponse(t *testing.T, text []byte) {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil {
		t.Errorf("%v: %s", err, text)
		return
	}
	has := func(name string) int {
		if _, ok := m[name]; ok {
			return 1
		}
		return 0
	}
	if string(m["jsonrpc"]) != `"2.0"` || has("result")+has("error")+has("method") != 1 || has("method")+has("id") > 1 || has("result") > has("id") {
		t.Errorf("not a message, or one that a server must not send: %s", text)
	}
}
