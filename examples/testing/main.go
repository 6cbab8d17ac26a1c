// Testing is a server to be tested: a list of things to do. The interesting file is main_test.go,
// which shows the ways to test a server with package mcptest.
//
//	go test -v ./examples/testing
//	mcpwire call add text='buy bread' -- go run ./examples/testing
package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"sync"

	"mcpwire/server"
	"mcpwire/stdio"
)

// maxItems limits the list.
const maxItems = 100

// A todo is a list of things to do. The server runs handlers concurrently, so it needs a lock.
type todo struct {
	mu    sync.Mutex
	items []string
}

type item struct {
	Text string `json:"text" schema:"minLength=1,maxLength=200"`
}

type items struct {
	Items []string `json:"items"`
}

// add adds an item and returns the list. The text of an error is for the model.
func (l *todo) add(_ context.Context, in item) (items, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case slices.Contains(l.items, in.Text):
		return items{}, fmt.Errorf("%q is on the list already", in.Text)
	case len(l.items) == maxItems:
		return items{}, fmt.Errorf("the list is full: it has %d items", maxItems)
	}
	l.items = append(l.items, in.Text)
	return items{slices.Clone(l.items)}, nil
}

func newServer() (*server.Server, error) {
	srv, err := server.New("todo", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	list := new(todo)
	err = server.AddTool(srv, "add", "Add a thing to do, and return all of them.", list.add)
	return srv, err
}

func main() {
	srv, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	if err := stdio.Serve(context.Background(), srv); err != nil {
		log.Fatal(err)
	}
}
