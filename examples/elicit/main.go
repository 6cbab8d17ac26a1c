// Elicit is a server on standard input and output whose tool asks the user. The same code serves
// clients of both eras.
//
//	mcpwire call order thing=hat -- go run ./examples/elicit
package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"mcpwire/server"
	"mcpwire/stdio"
)

// A delivery is the form that the user fills in. Forms are flat: texts, numbers, booleans and
// choices.
type delivery struct {
	Street string `json:"street" schema:"title=Street and number,minLength=1"`
	Speed  string `json:"speed" schema:"enum=normal|express,default=normal"`
}

func newServer() (*server.Server, error) {
	srv, err := server.New("shop", "1.0.0", nil)
	if err != nil {
		return nil, err
	}
	var orders atomic.Int64
	err = server.AddTool(srv, "order", "Order a thing.", func(ctx context.Context, in struct {
		Thing string `json:"thing" schema:"minLength=1"`
	}) (string, error) {
		// A legacy client is asked by a request, and the handler waits in Elicit. A modern client
		// gets the question as the result of its call, and calls again with the answer: the handler
		// runs from its beginning. What must not be done twice goes behind the question or into
		// server.Once.
		number, err := server.Once(ctx, "number", func(context.Context) (int64, error) {
			return orders.Add(1), nil
		})
		if err != nil {
			return "", err
		}
		to, err := server.Elicit[delivery](ctx, "delivery", "Where shall the "+in.Thing+" go?")
		if err != nil {
			return "", err // in the modern era this is how the question is sent
		}
		if !to.Accepted() {
			return "Nothing was ordered.", nil
		}
		return fmt.Sprintf("Order %d: a %s to %s, %s.", number, in.Thing, to.Value.Street, to.Value.Speed), nil
	})
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
