//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResponseID(t *testing.T) {
	for _, tt := range []struct {
		line string
		want int
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{}}`, 7},
		{`{"id": 12 ,"jsonrpc":"2.0"}`, 12},
		{`{"result":{},"id":1024}`, 1024},
		{`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`, -1},
		{`{"jsonrpc":"2.0","id":null,"error":{}}`, -1},
		{`{"jsonrpc":"2.0","id":"7","result":{}}`, -1},
		{``, -1},
	} {
		if got := responseID([]byte(tt.line)); got != tt.want {
			t.Errorf("responseID(%s) = %d, want %d", tt.line, got, tt.want)
		}
	}
}

func TestRequest(t *testing.T) {
	got := string(eras[0].call("x").append(nil, 42))
	want := `{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}` + "\n"
	if got != want {
		t.Errorf("call:\n got %s\nwant %s", got, want)
	}
	if got := string(parseRequest(`{"method":"m"}`).append(nil, 42)); got != `{"method":"m"}`+"\n" {
		t.Errorf("a notification got an id: %s", got)
	}
}

// TestTurn checks that every peer has every place of a round equally often.
func TestTurn(t *testing.T) {
	const n = 4
	for place := range n {
		count := make([]int, n)
		for round := range 2 * n {
			count[turn(round, place, n)]++
		}
		if !slices.Equal(count, []int{2, 2, 2, 2}) {
			t.Errorf("place %d: got counts %v", place, count)
		}
	}
}

func TestRatios(t *testing.T) {
	micros := func(t, cpu time.Duration) sample {
		return sample{time: t * time.Microsecond, cpu: cpu * time.Microsecond}
	}
	tab := comparison{
		time:  "p50",
		peers: []peer{{name: "limit"}, {name: "other"}},
		samples: [][]sample{
			{micros(10, 5), micros(100, 50), micros(10, 5)},
			{micros(20, 20), micros(150, 200), micros(30, 20)},
		},
	}
	got := strings.Join(tab.row(1), "; ")
	want := "other; 30.0 µs; 20.0 µs; 2.00 (1.75–2.50); 4.00 (4.00–4.00); n/a; n/a"
	if got != want {
		t.Errorf("row: got %q, want %q", got, want)
	}
	for q, want := range map[float64]float64{0: 1, 0.25: 1.75, 0.5: 2.5, 1: 4} {
		if got := quantile([]float64{4, 1, 3, 2}, q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
}

func TestUpdateMarkdown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	r := &run{options: options{markdown: file, rounds: 1, block: time.Second, text: 64}}
	c := comparison{title: "load", time: "p50", peers: []peer{{name: "limit"}}, samples: [][]sample{{{time: 1000, cpu: 500}}}}
	tables := []table{c.table()}
	const row = "| limit | 1.0 µs | 0.5 µs | 1.00 | 1.00 | n/a | n/a |\n"
	for _, tt := range []struct{ name, old, before, after string }{
		{"none yet", "# Title\n\ntext\n", "# Title\n\ntext\n\n## Results: stdio\n\ngo1.", row},
		{"the last", "# Title\n\ntext\n\n## Results: stdio\n\nold numbers\n", "# Title\n\ntext\n\n## Results: stdio\n\ngo1.", row},
		{"another", "# Title\n\n## Results: http\n\nhttp numbers\n", "# Title\n\n## Results: http\n\nhttp numbers\n\n## Results: stdio\n\ngo1.", row},
		{"in the middle", "# Title\n\n## Results: stdio\n\nold numbers\n\n## More\n\nend\n", "# Title\n\n## Results: stdio\n\ngo1.", row + "\n## More\n\nend\n"},
	} {
		if err := os.WriteFile(file, []byte(tt.old), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := updateMarkdown(r, "stdio", tables); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(got); !strings.HasPrefix(s, tt.before) || !strings.HasSuffix(s, tt.after) || strings.Contains(s, "old") {
			t.Errorf("%s:\n%s", tt.name, s)
		}
	}
}
