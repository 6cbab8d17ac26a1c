package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mcpwire/mcp"
	"mcpwire/server"
)

type (
	// nameForm asks for the user's name.
	nameForm struct {
		Name string `json:"name" jsonschema:"your name"`
	}
	// colorForm asks for a color.
	colorForm struct {
		Color string `json:"color" jsonschema:"a color"`
	}
	// confirmForm asks for a confirmation.
	confirmForm struct {
		OK bool `json:"ok,omitempty" jsonschema:"whether to go on"`
	}
)

// addInputRequired registers the tools for the scenarios of InputRequiredResult
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr). None takes
// arguments.
func addInputRequired(srv *server.Server) error {
	const prefix = "test_input_required_result_"
	add := func(name, description string, fn func(context.Context, none) (string, error)) error {
		return server.AddTool(srv, prefix+name, description, fn)
	}
	return errors.Join(
		add("elicitation", "Ask the user's name, and greet.", greetUser),
		add("sampling", "Ask the client's model.", func(ctx context.Context, _ none) (string, error) {
			return sample(ctx, promptInput{"What is the capital of France?"})
		}),
		add("list_roots", "Ask for the client's roots.", listRoots),
		add("request_state", "Ask the user, and find the state again.", confirm("state-ok")),
		add("multiple_inputs", "Ask the user, the model and for the roots at once.", askAll),
		add("multi_round", "Ask the user twice.", twoRounds),
		add("tampered_state", "Ask the user, and take no state but the server's own.", confirm("state-ok")),
		add("capabilities", "Ask what the client can be asked.", askSupported),
	)
}

// name is the key under which the suite answers with a name.
const name = "user_name"

func userName(ctx context.Context) (string, error) {
	got, err := server.Elicit[nameForm](ctx, name, "What is your name?")
	if err != nil {
		return "", err
	}
	if !got.Accepted() {
		return "stranger", nil
	}
	return got.Value.Name, nil
}

func greetUser(ctx context.Context, _ none) (string, error) {
	who, err := userName(ctx)
	return "Hello, " + who + "!", err
}

func listRoots(ctx context.Context, _ none) (string, error) {
	roots, err := server.CallOf(ctx).Roots(ctx, "client_roots")
	return rootsText(roots), err
}

func rootsText(roots []mcp.Root) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d roots", len(roots))
	for _, r := range roots {
		b.WriteString(" " + r.URI)
	}
	return b.String()
}

func confirm(done string) func(context.Context, none) (string, error) {
	return func(ctx context.Context, _ none) (string, error) {
		_, err := server.Elicit[confirmForm](ctx, "confirm", "Please confirm")
		return done, err
	}
}

func askAll(ctx context.Context, _ none) (string, error) {
	q := server.CallOf(ctx).InputRequests()
	who := server.Form[nameForm](q, name, "What is your name?")
	said := q.Sample("greeting", samplingParams("Generate a greeting"))
	roots := q.Roots("client_roots")
	if err := q.Wait(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %s; %s", who.Value().Value.Name, sampled(said.Value()), rootsText(roots.Value())), nil
}

func twoRounds(ctx context.Context, _ none) (string, error) {
	first, err := server.Elicit[nameForm](ctx, "step1", "Step 1: What is your name?")
	if err != nil {
		return "", err
	}
	second, err := server.Elicit[colorForm](ctx, "step2", "Step 2: What is your favorite color?")
	return first.Value.Name + " likes " + second.Value.Color, err
}

func askSupported(ctx context.Context, _ none) (string, error) {
	call := server.CallOf(ctx)
	q := call.InputRequests()
	if call.Supports(server.Sampling) {
		q.Sample("capital", samplingParams("What is the capital of France?"))
	}
	if call.Supports(server.FormElicitation) {
		server.Form[nameForm](q, name, "What is your name?")
	}
	return "Asked what could be asked.", q.Wait(ctx)
}
