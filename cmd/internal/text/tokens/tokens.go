// Package tokens counts the tokens that a text has in the encoding o200k_base, exactly as OpenAI's
// library tiktoken 0.14.0 counts them. Other encodings have other numbers, and so have models that
// use them.
//
// The package holds the vocabulary compressed. The first call of [Count] unpacks it, which takes
// some 40 ms and 10 MB of memory. Command tools/gen/vocabulary generates o200k_base.zst, and
// TestTiktoken compares the counts with those of tiktoken.
//
// # Concurrency
//
// All functions are safe for concurrent use.
package tokens

import (
	_ "embed"
	"math"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// packed is the vocabulary: see unpack for its form.
//
//go:embed o200k_base.zst
var packed []byte

var vocabulary = sync.OnceValue(func() map[string]int32 { return unpack(packed) })

// unpack returns the ranks of the tokens. The compressed data has planes: the number of bytes that
// each token, in alphabetic order, has in common with the token before it; the number of its other
// bytes; the low, middle and high byte of its rank; and the other bytes of all tokens.
func unpack(packed []byte) map[string]int32 {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constant, and so is the data
	}
	defer z.Close()
	data, err := z.DecodeAll(packed, nil)
	if err != nil {
		panic(err)
	}
	n := int(data[0]) | int(data[1])<<8 | int(data[2])<<16
	planes, rest := data[3:3+5*n], data[3+5*n:]
	shared, added, low, middle, high := planes[:n], planes[n:2*n], planes[2*n:3*n], planes[3*n:4*n], planes[4*n:]
	ranks := make(map[string]int32, n)
	var text strings.Builder // of all tokens, in one allocation
	text.Grow(8 * n)
	token := ""
	for i := range n {
		begin := text.Len()
		text.WriteString(token[:shared[i]])
		text.Write(rest[:added[i]])
		token, rest = text.String()[begin:], rest[added[i]:]
		ranks[token] = int32(low[i]) | int32(middle[i])<<8 | int32(high[i])<<16
	}
	return ranks
}

// maxPiece limits the bytes of a piece, and so the memory that Count needs: about 20 bytes for each
// byte of a piece. The words of all languages are shorter.
const maxPiece = 1 << 20

// Count returns the number of tokens of a text. Names of special tokens, such as <|endoftext|>,
// count as ordinary text. The time is proportional to the length of the text, except for a
// logarithmic factor in pieces that are not words. A piece of more than 1 MiB, such as a million
// letters without a space, is counted in parts, so that the result may be wrong by one token for
// each MiB.
func Count(text string) int {
	ranks := vocabulary()
	m := merger{ranks: ranks}
	count := 0
	for text != "" {
		n := min(pieceLen(text), maxPiece)
		if _, ok := ranks[text[:n]]; ok {
			count++
		} else {
			count += m.count(text[:n])
		}
		text = text[n:]
	}
	return count
}

// A merger divides pieces into tokens: it begins with the bytes, and again and again joins the two
// adjacent parts that together are the token with the lowest rank, the first of them if it occurs
// several times.
type merger struct {
	ranks map[string]int32
	piece string
	// parts has a part for each byte that a part begins at, and one for the end of the piece.
	parts []part
	// heap has the pairs to join, as rank<<32 | start. The least is first. A pair is stale if the
	// rank of the part that begins there has changed.
	heap []uint64
}

// A part of a piece.
type part struct {
	// before and after are the starts of the adjacent parts.
	before, after int32
	// rank is the rank of this part and the one after it as one token, or none.
	rank int32
}

const none = -1

// count returns the number of tokens of a piece.
func (m *merger) count(piece string) int {
	m.piece, m.parts, m.heap = piece, m.parts[:0], m.heap[:0]
	for i := range len(piece) + 1 {
		m.parts = append(m.parts, part{before: int32(i - 1), after: int32(i + 1)})
	}
	for i := range len(piece) - 1 {
		m.push(int32(i))
	}
	count := len(piece)
	for len(m.heap) > 0 {
		least := m.pop()
		i := int32(least & math.MaxUint32)
		p := &m.parts[i]
		if p.rank != int32(least>>32) {
			continue
		}
		m.parts[p.after].rank = none
		p.after = m.parts[p.after].after
		m.parts[p.after].before = i
		count--
		m.push(i)
		if p.before >= 0 {
			m.push(p.before)
		}
	}
	return count
}

// push finds the rank of the pair that begins at i and adds it to the heap.
func (m *merger) push(i int32) {
	p := &m.parts[i]
	p.rank = none
	if int(p.after) >= len(m.piece) {
		return
	}
	rank, ok := m.ranks[m.piece[i:m.parts[p.after].after]]
	if !ok {
		return
	}
	p.rank = rank
	m.heap = append(m.heap, uint64(rank)<<32|uint64(i))
	for at := len(m.heap) - 1; at > 0; {
		parent := (at - 1) / 2
		if m.heap[parent] <= m.heap[at] {
			return
		}
		m.heap[parent], m.heap[at] = m.heap[at], m.heap[parent]
		at = parent
	}
}

// pop removes the least value of the heap.
func (m *merger) pop() uint64 {
	least, last := m.heap[0], len(m.heap)-1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for at := 0; ; {
		child := 2*at + 1
		if child+1 < last && m.heap[child+1] < m.heap[child] {
			child++
		}
		if child >= last || m.heap[at] <= m.heap[child] {
			return least
		}
		m.heap[at], m.heap[child] = m.heap[child], m.heap[at]
		at = child
	}
}
