package schema

import (
	"reflect"
	"unsafe"
)

// This is the only file with unsafe code. What makes it sound:
//
//   - An address always points at a live Go value, or a part of one, that the
//     garbage collector sees through it, because it holds an unsafe.Pointer and
//     never a uintptr. It starts as the caller's *T.
//   - The type behind an address is known: every node of a plan belongs to one
//     reflect.Type, and address and node go through the plan together. addressOf
//     pairs the root; the step to a field adds reflect.StructField.Offset, the
//     step to an element comes from a reflect.Value of the container.
//   - A value is only accessed as its own type or as the predeclared type of the
//     same kind, which has the same layout (a `type Level int8` as an int8).
//     Stores of pointers are therefore typed stores with their write barriers.
//   - Struct fields are reached that reflect would let a program set too:
//     exported ones, also through an embedded struct of an unexported type.

// address is where a value of a plan's type lives.
type address struct{ p unsafe.Pointer }

func addressOf[T any](v *T) address { return address{unsafe.Pointer(v)} }

// addressIn returns the address of an addressable value.
func addressIn(v reflect.Value) address { return address{v.Addr().UnsafePointer()} }

// newAddress allocates a zero value.
func newAddress(t reflect.Type) address { return address{reflect.New(t).UnsafePointer()} }

// field returns the address of the field at an offset within the struct at a.
func (a address) field(offset uintptr) address { return address{unsafe.Add(a.p, offset)} }

// value returns the variable of type t at a.
func (a address) value(t reflect.Type) reflect.Value { return reflect.NewAt(t, a.p).Elem() }

// pointer returns a *t with the value a.
func (a address) pointer(t reflect.Type) any { return reflect.NewAt(t, a.p).Interface() }

// as returns the variable at a, which must be a T or of T's layout.
func as[T any](a address) *T { return (*T)(a.p) }

// load returns what the pointer variable at a points to; nil reports false.
func (a address) load() (address, bool) {
	p := *(*unsafe.Pointer)(a.p)
	return address{p}, p != nil
}

// store sets the pointer variable at a.
func (a address) store(target address) { *(*unsafe.Pointer)(a.p) = target.p }

// getInt loads the signed integer of size bytes at a.
func (a address) getInt(size uint8) int64 {
	shift := 64 - 8*size
	return int64(a.getUint(size)<<shift) >> shift
}

// setUint stores n in the integer of size bytes at a.
func (a address) setUint(size uint8, n uint64) {
	switch size {
	case 1:
		*(*uint8)(a.p) = uint8(n)
	case 2:
		*(*uint16)(a.p) = uint16(n)
	case 4:
		*(*uint32)(a.p) = uint32(n)
	default:
		*(*uint64)(a.p) = n
	}
}

// getUint loads the unsigned integer of size bytes at a.
func (a address) getUint(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(*(*uint8)(a.p))
	case 2:
		return uint64(*(*uint16)(a.p))
	case 4:
		return uint64(*(*uint32)(a.p))
	default:
		return *(*uint64)(a.p)
	}
}

// bytesAsString returns b as a string without copying. The string must not be kept
// longer than b is not copied; it goes to functions that only read it.
func bytesAsString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
