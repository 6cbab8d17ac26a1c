package interop

import (
	"encoding/base64"
	"slices"
)

// The surface is what the everything server of this package and the servers
// written with other SDKs offer alike, so that one tour fits them all. Each
// server says it in its own terms; these are the words they have in common.

// crashStatus is the exit status that the tool crash ends its process with.
const crashStatus = 3

const instructions = "A server to be tested with."

// surfaceTools are the tools of every server.
//
//	echo {text}             the text
//	sum {a, b}              structured {"sum": a+b}
//	fail {message}          a tool error with the message
//	slow {steps, delay_ms}  progress after each step
//	cancelled {}            waits until a call of slow was cancelled
//	log {}                  log messages of three levels
//	media {}                content of all kinds
//	ask {}                  elicitation of a name and an age by a form
//	visit {}                elicitation by URL
//	sample {}               sampling
//	roots {}                roots
//	extend {}               registers one more tool, extra
//	touch {uri}             announces that a resource was updated
//	crash {}                ends the process
//
// Servers that have tasks also have
//
//	work {text, for_ms}     takes its time
//	interview {}            asks what ask asks
var surfaceTools = []string{"ask", "cancelled", "crash", "echo", "extend", "fail", "log", "media", "roots", "sample", "slow", "sum", "touch", "visit"}

// The resources; surfaceContents has their contents. The template matches items with a number;
// others do not exist.
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

// logo is binary data with every byte.
var logo = func() (all []byte) {
	for b := range 256 {
		all = append(all, byte(b))
	}
	return all
}()

// logoText is the logo in its wire encoding.
var logoText = base64.StdEncoding.EncodeToString(logo)

// pixel is the data of all images and sounds.
var pixel = base64.StdEncoding.EncodeToString([]byte("pixel"))

// The prompts: greet has the arguments name, which is required, and style; review embeds the
// greeting. The prompt asked and the resource askedURI send the input request of the tool ask,
// where the server supports that.
var surfacePrompts = []string{"greet", "review"}

// What completion suggests: styles by prefix, names that depend on the style that was chosen, and
// item numbers.
var (
	styles = []string{"formal", "friendly", "brief"}
	items  = []string{"1", "10", "11", "2"}
)

// names are the suggestions for greet's argument name.
func names(style string) []string {
	if style == "formal" {
		return []string{"Dr. Ada"}
	}
	return []string{"Ada", "Alan"}
}

// The questions and their answers.
const (
	askMessage   = "Who are you?"
	askSchema    = `{"type":"object","properties":{"name":{"type":"string","title":"Your name"},"age":{"type":"integer","minimum":0}},"required":["name"]}`
	visitMessage = "Please sign in."
	visitURL     = "https://example.com/sign-in"
	sampleText   = "Say hello."
)

// logged are the messages of the tool log by level; the logger is surface.
var logged = []struct{ level, text string }{{"debug", "details"}, {"info", "notice"}, {"error", "trouble"}}

// sorted returns a sorted copy.
func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }
