package interop

import (
	"encoding/base64"
	"slices"
)

// The surface is the set of tools, resources and prompts that the everything server and the servers
// on other SDKs have in common, so that all can be tested with the same tour. This file has its
// names and texts.

// crashStatus is the exit status of a process that the tool crash ends.
const crashStatus = 3

const instructions = "A server to be tested with."

// surfaceTools are the tools of every server.
//
//	echo {text}             the text
//	sum {a, b}              structured {"sum": a+b}
//	fail {message}          a tool error with the message
//	slow {steps, delay_ms}  takes steps with a delay, and sends progress after each
//	cancelled {}            waits until a call of slow is canceled
//	log {}                  log messages with three levels
//	media {}                content of all kinds
//	ask {}                  elicitation of a name and an age with a form
//	visit {}                elicitation with a URL
//	sample {}               sampling
//	roots {}                roots
//	extend {}               registers one more tool, extra
//	touch {uri}             announces that a resource was updated
//	crash {}                ends the process
//
// Servers that have tasks also have
//
//	work {text, for_ms}     takes for_ms milliseconds
//	interview {}            sends the input request of ask
var surfaceTools = []string{"ask", "cancelled", "crash", "echo", "extend", "fail", "log", "media", "roots", "sample", "slow", "sum", "touch", "visit"}

// surfaceResources are the resources of every server. The template matches items by id; the item
// none does not exist.
var surfaceResources = []string{"test://a", "test://b", "test://c", "test://greeting", "test://logo"}

const (
	itemTemplate = "test://items/{id}"
	itemURI      = "test://items/7"
	itemText     = "item 7"
	missingItem  = "test://items/none"
	greetingURI  = "test://greeting"
	logoURI      = "test://logo"
	askedURI     = "test://asked"
	greetingText = "hello \u2028 w\u00f6rld"
)

// logo is binary data with every byte value.
var logo = func() (all []byte) {
	for b := range 256 {
		all = append(all, byte(b))
	}
	return all
}()

// logoText is the logo in its wire encoding.
var logoText = base64.StdEncoding.EncodeToString(logo)

// pixel is the base64 data of all images and sounds.
var pixel = base64.StdEncoding.EncodeToString([]byte("pixel"))

// surfacePrompts are the prompts of every server. The prompt greet has the arguments name, which is
// required, and style; review embeds the greeting. If the server supports it, the prompt asked and
// the resource askedURI send the input request of the tool ask.
var surfacePrompts = []string{"greet", "review"}

// The values of completion for the argument style, and for the ids of items. Those for the argument
// name depend on the style; see names.
var (
	styles = []string{"formal", "friendly", "brief"}
	items  = []string{"1", "10", "11", "2"}
)

// names returns the values of completion for greet's argument name.
func names(style string) []string {
	if style == "formal" {
		return []string{"Dr. Ada"}
	}
	return []string{"Ada", "Alan"}
}

// The texts of input requests.
const (
	askMessage   = "Who are you?"
	askSchema    = `{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"age":{"type":"integer","minimum":0}},"required":["name"]}`
	visitMessage = "Please sign in."
	visitURL     = "https://example.com/sign-in"
	sampleText   = "Say hello."
)

// logged are the messages of the tool log with their levels. The logger is surface.
var logged = []struct{ level, text string }{{"debug", "details"}, {"info", "notice"}, {"error", "trouble"}}

// sorted returns a sorted copy.
func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }
