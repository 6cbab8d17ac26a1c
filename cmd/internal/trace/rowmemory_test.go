package trace

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestEventIndex compares the index with a map that has an entry for each event.
func TestEventIndex(t *testing.T) {
	var x eventIndex
	want := map[uint64]*Row{}
	rows := []*Row{{Seq: 1}, {Seq: 2}, {Seq: 3}}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n, r := random.Uint64N(200), rows[random.IntN(len(rows))]
		if n == 0 {
			n = 1 << 60
		}
		if random.IntN(2) == 0 {
			if x.add(n, r); want[n] == nil {
				want[n] = r
			}
		} else if x.remove(n, r); want[n] == r {
			delete(want, n)
		}
		if got := x.row(n); got != want[n] {
			t.Fatalf("event %d: got row %v, want %v", n, got, want[n])
		}
	}
	for n, r := range want {
		x.remove(n, r)
	}
	if len(x.blocks) > 0 {
		t.Errorf("%d blocks are left of an empty index", len(x.blocks))
	}
}

// TestRowSize checks the size of a row, since a model keeps 100,000 of them. The allocator rounds
// sizes up to 144, 160, 176 and to 512, 576, 640 bytes.
func TestRowSize(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the sizes are those of 64-bit platforms")
	}
	if got := unsafe.Sizeof(Row{}); got > 576 {
		t.Errorf("a row has %d bytes, want at most 576", got)
	}
	if got := unsafe.Sizeof(HTTPInfo{}); got > 160 {
		t.Errorf("the HTTP data of a row has %d bytes, want at most 160", got)
	}
}
