package jq

import (
	"context"
	"errors"

	"github.com/itchyny/gojq"
)

// maxPayload is the size in bytes of the largest payload that programs run on.
const maxPayload = 4 << 20

// A Program is a jq program that compiles.
type Program struct{ source string }

// Compile checks a program and that it can be run. It has no input but the payload: no environment,
// no modules and no files.
func Compile(source string) (*Program, error) {
	if _, err := compile(source); err != nil {
		return nil, err
	}
	if err := checkStartable(); err != nil {
		return nil, err
	}
	return &Program{source}, nil
}

func compile(source string) (*gojq.Code, error) {
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query)
}

// True reports whether the first value that the program returns for a payload is neither false nor
// null. If the payload is an array, a batch, it reports whether that is so for one of its elements.
// It is false for payloads above 4 MiB, and when the program fails, takes longer than [maxTime] or
// more memory than [maxMemory], or ctx ends.
func (p *Program) True(ctx context.Context, payload []byte) bool {
	if len(payload) > maxPayload {
		return false
	}
	for range maxWorkers + 1 { // all that are idle may have been killed meanwhile
		w, release := acquire(ctx)
		if w == nil {
			return false
		}
		isTrue, err := w.evaluate(ctx, p.source, payload)
		release(err == nil)
		if !errors.Is(err, errExited) {
			return isTrue && err == nil
		}
	}
	return false
}
