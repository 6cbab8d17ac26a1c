package schema_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// disagree compares the validator with the full engine for one schema and instance. It returns an
// empty string if they agree or if one of them cannot decide.
func disagree(schemaText, instance []byte) string {
	full, err := fullschema.Engine(schemaText)
	if err != nil {
		return ""
	}
	v, err := schema.Compile(schemaText, nil)
	if err != nil {
		if strings.Contains(err.Error(), "endlessly") || strings.Contains(err.Error(), "nothing found at") {
			return "" // the other reports it during validation, if it gets that far
		}
		return "Compile: " + err.Error()
	}
	got, want := v.Validate(instance), full(instance)
	if errors.Is(got, schema.ErrLimit) || got != nil && strings.Contains(got.Error(), "duplicate property") {
		return ""
	}
	if (got == nil) != (want == nil) {
		return "Validate: " + errText(got) + "\nfull engine: " + errText(want)
	}
	return ""
}

func errText(err error) string {
	if err == nil {
		return "valid"
	}
	return err.Error()
}

// TestDifferentialRandom compares the validator with the full engine on generated schemas and
// instances.
func TestDifferentialRandom(t *testing.T) {
	const rounds = 1500
	rng := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range rounds {
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		e := &entropy{data}
		s := []byte(e.schema(3))
		for range 4 {
			in := []byte(e.instance(3))
			if msg := disagree(s, in); msg != "" {
				t.Fatalf("schema %s\ninstance %s\n%s", s, in, msg)
			}
			if v, err := schema.Compile(s, nil); err == nil && v.Validate(in) == nil {
				valid++
			}
		}
	}
	if valid < rounds/2 || valid > 4*rounds-rounds/2 {
		t.Errorf("%d of %d pairs are valid; the generator is too one-sided", valid, 4*rounds)
	}
}

// FuzzValidate is TestDifferentialRandom with inputs chosen by coverage.
func FuzzValidate(f *testing.F) {
	for _, c := range keywordCases {
		f.Add([]byte(c.schema))
	}
	for i := range 8 {
		f.Add(bytes.Repeat([]byte{byte(37 * i), byte(i), 7}, 60))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e := &entropy{data}
		s := []byte(e.schema(3))
		in := []byte(e.instance(3))
		if msg := disagree(s, in); msg != "" {
			t.Fatalf("schema %s\ninstance %s\n%s", s, in, msg)
		}
	})
}

// FuzzCompile compiles any text: Compile must not panic, and for a schema that both accept, it and
// the full engine must agree about instances.
func FuzzCompile(f *testing.F) {
	for _, c := range keywordCases {
		for _, in := range append(c.valid, c.invalid...) {
			f.Add([]byte(c.schema), []byte(in))
		}
	}
	f.Fuzz(func(t *testing.T, s, in []byte) {
		if !validJSON(s) || !validJSON(in) {
			return
		}
		v, err := schema.Compile(s, nil)
		if err != nil {
			return
		}
		full, err := fullschema.Engine(s)
		if err != nil {
			v.WithLimits(schema.Limits{MaxSteps: 10_000}).Validate(in)
			return // it also checks the form of annotations
		}
		got := v.WithLimits(schema.Limits{MaxSteps: 10_000}).Validate(in)
		if errors.Is(got, schema.ErrLimit) || got != nil && strings.Contains(got.Error(), "duplicate property") {
			return
		}
		if want := full(in); (got == nil) != (want == nil) && !strings.Contains(errText(want), "exponent") {
			t.Fatalf("schema %s\ninstance %s\nValidate: %s\nfull engine: %s", s, in, errText(got), errText(want))
		}
	})
}
