package targets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"mcpwire/client"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// answers sets the handlers for input requests: elicitation, sampling and roots. It reads the files
// that the flags name.
func (d *Dialer) answers() error {
	o, f := &d.opts, d.Flags
	o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL}
	switch way := f.elicit; {
	case way == "ask" || way == "" && d.canAsk():
		if !d.canAsk() {
			return exit.Usagef("--elicit ask needs a terminal: give --elicit @FILE with the responses, or --elicit decline")
		}
		o.Input.Elicit = func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			d.Notes.Clear()
			return newForm(d.Target.Name, p).fill(ctx, d.Ask)
		}
	case way == "" || way == "decline":
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			d.Notes.Linef("declined the server's elicitation: %s", safe.Clip(p.Message, 500))
			return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
		}
	case strings.HasPrefix(way, "@"):
		prepared, err := readAnswers(way[1:])
		if err != nil {
			return exit.Usagef("--elicit: %w", err)
		}
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			r, err := prepared.elicit(p)
			problem := err
			if err == nil {
				// The client rejects such a result without telling the user why.
				problem = checkContent(r, p)
			}
			if problem != nil {
				d.Notes.Warnf("%s: %v", safe.Line(way[1:]), problem)
			}
			return r, err
		}
	default:
		return exit.Usagef("--elicit %s: want ask, decline or @FILE", safe.Line(way))
	}
	if err := d.sampling(); err != nil {
		return err
	}
	return d.folders()
}

// canAsk reports whether there is a user to ask.
func (d *Dialer) canAsk() bool {
	return d.Ask != nil || d.Env.CanAsk()
}

// sampling sets the handler for sampling requests.
func (d *Dialer) sampling() error {
	switch way := d.Flags.sampling; {
	case way == "":
	case way == "decline":
		d.opts.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			d.Notes.Linef("declined the server's sampling request")
			return nil, client.ErrRefused
		}
	case strings.HasPrefix(way, "@"):
		list, err := readList(way[1:])
		if err != nil {
			return exit.Usagef("--sampling: %w", err)
		}
		results := make([]*mcp.CreateMessageResult, len(list.items))
		for i, text := range list.items {
			results[i] = new(mcp.CreateMessageResult)
			if err := results[i].UnmarshalJSON(text); err != nil {
				return exit.Usagef("--sampling: %s: not a CreateMessageResult: %w", safe.Line(way[1:]), err)
			}
		}
		var mu sync.Mutex
		d.opts.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(results) == 0 {
				return nil, fmt.Errorf("%s has no more responses", safe.Line(way[1:]))
			}
			r := results[0]
			if len(results) > 1 || list.many {
				results = results[1:]
			}
			return r, nil
		}
	default:
		return exit.Usagef("--sampling %s: want decline or @FILE", safe.Line(way))
	}
	return nil
}

// folders sets the handler for the roots that a server may list.
func (d *Dialer) folders() error {
	var roots []mcp.Root
	for _, name := range d.Flags.roots {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return exit.Usagef("--root %s: no such folder", safe.Line(name))
		}
		slashed := filepath.ToSlash(path)
		if !strings.HasPrefix(slashed, "/") {
			slashed = "/" + slashed
		}
		roots = append(roots, mcp.Root{URI: (&url.URL{Scheme: "file", Path: slashed}).String(), Name: filepath.Base(path)})
	}
	if roots != nil {
		d.opts.Input.Roots = func(context.Context) ([]mcp.Root, error) { return roots, nil }
	}
	return nil
}

// A jsonList is the content of a file of answers: one JSON object, or several in an array.
type jsonList struct {
	items []json.RawMessage
	many  bool
}

func readList(file string) (jsonList, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return jsonList{}, err
	}
	text = []byte(strings.TrimSpace(string(text)))
	if err := jsonwire.Valid(text, 0); err != nil {
		return jsonList{}, fmt.Errorf("%s: not JSON: %w", safe.Line(file), err)
	}
	list := jsonList{items: []json.RawMessage{text}}
	if text[0] == '[' {
		list = jsonList{many: true}
		elements := jsonwire.ArrayElements(text)
		for elements.Next() {
			list.items = append(list.items, elements.Value())
		}
	}
	for _, item := range list.items {
		if item[0] != '{' {
			return list, fmt.Errorf("%s: want an object, or an array of objects", safe.Line(file))
		}
	}
	return list, nil
}

// prepared holds answers from a file: either an array of objects for successive requests, or one
// object whose members answer any form that has fields of their names. An object with the member
// action is a complete result; any other is the content of an accepted form.
type prepared struct {
	mu   sync.Mutex
	list jsonList
}

func readAnswers(file string) (*prepared, error) {
	list, err := readList(file)
	return &prepared{list: list}, err
}

func (a *prepared) elicit(p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list.items) == 0 {
		return nil, errors.New("the file has no more responses")
	}
	item := a.list.items[0]
	if a.list.many {
		a.list.items = a.list.items[1:]
	}
	if isElicitResult(item) {
		r := new(mcp.ElicitResult)
		return r, r.UnmarshalJSON(item)
	}
	// Only the user can have visited the page.
	if p.Mode == mcp.ElicitModeURL {
		return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
	}
	if !a.list.many {
		item = pickFields(item, p.RequestedSchema)
	}
	return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: item}, nil
}

// checkContent returns why an accepted response does not match the form's schema. It returns nil if
// it matches or the schema is invalid.
func checkContent(r *mcp.ElicitResult, p *mcp.ElicitRequestParams) error {
	if r.Action != mcp.ElicitActionAccept || p.Mode == mcp.ElicitModeURL {
		return nil
	}
	v, err := schema.Compile(p.RequestedSchema, nil)
	if err != nil {
		return nil
	}
	content := r.Content
	if content == nil {
		content = json.RawMessage("{}")
	}
	err = v.Validate(content)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "the answer"
	}
	if err != nil {
		return errors.New(safe.Clip(err.Error(), 500))
	}
	return nil
}

// isElicitResult reports whether an object is a complete result with the user's action.
func isElicitResult(object json.RawMessage) bool {
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if members.KeyIs("action") {
			switch string(members.Value()) {
			case `"accept"`, `"decline"`, `"cancel"`:
				return true
			}
		}
	}
	return false
}

// pickFields returns the members of an object for which a form has fields.
func pickFields(object, form json.RawMessage) json.RawMessage {
	fields, _ := Properties(form)
	out := []byte{'{'}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		for _, f := range fields {
			if !members.KeyIs(f.Name) {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(jsonwire.AppendQuote(out, f.Name), ':')
			out = append(out, members.Value()...)
			break
		}
	}
	return append(out, '}')
}
