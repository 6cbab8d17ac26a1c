package detail

import (
	"context"
	"fmt"

	"mcpwire/cmd/internal/json/jsondiff"
)

// Compare compares two events of a kind, such as "request". Zero means that there is none. notes
// say why events cannot be compared.
func Compare(ctx context.Context, src Source, kind, captureA string, a uint64, captureB string, b uint64) (changes []jsondiff.Change, notes []string) {
	if a == 0 && b == 0 {
		return nil, nil
	}
	first, whyA := ReadPayload(ctx, src, captureA, a)
	second, whyB := ReadPayload(ctx, src, captureB, b)
	if whyA != "" {
		notes = append(notes, "the first "+kind+whyA)
	}
	if whyB != "" {
		notes = append(notes, "the second "+kind+whyB)
	}
	if notes != nil {
		return nil, notes
	}
	return jsondiff.Diff(first, second, nil), nil
}

// ReadPayload returns the payload of an event or, as the end of a sentence, why it cannot be read.
func ReadPayload(ctx context.Context, src Source, captureID string, n uint64) (data []byte, why string) {
	if n == 0 {
		return nil, " is missing"
	}
	e, err := src.Event(ctx, captureID, n)
	switch {
	case err != nil:
		return nil, " cannot be read: " + err.Error()
	case e.Cut:
		return nil, fmt.Sprintf(" was recorded in part only: %d of %d bytes", len(e.Data), e.Len)
	}
	return e.Data, ""
}
