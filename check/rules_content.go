package check

import (
	"mime"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// rulesContent returns the rules about resources, prompts, completion and their content blocks.
func rulesContent() []rule {
	return []rule{{
		ID: "content/mime-type", Severity: Error,
		Title: "Image or audio content has the wrong MIME type",
		Why:   "Hosts cannot show or play it.",
		Fix:   "Send a matching type, such as image/png or audio/wav.",
		URL:   "server/prompts",
		Good:  Example{rev20251125, exToolCall(exTool, `{"n":1}`, `"result":{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`)},
		Bad:   Example{rev20251125, exToolCall(exTool, `{"n":1}`, `"result":{"content":[{"type":"image","data":"AAAA","mimeType":"png"}]}`)},
		kinds: kindResult, methods: []string{mcp.MethodToolsCall, mcp.MethodPromptsGet}, dir: capture.ToClient,
		check: func(v *view) {
			for place, block := range blocks(v) {
				kind, mt := jsonwire.Text(jsonwire.Lookup(block, "type")), jsonwire.Lookup(block, "mimeType")
				if kind != "image" && kind != "audio" || !isString(mt) {
					continue
				}
				if t, _, err := mime.ParseMediaType(jsonwire.Text(mt)); err != nil || !strings.HasPrefix(t, kind+"/") {
					v.report(place+"/mimeType", "mimeType is %s; it must be a type of %s", showJSON(mt), kind)
				}
			}
		},
	}, {
		ID: "content/text-and-blob", Severity: Warning,
		Title: "Resource contents have both text and blob",
		Why:   "Contents have one or the other: some clients use the text, others the bytes.",
		Fix:   "Send text for text, and blob for binary data.",
		URL:   "server/resources",
		Good:  Example{rev20251125, resourceRead(`{"uri":"file:///a.png","text":"x"}`)},
		Bad:   Example{rev20251125, resourceRead(`{"uri":"file:///a.png","text":"x","blob":"eA=="}`)},
		kinds: kindResult, methods: []string{mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead}, dir: capture.ToClient,
		check: func(v *view) {
			both := func(place string, r []byte) {
				if jsonwire.Lookup(r, "text") != nil && jsonwire.Lookup(r, "blob") != nil {
					v.report(place, "these contents of %s have both text and blob", show(jsonwire.Text(jsonwire.Lookup(r, "uri"))))
				}
			}
			for i, r := range elements(v.result("contents")) {
				both("/result/contents"+pointer(i), r)
			}
			for place, block := range blocks(v) {
				both(place+"/resource", jsonwire.Lookup(block, "resource"))
			}
		},
	}, {
		ID: "resources/empty", Severity: Warning, Revisions: modernRevisions,
		Title: "A resource has no contents",
		Why:   "Reading a resource that does not exist is error -32602; empty contents must not mean that.",
		Fix:   "Respond with -32602 if the resource does not exist; otherwise send its contents, even if the text is empty.",
		URL:   "server/resources#reading-resources",
		Good:  Example{rev20260728, discovered + exModernRead(`{"uri":"file:///a","text":""}`)},
		Bad:   Example{rev20260728, discovered + exModernRead("")},
		kinds: kindResult, methods: []string{mcp.MethodResourcesRead}, dir: capture.ToClient,
		check: func(v *view) {
			if v.complete() && isArray(v.result("contents")) && count(v.result("contents")) == 0 {
				v.report("/result/contents", "the contents of %s are empty", show(jsonwire.Text(v.call.param("uri")))).with(v.call.n)
			}
		},
	}, {
		ID: "resources/not-subscribed", Severity: Warning, Revisions: legacyRevisions,
		Title: "An update notification for a resource without a subscription",
		Why:   "Clients ignore it, or assume that everything has changed.",
		Fix:   "Send notifications/resources/updated only between resources/subscribe and resources/unsubscribe.",
		URL:   "server/resources#subscriptions",
		Good: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///a"}}
< {"jsonrpc":"2.0","id":1,"result":{}}
< {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a/b"}}`},
		Bad: Example{rev20251125, `init
< {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`},
		kinds: kindNotification, methods: []string{mcp.NotificationResourceUpdated}, dir: capture.ToClient,
		check: func(v *view) {
			if s := v.session; s.complete() && !s.restarted && s.initializeResult != 0 && !stateOf[subscribed](&s.state).ever {
				v.report("/params/uri", "the client has not subscribed to this resource")
			}
		},
	}, {
		ID: "prompts/argument-missing", Severity: Warning,
		Title: "A prompt was requested without a required argument",
		Why:   "The server cannot fill in the prompt: it responds with an error, or leaves a gap.",
		Fix:   "Ask the user for the arguments that prompts/list marks as required.",
		URL:   "server/prompts#getting-a-prompt",
		Good:  Example{rev20251125, exPrompt(`{"file":"a.go"}`)},
		Bad:   Example{rev20251125, exPrompt(`{}`)},
		kinds: kindRequest, methods: []string{mcp.MethodPromptsGet}, dir: capture.ToServer,
		check: func(v *view) {
			p := stateOf[prompts](&v.session.state).byName[jsonwire.Text(v.param("name"))]
			for _, name := range p.required {
				if v.param("arguments", name) == nil {
					v.report("/params", "the prompt %s requires the argument %s", showJSON(v.param("name")), show(name)).with(p.n)
				}
			}
		},
	}, {
		ID: "completion/total", Severity: Warning,
		Title: "The counts of a completion result are wrong",
		Why:   "Clients show how many more values exist, or request them.",
		Fix:   "Count all matches in total, which is at least the number of values sent; set hasMore only if there are more than these.",
		URL:   "server/utilities/completion#completion-results",
		Good:  Example{rev20251125, exCompletion(`{"values":["a","b"],"total":5,"hasMore":true}`)},
		Bad:   Example{rev20251125, exCompletion(`{"values":["a","b"],"total":1}`)},
		kinds: kindResult, methods: []string{mcp.MethodComplete}, dir: capture.ToClient,
		check: func(v *view) {
			n := int64(count(v.result("completion", "values")))
			total, ok := jsonwire.ParseInt(v.result("completion", "total"))
			switch {
			case !ok:
			case total < n:
				v.report("/result/completion/total", "total is %d, but there are %d values", total, n)
			case total == n && isTrue(v.result("completion", "hasMore")):
				v.report("/result/completion/hasMore", "hasMore is true, but all %d values are included", total)
			}
		},
	}, {
		ID: "completion/too-many", Severity: Error,
		Title: "A completion result has more than 100 values",
		Why:   "A result may have at most 100; strict clients reject more.",
		Fix:   "Send the best 100, and set hasMore and total.",
		URL:   "server/utilities/completion#completion-results",
		Good:  Example{rev20251125, exCompletion(`{"values":["a"]}`)},
		Bad:   Example{rev20251125, exCompletion(`{"values":["a"` + strings.Repeat(`,"a"`, 100) + `]}`)},
		kinds: kindResult, methods: []string{mcp.MethodComplete}, dir: capture.ToClient,
		check: func(v *view) {
			if n := count(v.result("completion", "values")); n > 100 {
				v.report("/result/completion/values", "there are %d values; the limit is 100", n)
			}
		},
	}}
}

func exModernRead(contents string) string {
	return `> {"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"file:///a","_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","contents":[` + contents + `],"ttlMs":0,"cacheScope":"private"}}`
}

func exPrompt(arguments string) string {
	return exList("prompts", `{"name":"review","arguments":[{"name":"file","required":true},{"name":"style"}]}`) + `
> {"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"review","arguments":` + arguments + `}}
< {"jsonrpc":"2.0","id":2,"result":{"messages":[{"role":"user","content":{"type":"text","text":"Review."}}]}}`
}

func exCompletion(completion string) string {
	return `init
> {"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"review"},"argument":{"name":"file","value":"a"}}}
< {"jsonrpc":"2.0","id":1,"result":{"completion":` + completion + `}}`
}

// blocks yields the content blocks of a result, with their places.
func blocks(v *view) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		for i, b := range elements(v.result("content")) {
			if !yield("/result/content"+pointer(i), b) {
				return
			}
		}
		for i, m := range elements(v.result("messages")) {
			if b := jsonwire.Lookup(m, "content"); isObject(b) && !yield("/result/messages"+pointer(i)+"/content", b) {
				return
			}
		}
	}
}

// subscribed records whether a legacy client has ever subscribed to a resource.
type subscribed struct{ ever bool }

// prompts holds the prompts that a server has listed.
type prompts struct{ byName map[string]promptFacts }

type promptFacts struct {
	n        uint64
	required []string
}

const maxPrompts = 4096

var observeContent = []observer{{
	kinds: kindRequest, methods: []string{mcp.MethodResourcesSubscribe}, dir: capture.ToServer,
	observe: func(v *view) { stateOf[subscribed](&v.session.state).ever = true },
}, {
	kinds: kindNotification, methods: []string{mcp.NotificationPromptsChanged}, dir: capture.ToClient,
	observe: func(v *view) { clear(stateOf[prompts](&v.session.state).byName) },
}, {
	kinds: kindResult, methods: []string{mcp.MethodPromptsList}, dir: capture.ToClient,
	observe: observePrompts,
}}

func observePrompts(v *view) {
	p := stateOf[prompts](&v.session.state)
	if p.byName == nil {
		p.byName = map[string]promptFacts{}
	}
	for n, item := range elements(v.result("prompts")) {
		name := jsonwire.Text(jsonwire.Lookup(item, "name"))
		if len(name) > maxPairedID || len(p.byName) >= maxPrompts {
			continue
		}
		facts := promptFacts{n: v.e.N}
		for i, a := range elements(jsonwire.Lookup(item, "arguments")) {
			if arg := jsonwire.Text(jsonwire.Lookup(a, "name")); isTrue(jsonwire.Lookup(a, "required")) && i < 64 && len(arg) <= maxShown && !v.redacted("/result/prompts"+pointer(n, "arguments", i, "name")) {
				facts.required = append(facts.required, arg)
			}
		}
		p.byName[name] = facts
	}
}
