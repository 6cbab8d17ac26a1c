package mock_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/mock"
)

// TestHostile reads forged captures, and sends every request in them. Nothing may panic or hang.
func TestHostile(t *testing.T) {
	for name, lines := range map[string][]line{
		"params that are not objects": after(hello,
			line{10, `→{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1,{"_meta":{}}]}`},
			line{11, `←{"jsonrpc":"2.0","id":1,"result":[]}`},
			line{12, `←{"jsonrpc":"2.0","method":"notifications/progress","params":[1]}`},
			line{13, `←{"jsonrpc":"2.0","method":"notifications/message"}`},
			line{14, `←{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`},
			line{15, `←{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":7}`}),
		"names and metadata of other kinds": after(hello,
			line{10, `→{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":{},"_meta":[],"inputResponses":1,"requestState":{"a":1e999999999999}}}`},
			line{11, `←{"jsonrpc":"2.0","id":1,"result":7}`}),
		"stray responses": after(hello,
			line{10, `←{"jsonrpc":"2.0","id":77,"result":{}}`},
			line{11, `→{"jsonrpc":"2.0","id":78,"result":{}}`},
			line{12, `←[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"x"}]`},
			line{13, `→[{"jsonrpc":"2.0","id":5,"method":"a"},{"jsonrpc":"2.0","id":5,"method":"a"},5]`},
			line{14, `←[{"jsonrpc":"2.0","id":5,"result":{}}]`}),
		"pointers to missing values": after(hello,
			line{10, `→{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}} ⋯ ,"red":["","/","/msg","/msg/params","/msg/params//","/msg/params/~9/0/x","/msg/paramsx"]`},
			line{11, `←{"jsonrpc":"2.0","id":1,"result":{}}`}),
		"decreasing times": after(hello,
			line{-5, `→{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`},
			line{-9, `←{"jsonrpc":"2.0","id":1,"result":{}}`}),
	} {
		t.Run(name, func(t *testing.T) {
			recording, err := mock.Read(capture.NewReader(strings.NewReader(captureOf(lines...)), nil).Events(), nil)
			if errors.Is(err, mock.ErrNothing) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			c := dial(t, recording, &mock.Options{Loose: true})
			c.greet(`{"elicitation":{}}`)
			var all strings.Builder
			for _, l := range lines[len(hello):] {
				if text, ok := strings.CutPrefix(l.text, "→"); ok {
					text, _, _ = strings.Cut(text, " ⋯ ")
					all.WriteString(text + "\n")
				}
			}
			sent := make(chan struct{})
			// A pipe has no buffer: a send waits until the server's output has been read
			go func() {
				defer close(sent)
				io.WriteString(c.conn, all.String()+`{"jsonrpc":"2.0","id":"end","method":"ping"}`+"\n")
			}()
			for !strings.Contains(c.next(), `"end"`) {
				continue
			}
			<-sent
			if err := c.hangUp(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClientThatDoesNotRead closes the server while it waits for a client.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mock.New(one(t), nil)
		c := pipeTo(t, srv)
		c.greet(`{}`)
		c.send(call("1", "a", `{}`, ``))
		synctest.Wait()
		srv.Close()
		c.hangUp()
	})
}
