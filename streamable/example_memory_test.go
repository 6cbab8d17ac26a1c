package streamable_test

import (
	"context"
	"fmt"

	"mcpwire/streamable"
)

func ExampleNewMemoryEvents() {
	ctx := context.Background()
	store := streamable.NewMemoryEvents(&streamable.MemoryEventsOptions{MaxSessionEvents: 2})
	first, _ := store.Append(ctx, "session", "stream", nil)
	store.Append(ctx, "session", "stream", []byte(`{"jsonrpc":"2.0","method":"notifications/message"}`))
	_, events, err := store.After(ctx, "session", first)
	if err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range events {
		fmt.Printf("%s %s %v\n", e.ID, e.Data, err)
	}
	store.Append(ctx, "session", "stream", []byte(`{}`)) // evicts the first event
	_, _, err = store.After(ctx, "session", first)
	fmt.Println(err)
	// Output:
	// stream-2 {"jsonrpc":"2.0","method":"notifications/message"} <nil>
	// no such event
}

func ExampleNewMemorySessions() {
	ctx := context.Background()
	store := streamable.NewMemorySessions()
	err := store.Update(ctx, "key", func(s *streamable.SavedSession) { s.LogLevel = "info" })
	if err != nil {
		fmt.Println(err)
	}
	s, err := store.Load(ctx, "key")
	fmt.Println(s.LogLevel, err)
	// Output: info <nil>
}
