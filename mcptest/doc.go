// Package mcptest tests servers and clients of the Model Context Protocol in memory, on the level of calls and on that of the wire.
// [Connect] gives you a client of your server. Most tests need nothing else:
//
//	func TestWeather(t *testing.T) {
//		c := mcptest.Connect(t, newServer(t), nil) // newServer returns the *server.Server under test
//		got, err := client.CallTool[Weather](t.Context(), c, "weather", map[string]any{"city": "Oslo"})
//		if err != nil {
//			t.Fatal(err)
//		}
//		if got.Celsius != 20 {
//			t.Errorf("got %v °C, want 20", got.Celsius)
//		}
//	}
//
// For the others:
//
//   - [Serve] and [NewPeer] let you play the client by hand: send this message, expect that one. See [Peer] for what expectations may leave open.
//   - [Script] lets you play a server, to test a client.
//   - [Golden] plays recorded sessions from files, and writes the files.
//   - [CheckLeaks] sees that no goroutine is left, and [Pipe] is what all of it runs over.
//
// [Request], [Result] and the functions beside them build the messages that scripts are made of, for any revision.
//
// # What a failure shows
//
// What differs, with the path of each place; the message that was expected and the one that came; and the session so far, in the format of [Golden]:
//
//	weather_test.go:24: Expect: another message came
//	    result.content[0].text: got "21 °C", want "20 °C"
//	want: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"20 °C"}]}}
//	got:  {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"21 °C"}]}}
//	the session so far:
//	  > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"weather","arguments":{"city":"Oslo"}}}
//	  < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"21 °C"}]}}
//
// # Time
//
// Every wait is bounded, by [Peer].Timeout or a constant, and nothing here sleeps to see whether something happens, except where its comment says
// so. All of it works in a bubble of testing/synctest, which makes timeouts of the code under test exact and free: make pipes, servers and peers
// inside the bubble, with the bubble's *testing.T.
//
// # Concurrency
//
// A [Peer] is for one goroutine. The ends of a [Pipe] are for any number. Everything that is started here belongs to the test that it was given:
// it is stopped and waited for when that ends.
//
// # Compatibility
//
// The package imports testing, so it is for test files only.
package mcptest
