package tui

import (
	"fmt"
	"strings"
	"testing"
)

// many returns a source with n calls.
func many(t testing.TB, n int) *fakeSource {
	f := newFake()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `%d c2s 1/0 msg {"jsonrpc":"2.0","id":%[1]d,"method":"tools/call","params":{"name":"search","arguments":{"q":%[1]d}}}`+"\n", i)
		fmt.Fprintf(&b, `%d s2c 1/0 msg {"jsonrpc":"2.0","id":%[1]d,"result":{"content":[{"type":"text","text":"x"}]}}`+"\n", i)
	}
	f.add(t, "A", "files", "stdio", b.String())
	return f
}

// TestManyRows checks that drawing a frame takes the same work for few rows and for many.
func TestManyRows(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a second")
	}
	allocs := func(n int) float64 {
		d := drive(t, many(t, n), nil).size(120, 40)
		return testing.AllocsPerRun(20, func() {
			d.keys("pgup")
			_ = d.m.View()
		})
	}
	if few, lots := allocs(500), allocs(50_000); lots > few*1.5 {
		t.Errorf("a frame of 50,000 rows takes %.0f allocations, one of 500 takes %.0f", lots, few)
	}
}

// BenchmarkFrame measures a step of the wheel: an update and a frame.
func BenchmarkFrame(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := drive(b, many(b, n), nil).size(200, 60)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				key := "up"
				if i++; i%200 > 100 {
					key = "down"
				}
				d.keys(key)
				_ = d.m.View()
			}
		})
	}
}
