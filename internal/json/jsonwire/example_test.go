package jsonwire_test

import (
	"fmt"

	"mcpwire/internal/json/jsonwire"
)

// The members of an object, validated and located in one pass.
func ExampleScanner() {
	data := []byte(`{"id": 7, "params": {"text": "a\nb"}}`)
	members := func() error {
		var s jsonwire.Scanner
		s.Reset(data, 0)
		more, err := s.EnterObject()
		for ; more; more, err = s.NextMember() {
			name, _, err := s.Key()
			if err != nil {
				return err
			}
			s.Peek() // moves to the value
			start := s.Pos()
			if err := s.Skip(); err != nil {
				return err
			}
			fmt.Printf("%s is %s\n", name, data[start:s.Pos()])
		}
		if err != nil {
			return err
		}
		return s.End()
	}
	if err := members(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// id is 7
	// params is {"text": "a\nb"}
}

func ExampleMembers() {
	m := jsonwire.ObjectMembers([]byte(`{"na\u006de":"echo","arguments":{"text":"\ud83d\ude00"}}`))
	for m.Next() {
		fmt.Println(m.KeyIs("name"), m.KeyString(), string(m.Value()))
	}
	// Output:
	// true name "echo"
	// false arguments {"text":"\ud83d\ude00"}
}
