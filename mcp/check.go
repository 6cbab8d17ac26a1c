package mcp

import (
	"errors"
	"fmt"

	"mcpwire/internal/jsonwire"
)

// CheckContent returns the block by value, also if c is a pointer to one, and an error if its JSON text would not be valid: a Meta that is no JSON
// object, a priority that is not from 0 to 1, or no block at all.
func CheckContent(c ContentBlock) (ContentBlock, error) {
	if c = byValue(c); c == nil {
		return nil, errors.New("content block is nil")
	}
	return c, c.check()
}

// byValue returns the block that c points to, nil if that is nil, and c itself if it is no pointer.
func byValue(c ContentBlock) ContentBlock {
	switch p := c.(type) {
	case *TextContent:
		c = deref(p)
	case *ImageContent:
		c = deref(p)
	case *AudioContent:
		c = deref(p)
	case *ResourceLink:
		c = deref(p)
	case *EmbeddedResource:
		c = deref(p)
	case *ToolUseContent:
		c = deref(p)
	case *ToolResultContent:
		c = deref(p)
	case *UnknownContent:
		c = deref(p)
	}
	return c
}

func deref[T ContentBlock](p *T) ContentBlock {
	if p == nil {
		return nil
	}
	return *p
}

// CheckMeta returns an error unless meta is nil or the JSON text of an object. It does not look at the keys, which may be those of others that are passed
// on: [CheckMetaKey] is for who chooses one.
func CheckMeta(meta []byte) error { return checkObject("_meta", meta) }

// checkObject returns an error unless text is nil or the JSON text of an object.
func checkObject(name string, text []byte) error {
	if text == nil {
		return nil
	}
	if err := jsonwire.Valid(text, 0); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !isObject(text) {
		return fmt.Errorf("%s must be a JSON object", name)
	}
	return nil
}

func (v TextContent) check() error  { return checkBlock(v.Annotations, v.Meta, v.Extra) }
func (v ImageContent) check() error { return checkBlock(v.Annotations, v.Meta, v.Extra) }
func (v AudioContent) check() error { return checkBlock(v.Annotations, v.Meta, v.Extra) }
func (v ResourceLink) check() error { return checkBlock(v.Annotations, v.Meta, v.Extra) }

func (v EmbeddedResource) check() error {
	if err := errors.Join(CheckMeta(v.Resource.Meta), checkObject("Extra", v.Resource.Extra)); err != nil {
		return err
	}
	return checkBlock(v.Annotations, v.Meta, v.Extra)
}

func (v ToolUseContent) check() error {
	return errors.Join(checkObject("input", v.Input), CheckMeta(v.Meta), checkObject("Extra", v.Extra))
}

func (v ToolResultContent) check() error {
	for i, c := range v.Content {
		if _, err := CheckContent(c); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	if v.StructuredContent != nil {
		if err := jsonwire.Valid(v.StructuredContent, 0); err != nil {
			return fmt.Errorf("structuredContent: %w", err)
		}
	}
	return errors.Join(CheckMeta(v.Meta), checkObject("Extra", v.Extra))
}

func (v UnknownContent) check() error {
	if v.Raw == nil {
		return errors.New("content block is empty")
	}
	return checkObject("content block", v.Raw)
}

func checkBlock(a *Annotations, meta, extra []byte) error {
	if a != nil {
		if a.Priority != nil && !(*a.Priority >= 0 && *a.Priority <= 1) { // nor NaN
			return fmt.Errorf("annotations: priority %v is not from 0 to 1", *a.Priority)
		}
		if err := checkObject("annotations: Extra", a.Extra); err != nil {
			return err
		}
	}
	if err := checkObject("Extra", extra); err != nil {
		return err
	}
	return CheckMeta(meta)
}
