package mcp

import (
	"errors"
	"fmt"

	"mcpwire/internal/jsonwire"
)

// CheckContent returns the block by value, also if c is a pointer to one, and an error if its JSON text would not be valid: a Meta that is no JSON
// object, a priority that is not from 0 to 1, or no block at all.
func CheckContent(c Content) (Content, error) {
	switch p := c.(type) {
	case *Text:
		c = deref(p)
	case *Image:
		c = deref(p)
	case *Audio:
		c = deref(p)
	case *ResourceLink:
		c = deref(p)
	case *EmbeddedResource:
		c = deref(p)
	}
	if c == nil {
		return nil, errors.New("content block is nil")
	}
	return c, c.check()
}

func deref[T Content](p *T) Content {
	if p == nil {
		return nil
	}
	return *p
}

// CheckMeta returns an error unless meta is nil or the JSON text of an object.
func CheckMeta(meta []byte) error {
	if meta == nil {
		return nil
	}
	if err := jsonwire.Valid(meta, 0); err != nil {
		return fmt.Errorf("_meta: %w", err)
	}
	if jsonwire.AppendCompact(nil, meta)[0] != '{' {
		return errors.New("_meta must be a JSON object")
	}
	return nil
}

func (c Text) check() error         { return checkBlock(c.Annotations, c.Meta) }
func (c Image) check() error        { return checkBlock(c.Annotations, c.Meta) }
func (c Audio) check() error        { return checkBlock(c.Annotations, c.Meta) }
func (c ResourceLink) check() error { return checkBlock(c.Annotations, c.Meta) }

func (c EmbeddedResource) check() error {
	if err := CheckMeta(c.Resource.Meta); err != nil {
		return err
	}
	return checkBlock(c.Annotations, c.Meta)
}

func checkBlock(a *Annotations, meta []byte) error {
	if a != nil && a.Priority != nil && !(*a.Priority >= 0 && *a.Priority <= 1) { // nor NaN
		return fmt.Errorf("annotations: priority %v is not from 0 to 1", *a.Priority)
	}
	return CheckMeta(meta)
}
