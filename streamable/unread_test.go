package streamable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/server"
	"mcpwire/streamable"
)

// Answers that clients do not read are bounded, by caller and in all.
func TestUnreadAnswers(t *testing.T) {
	const dropped = `"error":{"code":-32603,"message":"the answer was dropped: the client has not read too many others yet; the request was carried out"}}`
	for _, kind := range []string{"modern", "legacy"} {
		o := &streamable.Options{MaxUnread: 1 << 20, ClientAddr: byHeader}
		inBubble(t, false, o, func(e *endpoint) {
			large := func(_ context.Context, in struct {
				KiB int `json:"kib"`
			}) (string, error) {
				return strings.Repeat("x", in.KiB<<10), nil
			}
			if err := server.AddTool(e.srv, "large", "", large); err != nil {
				e.t.Fatal(err)
			}
			visitors := map[string]*visitor{}
			visit := func(address string) *visitor {
				if visitors[address] == nil {
					visitors[address] = e.visit("2025-06-18", "{}", from(nil, address))
				}
				return visitors[address]
			}
			call := func(id, kib int, address string) (body string, headers map[string]string) {
				arguments := fmt.Sprintf(`{"kib":%d}`, kib)
				if kind == "modern" {
					body, headers = callPost(id, "large", arguments)
					return body, from(headers, address)
				}
				return request(id, "tools/call", `{"name":"large","arguments":`+arguments+`}`), visit(address).headers
			}
			unread := func(id, kib int, address string) {
				body, headers := call(id, kib, address)
				var lines []string
				for k, v := range headers {
					lines = append(lines, k+": "+v)
				}
				e.raw(rawPost(body, lines...))
				synctest.Wait()
			}
			var got []string
			try := func(what string, id, kib int, address string) {
				body, headers := call(id, kib, address)
				var a answer
				d := took(func() { a = e.do("POST", body, headers) })
				text := a.body
				if strings.Contains(text, "xxx") {
					text = fmt.Sprint(strings.Count(text, "x")>>10, " KiB")
				}
				got = append(got, fmt.Sprintln(what, a.status, d, text))
			}
			const a, b, c = "192.0.2.1", "192.0.2.2", "192.0.2.3"
			unread(1, 200, a)
			try("small", 2, 1, a)
			try("large", 3, 200, a)
			unread(4, 200, a) // waits
			try("while it waits", 5, 1, a)
			try("other", 6, 200, b)
			pass(2 * time.Second)
			unread(7, 600, b)
			try("little room", 8, 200, c)
			try("no room", 9, 300, c)
			pass(20 * time.Second) // those that do not read are cut
			try("afterwards", 10, 200, a)
			want := []string{
				"small 200 0s 1 KiB\n",
				"large 500 3s " + `{"jsonrpc":"2.0","id":3,` + dropped + "\n",
				"while it waits 429 0s " + `{"jsonrpc":"2.0","error":{"code":-32603,"message":"too many: answers of one caller are not read"}}` + "\n",
				"other 200 0s 200 KiB\n",
				"little room 200 0s 200 KiB\n",
				"no room 500 3s " + `{"jsonrpc":"2.0","id":9,` + dropped + "\n",
				"afterwards 200 0s 200 KiB\n",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				e.t.Errorf("%s (-want +got):\n%s", kind, diff)
			}
		})
	}
}
