package capture

import (
	"bytes"
	"hash/maphash"
	"io"
	"testing"
	"time"
)

var frame = []byte(`{"jsonrpc":"2.0","id":123456,"method":"tools/call","params":{"name":"search_documents","arguments":{"query":"a typical argument of a tool","limit":20},"_meta":{"progressToken":7,"trace":"0af7651916cd43dd"}}}`)

// TestRecordAllocs shows that recording an event allocates only to grow the queue.
func TestRecordAllocs(t *testing.T) {
	b := new(eventBuffer)
	e := &Event{Kind: KindMessage, Dir: ToServer, Framing: FramingLF, Data: frame}
	for range 1000 {
		b.add(e, 1, time.Second, nil, 1)
	}
	b.reset()
	if n := testing.AllocsPerRun(500, func() { b.add(e, 1, time.Second, nil, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if len(frame) < 200 {
		t.Errorf("the frame has %d bytes", len(frame))
	}
}

// TestEncodeAllocs shows that writing a line does not allocate either, if it has no secret.
func TestEncodeAllocs(t *testing.T) {
	defer func(seed maphash.Seed) { cleanSeed = seed }(cleanSeed)
	for _, redaction := range []*Redaction{nil, {Off: true}} {
		n := 1.0
		for range 10 { // of two strings with one slot for clean texts, neither is remembered
			cleanSeed = maphash.MakeSeed()
			enc, e := NewEncoder(io.Discard, redaction), &Event{Kind: KindMessage, Dir: ToServer, Framing: FramingLF, Data: frame}
			enc.Encode(e)
			if n = testing.AllocsPerRun(100, func() { enc.Encode(e) }); n == 0 {
				break
			}
		}
		if n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// TestEncodeLarge shows that a frame of 32 MiB is written in pieces and not copied as a whole.
func TestEncodeLarge(t *testing.T) {
	text := append(append([]byte(`{"password":"hunter2","blob":"`), bytes.Repeat([]byte("QUJD"), 2<<20)...), `"}`...)
	enc := NewEncoder(io.Discard, nil)
	e := &Event{Kind: KindMessage, Data: text}
	enc.Encode(e)
	if n := cap(enc.out.buf) + cap(enc.p.edits.list)*40; n > 1<<20 {
		t.Errorf("%d bytes of buffers", n)
	}
	var ms [2]uint64
	for i := range ms {
		ms[i] = heapTotal()
		if i == 0 {
			enc.Encode(e)
		}
	}
	if grown := ms[1] - ms[0]; grown > 1<<20 {
		t.Errorf("%d bytes allocated", grown)
	}
}

// TestBatchShrinks shows that the memory for a burst is released later.
func TestBatchShrinks(t *testing.T) {
	b := new(eventBuffer)
	e := &Event{Kind: KindMessage, Data: frame}
	for range 100_000 {
		b.add(e, 1, 0, nil, 1)
	}
	b.reset()
	b.add(e, 1, 0, nil, 1)
	b.reset()
	if cap(b.data) > maxIdleData || cap(b.events) > maxIdleEvents {
		t.Errorf("%d bytes and %d events are kept", cap(b.data), cap(b.events))
	}
}

// BenchmarkRecord measures the cost to the wire. BenchmarkEncode measures the cost to the writing
// goroutine, which here catches up while the timer is stopped.
func BenchmarkRecord(b *testing.B) {
	w := NewWriter(io.Discard, nil)
	e := &Event{Kind: KindMessage, Dir: ToServer, Framing: FramingLF, Data: frame}
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	for n := 0; b.Loop(); n++ {
		w.Record(e)
		if n%1000 == 999 {
			b.StopTimer()
			w.Flush(b.Context())
			b.StartTimer()
		}
	}
	w.Close()
}

func BenchmarkEncode(b *testing.B) {
	large := append(append([]byte(`{"a":"`), bytes.Repeat([]byte("QUJD"), 2<<20)...), `"}`...)
	for _, bb := range []struct {
		name string
		enc  *Encoder
		data []byte
	}{
		{"redacted", NewEncoder(io.Discard, nil), frame},
		{"unredacted", NewEncoder(io.Discard, &Redaction{Off: true}), frame},
		{"32MiB", NewEncoder(io.Discard, nil), large},
		{"text", NewEncoder(io.Discard, nil), []byte("2026/11/20 12:00:00 INFO request served method=tools/call duration=12ms status=ok")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			e := &Event{Kind: KindMessage, Dir: ToServer, Framing: FramingLF, Data: bb.data}
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.data)))
			for b.Loop() {
				bb.enc.Encode(e)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	var buf bytes.Buffer
	enc := NewEncoder(&buf, nil)
	for i := range 1000 {
		enc.Encode(&Event{Kind: KindMessage, Dir: ToServer, N: uint64(i), Framing: FramingLF, Data: frame})
	}
	enc.Flush()
	b.ReportAllocs()
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		for _, err := range NewReader(bytes.NewReader(buf.Bytes()), nil).Events() {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// TestQueueMemory shows that a full queue takes the memory that it reports: its growth does not
// copy small events.
func TestQueueMemory(t *testing.T) {
	block := make(chan struct{})
	const limit = 64 << 20
	w := NewWriter(blocked(block), &Options{MaxQueue: limit, Redact: &Redaction{Off: true}})
	e := &Event{Kind: KindStderr, Data: []byte("a line of a flood on standard error")}
	before := heapTotal()
	recorded := uint64(0)
	for w.Lost() == 0 {
		w.Record(e)
		recorded++
	}
	if grown := heapTotal() - before; grown > limit+limit/4 {
		t.Errorf("allocated %d MiB for a queue of %d MiB", grown>>20, limit>>20)
	}
	if least := uint64(limit / 2 / e.cost()); recorded < least {
		t.Errorf("%d events fit in, want at least %d", recorded, least)
	}
	close(block)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if w.loop.events != recorded-1 {
		t.Errorf("%d events written, want %d", w.loop.events, recorded-1)
	}
}

// blocked is a disk whose writes block until the channel is closed.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}
