package schema_test

import (
	"fmt"
	"log"

	"mcpwire/schema"
)

func ExampleOf() {
	type Args struct {
		Text  string `json:"text" jsonschema:"what to search for" schema:"minLength=1"`
		Limit int    `json:"limit" schema:"minimum=1,maximum=50,default=10"`
	}
	t, err := schema.Of[Args](nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(t.JSON()))

	var args Args
	err = t.Decode([]byte(`{"text":"gopher"}`), &args)
	fmt.Println(args, err)

	err = t.Decode([]byte(`{"limit":"ten","txet":"gopher"}`), &args)
	fmt.Println(err)
	// Output:
	// {"type":"object","properties":{"text":{"type":"string","minLength":1,"description":"what to search for"},"limit":{"type":"integer","minimum":1,"maximum":50,"default":10}},"required":["text"],"additionalProperties":false}
	// {gopher 10} <nil>
	// arguments.limit: expected integer, got string "ten"; arguments: unknown property "txet"; allowed: "text", "limit"; arguments: missing required property "text"
}

func ExampleTyped_Append() {
	type Result struct {
		Words []string       `json:"words"`
		Count map[string]int `json:"count"`
	}
	t, err := schema.Of[Result](nil)
	if err != nil {
		panic(err)
	}
	out, err := t.Append(nil, &Result{Count: map[string]int{"b": 2, "a": 1}})
	fmt.Println(string(out), err)
	// Output:
	// {"words":[],"count":{"a":1,"b":2}} <nil>
}

func ExampleCompile() {
	v, err := schema.Compile([]byte(`{
		"type": "object",
		"properties": {"unit": {"enum": ["km", "mi"]}},
		"required": ["unit"]
	}`), nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(v.Validate([]byte(`{"unit":"km"}`)))
	fmt.Println(v.Validate([]byte(`{"unit":"ft"}`)))
	// Output:
	// <nil>
	// arguments.unit: expected one of "km", "mi", got string "ft"
}

func ExampleEither() {
	type args struct {
		Names schema.Either[string, []string] `json:"names"`
	}
	t, err := schema.Of[args](nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{`{"names":"ada"}`, `{"names":["ada","bob"]}`} {
		var v args
		if err := t.Decode([]byte(text), &v); err != nil {
			log.Fatal(err)
		}
		if v.Names.A != nil {
			fmt.Println("one:", *v.Names.A)
		} else {
			fmt.Println("many:", *v.Names.B)
		}
	}
	// Output:
	// one: ada
	// many: [ada bob]
}
