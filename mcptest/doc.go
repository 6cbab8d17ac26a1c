// Package mcptest tests servers and clients of the Model Context Protocol in
// memory, at the level of calls and at the level of messages. [Connect] returns a
// client of the server under test. Most tests need nothing else:
//
//	func TestWeather(t *testing.T) {
//		c := mcptest.Connect(t, newServer(t), nil) // newServer returns a *server.Server
//		args := map[string]any{"city": "Oslo"}
//		got, err := client.CallTool[Weather](t.Context(), c, "weather", args)
//		if err != nil {
//			t.Fatal(err)
//		}
//		if got.Celsius != 20 {
//			t.Errorf("got %v °C, want 20", got.Celsius)
//		}
//	}
//
// For other tests:
//
//   - [Serve] and [NewPeer] let a test act as the client, one message at a time. See
//     [Peer] for the patterns of expected messages.
//   - [Script] acts as a server, to test a client.
//   - [Golden] runs recorded sessions from files, and updates the files.
//   - [CheckLeaks] reports leaked goroutines, and [Pipe] is the transport of all
//     these.
//
// [Request], [Result] and similar functions build messages of any revision.
//
// # Handlers that ask the client
//
// Since 2026-07-28 a handler that asks the client runs again from its beginning with
// each answer, so what it does before an input request happens twice. Connect and
// Serve find such handlers: they let each one run twice up to its input requests and
// compare the input requests, the progress and the log messages. Effects that clients
// cannot see are found with a Snapshot of the state behind the server:
//
//	c := mcptest.Connect(t, mcptest.RerunCheck{
//		Server:   newServer(t, orders),
//		Snapshot: func() any { return orders.Len() },
//	}, nil)
//
// [RerunCheck] has the details and turns the check off.
//
// # Failures
//
// A failure shows the differences with their paths, the expected and the received
// message, and the session so far in the format of [Golden]:
//
//	weather_test.go:24: Expect: got another message
//	    result.content[0].text: got "21 °C", want "20 °C"
//	want: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"20 °C"}]}}
//	got:  {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"21 °C"}]}}
//	the session so far:
//	  > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"weather"}}
//	  < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"21 °C"}]}}
//
// # Time
//
// Every wait is bounded by [Peer].Timeout or a constant. Nothing sleeps to see
// whether something happens, except where documented. Everything works in a bubble
// of testing/synctest, where the timeouts of the code under test are exact and take
// no time. Create pipes, servers and peers inside the bubble, with its *testing.T.
//
// # Concurrency
//
// A [Peer] must be used by one goroutine at a time. The ends of a [Pipe] may be used
// by multiple goroutines at once. At the end of a test, the package stops whatever it
// has started for that test and waits for it.
//
// # Compatibility
//
// The package imports testing, so use it in test files only.
package mcptest
