package capture

import (
	"path/filepath"
	"runtime"
	"testing"

	"mcpwire/internal/test/soak"
)

func heapTotal() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestSoak records, reads and pairs many messages, and checks the memory meanwhile.
func TestSoak(t *testing.T) {
	messages := soak.Choose(1_000_000, 50_000)
	name := filepath.Join(t.TempDir(), "soak"+Suffix)
	w, err := Create(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	request := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"login","arguments":{"password":"hunter2 is secret","query":"a typical argument"}}}`)
	response := []byte(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a typical result, which is a little longer than the request was"}]}}`)
	var low, high uint64
	for i := range messages / 2 {
		w.Record(&Event{Kind: KindMessage, Dir: ToServer, Framing: FramingLF, Data: request})
		w.Record(&Event{Kind: KindMessage, Dir: ToClient, Framing: FramingLF, Data: response})
		if i%5000 == 4999 {
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			now := heapInUse()
			if low == 0 {
				low = now
			}
			high = max(high, now)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if high > low+32<<20 {
		t.Errorf("recording: the heap grew from %d to %d bytes", low, high)
	}
	if lost := w.Lost(); lost != 0 {
		t.Errorf("%d events lost", lost)
	}
	r, err := Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pairs := 0
	before := heapInUse()
	for x, err := range Pairs(r.Events()) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Call.Answered && x.Request.N+1 == x.Response.N {
			pairs++
		}
		if pairs == messages/4 {
			if now := heapInUse(); now > before+16<<20 {
				t.Errorf("reading: the heap grew from %d to %d bytes", before, now)
			}
		}
	}
	if pairs != messages/2 {
		t.Errorf("%d exchanges, want %d", pairs, messages/2)
	}
}
