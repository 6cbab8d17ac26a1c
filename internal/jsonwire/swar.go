package jsonwire

import (
	"encoding/binary"
	"math/bits"
)

// Eight bytes of text are looked at in one 64-bit word, the first byte lowest.
// A mask has the top bit of a byte set where that byte is of the wanted kind.
// A borrow in the subtractions below may set bits above the lowest set one by
// mistake, never below it: only the lowest may be used, and zero is exact.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// load64 is b[i:i+8] as a word. i+8 <= len(b).
func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }

// special marks the bytes a string cannot just contain: '"', '\\', control
// characters, and bytes that are not ASCII. Flipping bit 1 puts '"' directly
// above the control characters and moves nothing else across that border, so
// one comparison finds both.
func special(w uint64) uint64 {
	return (((w ^ 0x02*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones) | w) & highs
}

// uneven marks control characters and bytes that are not ASCII.
func uneven(w uint64) uint64 { return ((w - 0x20*ones) | w) & highs }

// equals marks the bytes equal to c, given as c*ones.
func equals(w, c uint64) uint64 {
	x := w ^ c
	return (x - ones) &^ x & highs
}

// firstByte is the index, 0 to 7, of the lowest byte marked in m, which is not 0.
func firstByte(m uint64) int { return bits.TrailingZeros64(m) >> 3 }
