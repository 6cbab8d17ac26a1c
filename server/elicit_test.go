package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

type size string

func (size) JSONSchemaEnum() []string { return []string{"S", "M", "L"} }

// An order has a field of each type that forms allow.
type order struct {
	Name  string    `json:"name" jsonschema:"who it is for" schema:"title=Your name,minLength=2,maxLength=20,pattern=^[A-Z]"`
	Mail  *string   `json:"mail,omitempty" schema:"format=email"`
	Page  string    `json:"page,omitempty" schema:"format=uri"`
	Day   string    `json:"day,omitempty" schema:"format=date"`
	When  time.Time `json:"when"`
	Count int       `json:"count" schema:"minimum=1,maximum=9,default=1"`
	Price float64   `json:"price" schema:"exclusiveMinimum=0"`
	Gift  bool      `json:"gift"`
	Size  size      `json:"size"`
	Other *size     `json:"other"`
	Speed string    `json:"speed" schema:"enum=slow|fast,default=slow"`
}

const orderForm = `{"type":"object","properties":{` +
	`"name":{"type":"string","minLength":2,"maxLength":20,"description":"who it is for","title":"Your name"},` +
	`"mail":{"type":"string","format":"email"},` +
	`"page":{"type":"string","format":"uri"},` +
	`"day":{"type":"string","format":"date"},` +
	`"when":{"type":"string","format":"date-time"},` +
	`"count":{"type":"integer","minimum":1,"maximum":9,"default":1},` +
	`"price":{"type":"number"},` +
	`"gift":{"type":"boolean"},` +
	`"size":{"type":"string","enum":["S","M","L"]},` +
	`"other":{"type":"string","enum":["S","M","L"]},` +
	`"speed":{"type":"string","enum":["slow","fast"],"default":"slow"}},` +
	`"required":["name","when","price","gift","size"]}`

// TestElicitForm elicits a struct.
//
// Spec: S174
func TestElicitForm(t *testing.T) {
	mail, other := "a@b.c", size("L")
	for _, revision := range []string{"2025-06-18", "2025-11-25", modern} {
		var got server.Answer[order]
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			ctx, cancel := context.WithCancel(c) // any derived context works
			defer cancel()
			var err error
			got, err = server.Elicit[order](ctx, "order", "What?")
			return "done", err
		}), revision, everything)
		c.answer = func(_ context.Context, _, params string) (string, error) {
			want := `{"message":"What?","requestedSchema":` + orderForm + `}`
			if revision != "2025-06-18" {
				want = `{"mode":"form",` + want[1:]
			}
			if diff := cmp.Diff(canonical(t, want), canonical(t, params)); diff != "" {
				t.Errorf("%s: form (-want +got):\n%s", revision, diff)
			}
			return `{"action":"accept","content":{"name":"Alice","mail":"a@b.c","day":"2026-11-21","when":"2026-11-21T10:00:00Z","price":1.5,"gift":true,"size":"M","other":"L","more":1}}`, nil
		}
		if text, err := c.tool(); err != nil || text != "done" {
			t.Errorf("%s: %q, %v", revision, text, err)
		}
		want := server.Answer[order]{Action: "accept", Value: order{
			Name: "Alice", Mail: &mail, Day: "2026-11-21", When: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC), Count: 1, Price: 1.5, Gift: true, Size: "M", Other: &other, Speed: "slow",
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: answer (-want +got):\n%s", revision, diff)
		}
	}
}

// TestElicitFormAnswers sends content that does not match the form.
func TestElicitFormAnswers(t *testing.T) {
	base := map[string]string{"name": `"Alice"`, "when": `"2026-11-21T10:00:00Z"`, "price": `1`, "gift": `true`, "size": `"M"`}
	content := func(key, value string) string {
		var members []string
		for k, v := range base {
			if k != key {
				members = append(members, fmt.Sprintf("%q:%s", k, v))
			}
		}
		if value != "" {
			members = append(members, fmt.Sprintf("%q:%s", key, value))
		}
		return `{"action":"accept","content":{` + strings.Join(members, ",") + `}}`
	}
	for _, tt := range []struct{ answer, want string }{
		{content("mail", `"a@b.c"`), ""},
		{content("mail", `null`), ""},
		{content("day", `"2024-02-29"`), ""},
		{content("page", `"urn:isbn:1"`), ""},
		{content("count", `9.0`), ""},
		{content("when", `"2026-11-21T10:00:00.5+01:00"`), ""},
		{content("name", `"alice"`), "content.name: "},
		{content("name", `"A"`), "content.name: "},
		{content("name", ``), `content: missing required property "name"`},
		{content("mail", `"nobody"`), "content.mail: expected the format email"},
		{content("mail", `"a@b c"`), "content.mail: expected the format email"},
		{content("mail", `"@b"`), "content.mail: expected the format email"},
		{content("page", `"nowhere"`), "content.page: expected the format uri"},
		{content("day", `"2025-02-29"`), "content.day: expected the format date"},
		{content("when", `"today"`), "content.when: "},
		{content("count", `10`), "content.count: "},
		{content("count", `1.5`), "content.count: "},
		{content("price", `0`), "content.price: "},
		{content("gift", `"yes"`), "content.gift: "},
		{content("size", `"XL"`), "content.size: "},
		{`{"action":"accept"}`, "the content is missing"},
		{`{"action":"accept","content":1}`, "content"},
		{`{"action":"yes"}`, "action must be"},
		{`[]`, "expected an object"},
	} {
		for _, revision := range []string{"2025-06-18", modern} {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				_, err := server.Elicit[order](c, "order", "What?")
				if e, ok := errors.AsType[*server.InputError](err); ok != (tt.want != "" && !errors.Is(err, server.ErrInputRequired)) || ok && (e.Refused || e.Key != "order") {
					t.Errorf("%s, %s: %v", revision, tt.answer, err)
				}
				return "done", err
			}), revision, everything)
			c.answer = fixed(map[string]string{"elicitation/create": tt.answer})
			got, err := c.tool()
			switch {
			case tt.want == "":
				if err != nil || got != "done" {
					t.Errorf("%s, %s: %q, %v", revision, tt.answer, got, err)
				}
			case revision == modern:
				if code(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s, %s: %q, %v; want an error with %q", revision, tt.answer, got, err, tt.want)
				}
			case err != nil || !strings.HasPrefix(got, `error: elicitation/create "order": invalid response of the client: `) || !strings.Contains(got, tt.want):
				t.Errorf("%s, %s: %q, %v; want one with %q", revision, tt.answer, got, err, tt.want)
			}
		}
	}
}

// TestMultiSelect lets users choose several values, in revisions that allow it.
func TestMultiSelect(t *testing.T) {
	type sizes struct {
		Sizes []size `json:"sizes" schema:"minItems=1,uniqueItems"`
	}
	for _, revision := range []string{"2025-06-18", "2025-11-25", modern} {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			a, err := server.Elicit[sizes](c, "sizes", "Which?")
			return fmt.Sprint(a.Value.Sizes), err
		}), revision, everything)
		c.answer = fixed(map[string]string{"elicitation/create": `{"action":"accept","content":{"sizes":["S","L"]}}`})
		got, err := c.tool()
		want, asked := "[S L]", []string{`elicitation/create {"message":"Which?","mode":"form","requestedSchema":{"properties":{"sizes":{"items":{"enum":["S","M","L"],"type":"string"},"minItems":1,"type":"array"}},"required":["sizes"],"type":"object"}}`}
		if revision == "2025-06-18" {
			want, asked = `error: elicitation/create "sizes": property "sizes": clients of this revision cannot show a choice of several values`, nil
		}
		if diff := cmp.Diff(asked, c.takeAsked()); err != nil || got != want || diff != "" {
			t.Errorf("%s: got %q, %v; want %q; asked (-want +got):\n%s", revision, got, err, want, diff)
		}
	}
}

// pageA and pageB are pages that a user must visit first.
var (
	pageA = mcp.ElicitRequestParams{Mode: "url", ElicitationID: "a", Message: "Log in.", URL: "https://example.com/a"}
	pageB = mcp.ElicitRequestParams{Mode: "url", ElicitationID: "b", Message: "Pay.", URL: "https://example.com/b"}
)

// TestURLElicitationRequired returns the error in all revisions; one of them defines it.
//
// Spec: S194 S195 S196 S197
func TestURLElicitationRequired(t *testing.T) {
	for _, revision := range allRevisions {
		for _, caps := range []string{everything, `{"elicitation":{}}`} {
			done := false
			c := respond(t, withTool(t, nil, func(*server.Call) (string, error) {
				if !done {
					return "", fmt.Errorf("not yet: %w", mcp.URLElicitationRequired(pageA, pageB))
				}
				return "done", nil
			}), revision, caps)
			r, err := c.request(t.Context(), "tools/call", callT)
			e, _ := errors.AsType[*jsonrpc.Error](err)
			switch {
			case revision == "2025-11-25" && caps == everything:
				want := canonical(t, `{"elicitations":[{"mode":"url","elicitationId":"a","message":"Log in.","url":"https://example.com/a"},{"mode":"url","elicitationId":"b","message":"Pay.","url":"https://example.com/b"}]}`)
				if e == nil || e.Code != -32042 || canonical(t, dataOf(e)) != want {
					t.Errorf("%s: %+v, %v with %s", revision, r, err, dataOf(e))
				}
			case revision == modern && caps == everything:
				if err != nil || r.keys() != "required page 1 required page 2" || string(r.InputRequests["required page 2"].Params) != `{"mode":"url","message":"Pay.","url":"https://example.com/b"}` {
					t.Errorf("%s: %+v, %v", revision, r, err)
					continue
				}
				const yes = `{"required page 1":{"action":"accept"},"required page 2":{"action":"accept"}}`
				again, err := c.request(t.Context(), "tools/call", retry(callT, yes, r.state()))
				if err != nil || again.keys() != r.keys() {
					t.Errorf("%s, not done: %+v, %v", revision, again, err)
					continue
				}
				no, err := c.request(t.Context(), "tools/call", retry(callT, strings.Replace(yes, "accept", "decline", 1), again.state()))
				if err != nil || !strings.HasPrefix(no.text(), "error: the user did not accept: ") {
					t.Errorf("%s, declined: %+v, %v", revision, no, err)
				}
				done = true
				if r, err := c.request(t.Context(), "tools/call", retry(callT, yes, again.state())); err != nil || r.text() != "done" {
					t.Errorf("%s, done: %+v, %v", revision, r, err)
				}
			case revision == modern:
				if e == nil || e.Code != -32021 || dataOf(e) != `{"requiredCapabilities":{"elicitation":{"url":{}}}}` {
					t.Errorf("%s: %+v, %v with %s", revision, r, err, dataOf(e))
				}
			case err != nil || !strings.Contains(r.text(), "error: ") || !strings.Contains(r.text(), "Log in. https://example.com/a\nPay. https://example.com/b"):
				t.Errorf("%s: %+v, %v", revision, r, err)
			}
		}
	}
}

// TestURLElicitationRequiredOtherMethods returns the error for a resource, with wrong data, and in
// a request that allows no input requests.
func TestURLElicitationRequiredOtherMethods(t *testing.T) {
	for _, tt := range []struct {
		revision string
		err      error
		code     jsonrpc.Code
	}{
		{"2025-11-25", mcp.URLElicitationRequired(pageA), -32042},
		{"2025-06-18", mcp.URLElicitationRequired(pageA), jsonrpc.CodeInvalidRequest},
		{modern, mcp.URLElicitationRequired(pageA), 0},
		{modern, mcp.URLElicitationRequired(mcp.ElicitRequestParams{Mode: "url", ElicitationID: "a", Message: "m", URL: "http://127.0.0.1:8080/a"}), 0},
		{"2025-11-25", &jsonrpc.Error{Code: -32042}, jsonrpc.CodeInternalError},
		{modern, &jsonrpc.Error{Code: -32042, Data: []byte(`{"elicitations":[]}`)}, jsonrpc.CodeInternalError},
		{modern, mcp.URLElicitationRequired(mcp.ElicitRequestParams{Mode: "url", ElicitationID: "a", Message: "m", URL: "javascript:x"}), jsonrpc.CodeInternalError},
		{"2025-11-25", mcp.URLElicitationRequired(mcp.ElicitRequestParams{Mode: "url", Message: "m", URL: "https://example.com"}), jsonrpc.CodeInternalError},
	} {
		srv := server.MustNew("test", "1", nil)
		if err := server.AddResource(srv, mcp.Resource{URI: "test:r", Name: "r"}, func(context.Context) (string, error) { return "", tt.err }); err != nil {
			t.Fatal(err)
		}
		c := respond(t, srv, tt.revision, everything)
		r, err := c.request(t.Context(), "resources/read", `{"uri":"test:r"}`)
		if code(err) != tt.code || tt.code == 0 && r.keys() != "required page 1" {
			t.Errorf("%s, %v: %+v, %v", tt.revision, tt.err, r, err)
		}
	}
}

// TestRequiredPageWithFreshID makes a new elicitation id and URL in each run, as handlers of
// 2025-11-25 do: the user's rejection of an earlier one applies to it.
func TestRequiredPageWithFreshID(t *testing.T) {
	for action, want := range map[string]struct {
		rounds int
		text   string
	}{"decline": {1, "error: the user did not accept: the user must open a URL first\nLog in. https://example.com/2"}, "accept": {3, "done"}} {
		runs := 0
		c := respond(t, withTool(t, nil, func(*server.Call) (string, error) {
			if runs++; runs > 3 {
				return "done", nil
			}
			id := fmt.Sprint(runs)
			return "", mcp.URLElicitationRequired(mcp.ElicitRequestParams{ElicitationID: id, Message: "Log in.", URL: "https://example.com/" + id})
		}), modern, everything)
		c.answer = fixed(map[string]string{"elicitation/create": `{"action":"` + action + `"}`})
		if got, err := c.tool(); err != nil || got != want.text || c.rounds != want.rounds {
			t.Errorf("%s: got %q, %v after %d rounds; want %q after %d", action, got, err, c.rounds, want.text, want.rounds)
		}
	}
}

// TestElicitationComplete checks that only the client of an elicitation is notified of its
// completion.
//
// Spec: S198 S199
func TestElicitationComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := withTool(t, nil, func(c *server.Call) (string, error) {
			p := pageA
			p.ElicitationID = c.ClientInfo().Name + c.Revision().String()[3:4]
			_, err := c.Elicit(c, "page", &p)
			return "done", err
		})
		addTool(t, srv, "required", func(*server.Call) (string, error) { return "", mcp.URLElicitationRequired(pageB) })
		asked, other, old := respond(t, srv, "2025-11-25", everything), respond(t, srv, "2025-11-25", everything), respond(t, srv, modern, everything)
		for _, c := range []*inputClient{asked, old} {
			c.answer = fixed(map[string]string{"elicitation/create": `{"action":"accept"}`})
			if got, err := c.tool(); err != nil || got != "done" {
				t.Fatalf("%q, %v", got, err)
			}
		}
		if _, err := other.call("tools/call", `{"name":"required"}`); code(err) != -32042 {
			t.Fatal(err)
		}
		for _, id := range []string{"test5", "b", "test5", "b", "6", "", "nobody's"} {
			srv.ElicitationComplete(id)
		}
		synctest.Wait()
		for name, tt := range map[string]struct {
			c    *inputClient
			want []string
		}{
			"asked": {asked, []string{`notifications/elicitation/complete {"elicitationId":"test5"}`}},
			"other": {other, []string{`notifications/elicitation/complete {"elicitationId":"b"}`}},
			"old":   {old, nil},
		} {
			tt.c.mu.Lock()
			if diff := cmp.Diff(tt.want, tt.c.notes); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			tt.c.mu.Unlock()
		}
	})
}

// TestElicitationIDs shows that ids are generated, unique, and evicted when there are too many.
func TestElicitationIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := withTool(t, nil, func(c *server.Call) (string, error) {
			res, err := c.ElicitURL(c, "page", "m", "https://example.com")
			if err != nil {
				return "", err
			}
			return string(res.Action), nil
		})
		c := respond(t, srv, "2025-11-25", everything)
		c.answer = fixed(map[string]string{"elicitation/create": `{"action":"accept"}`})
		seen := make(map[string]bool)
		var first string
		for range 257 {
			if got, err := c.tool(); err != nil || got != "accept" {
				t.Fatalf("%q, %v", got, err)
			}
			_, rest, _ := strings.Cut(c.takeAsked()[0], `"elicitationId":"`)
			id, _, _ := strings.Cut(rest, `"`)
			if len(id) < 20 || seen[id] {
				t.Fatalf("id %q", id)
			}
			seen[id] = true
			if first == "" {
				first = id
			}
		}
		for id := range seen {
			srv.ElicitationComplete(id)
		}
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.notes) != 256 || strings.Contains(strings.Join(c.notes, ""), first) {
			t.Errorf("%d notifications", len(c.notes))
		}
	})
}
