package translate_test

import (
	"strings"
	"testing"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/translate"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

// FuzzTranslate plays modified transcripts, in which both sides may be hostile. It checks that each
// output is one message or batch on one line, and that a closed translator has released its state.
func FuzzTranslate(f *testing.F) {
	for _, s := range transcripts(f) {
		f.Add(strings.Join(s.lines, "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 20_000 {
			t.Skip()
		}
		var lines []string
		for line := range strings.SplitSeq(text, "\n") {
			word, rest, _ := strings.Cut(line, " ")
			args := strings.Fields(rest)
			switch {
			case word == "@closed", word == "@failed":
				if len(args) != 1 {
					continue
				}
			case word == "@wait":
				if d, err := time.ParseDuration(rest); err != nil || d < 0 || d > time.Hour {
					continue
				}
			case word == "@handshake":
				if len(args) != 3 {
					continue
				}
			case word == "@limit", word == "@close":
				continue
			}
			lines = append(lines, line)
		}
		p := &player{observe: func(o translate.Out, in string) {
			if in == "" && o.Message != nil {
				checkOut(t, o)
			}
		}}
		p.play(append(lines, "@close"))
		if leaks := translate.Leaks(p.t); leaks != "" {
			t.Error(leaks)
		}
	})
}

func checkOut(t *testing.T, o translate.Out) {
	t.Helper()
	if strings.Contains(string(o.Message), "\n") {
		t.Errorf("got %s, want no line break", o.Message)
	}
	var m jsonrpc.Message
	switch {
	case rpcbatch.Is(o.Message):
		if err := jsonwire.Valid(o.Message, 0); err != nil {
			t.Errorf("%v: %s", err, o.Message)
		}
	case jsonrpc.Parse(o.Message, &m, 600) != nil && !strings.Contains(string(o.Message), `"error"`):
		t.Errorf("got %s, want a message", o.Message)
	case o.To == translate.Upstream && m.Kind == jsonrpc.KindRequest && o.Call == 0:
		t.Errorf("got %s without the id of the call", o.Message)
	}
}
