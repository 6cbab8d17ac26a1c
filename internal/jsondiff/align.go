package jsondiff

// The tables with which elements are aligned: one array's, and those of all arrays together. Above that, elements are compared by their indexes.
const (
	maxTable = 1 << 20
	maxCells = 1 << 23
)

// array compares two arrays.
func (d *differ) array(i, j int32, p location) {
	as, bs := d.a.childList(i), d.b.childList(j)
	at := 0 // index once the changes before are made
	first := 0
	for len(as) > 0 && len(bs) > 0 && d.equal(as[0], bs[0]) {
		as, bs, at, first = as[1:], bs[1:], at+1, first+1
	}
	for len(as) > 0 && len(bs) > 0 && d.equal(as[len(as)-1], bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	table := d.newAlignment(as, bs)
	for len(as)+len(bs) > 0 && !d.full() {
		// Up to the next elements that are equal, the others are pairs as long as both have some.
		x, y := nextCommon(table, as, bs, d.equal)
		pairs := min(x, y)
		for k := range pairs {
			d.value(as[k], bs[k], p.element(at, first+k))
			at++
		}
		for k := pairs; k < x; k++ {
			if d.a.nodes[as[k]].ignored { // it stays
				at++
			} else {
				d.removed(as[k], p.element(at, first+k))
			}
		}
		for k := pairs; k < y; k++ {
			if !d.b.nodes[bs[k]].ignored {
				d.added(bs[k], p.element(at, 0))
				at++
			}
		}
		first += x
		as, bs = as[x:], bs[y:]
		for len(as) > 0 && len(bs) > 0 && d.equal(as[0], bs[0]) {
			as, bs, at, first = as[1:], bs[1:], at+1, first+1
		}
	}
}

func (d *differ) equal(i, j int32) bool { return d.a.nodes[i].hash == d.b.nodes[j].hash }

// An alignment says how many elements two arrays have in common from a place on, in the same order. nil stands for a table that would be too large.
type alignment struct {
	common     []int32
	rows, cols int
}

// newAlignment makes the alignment of two lists of elements.
func (d *differ) newAlignment(as, bs []int32) *alignment {
	rows, cols := len(as)+1, len(bs)+1
	if rows == 1 || cols == 1 || rows > maxTable/cols || rows*cols > d.cells {
		return nil
	}
	d.cells -= rows * cols
	t := &alignment{make([]int32, rows*cols), rows, cols}
	for x := len(as) - 1; x >= 0; x-- {
		row, below := t.common[x*cols:(x+1)*cols], t.common[(x+1)*cols:(x+2)*cols]
		for y := len(bs) - 1; y >= 0; y-- {
			if d.equal(as[x], bs[y]) {
				row[y] = below[y+1] + 1
			} else {
				row[y] = max(below[y], row[y+1])
			}
		}
	}
	return t
}

// nextCommon returns how many elements of both lists come before the next ones that stay.
func nextCommon(t *alignment, as, bs []int32, equal func(i, j int32) bool) (x, y int) {
	if t == nil {
		return len(as), len(bs)
	}
	at := (t.rows-1-len(as))*t.cols + t.cols - 1 - len(bs)
	for x < len(as) && y < len(bs) && !equal(as[x], bs[y]) {
		if t.common[at] == 0 { // nothing that stays is left
			return len(as), len(bs)
		}
		if t.common[at+t.cols] >= t.common[at+1] {
			x++
			at += t.cols
		} else {
			y++
			at++
		}
	}
	if x == len(as) || y == len(bs) {
		return len(as), len(bs)
	}
	return x, y
}
