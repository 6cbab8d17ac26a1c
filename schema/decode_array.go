package schema

import (
	"fmt"
	"reflect"
)

// slice decodes an array of any length.
func (d *decoder) slice(n *node, a address, ch byte) {
	if ch != '[' {
		d.mismatch("array")
		return
	}
	if !d.enter() {
		return
	}
	at := d.i
	v := a.value(n.typ)
	k := 0
	for more := d.open(); more && !d.full(); more = d.more() {
		if k == v.Cap() {
			v.Grow(max(1, 4-k))
		}
		v.SetLen(k + 1)
		d.value(n.elem, addressIn(v.Index(k)))
		k++
	}
	if k == 0 {
		v.Set(reflect.MakeSlice(n.typ, 0, 0))
	}
	d.depth--
	d.checkItems(n, at, k)
}

func (d *decoder) array(n *node, a address, ch byte) {
	if ch != '[' {
		d.mismatch("array")
		return
	}
	if !d.enter() {
		return
	}
	at := d.i
	v := a.value(n.typ)
	k := 0
	for more := d.open(); more && !d.full(); more = d.more() {
		if k < v.Len() {
			d.value(n.elem, addressIn(v.Index(k)))
		} else {
			d.skip()
		}
		k++
	}
	d.depth--
	if k != v.Len() && !d.full() {
		d.fail(at, fmt.Sprintf("expected exactly %s, got %d", plural(v.Len(), "item"), k))
		return
	}
	d.checkItems(n, at, k)
}

// checkItems checks an array that starts at an offset and has been passed.
func (d *decoder) checkItems(n *node, at, k int) {
	if d.full() {
		return
	}
	if n.count != nil {
		if msg := n.count.check(k, "item", false); msg != "" {
			d.fail(at, msg)
		}
	}
	if n.unique {
		if i, j, ok := equalItems(d.b[at:d.i], nil); ok {
			d.fail(at, itemsEqual(i, j))
		}
	}
}
