package specref

import "encoding/json"

// An Entry is one meaning of a word. What does not apply is left out.
type Entry struct {
	Kind    string `json:"kind"` // "method", "code", "header", "field" or "type"
	Name    string `json:"name"`
	Alias   string `json:"alias,omitempty"` // of a code: its name
	Summary string `json:"summary,omitempty"`
	// Revisions are those that have it, of those that were asked for.
	Revisions []string `json:"revisions"`
	// All are those that have it.
	All []string `json:"allRevisions"`
	// Message is "request" or "notification", of a method.
	Message    string         `json:"message,omitempty"`
	Directions []RevisionText `json:"directions,omitempty"`
	From       string         `json:"from,omitempty"` // of a header: "client", "server" or "both"
	When       []RevisionText `json:"when,omitempty"`
	Needs      []RevisionText `json:"needs,omitempty"`
	HTTP       string         `json:"httpStatus,omitempty"`
	Page       string         `json:"page,omitempty"`
	Params     *Shape         `json:"params,omitempty"`
	Results    []*Shape       `json:"results,omitempty"`
	Data       *Shape         `json:"data,omitempty"`
	DataNote   string         `json:"dataNote,omitempty"`
	Shape      *Shape         `json:"shape,omitempty"` // of a type
	Places     []Place        `json:"places,omitempty"`
	Answers    string         `json:"answers,omitempty"` // of a code: the requests
	UsedIn     []string       `json:"usedIn,omitempty"`  // of a type: the types and methods that have it
	Changes    []Change       `json:"changes,omitempty"`
	Do         string         `json:"whatToDo,omitempty"`
	Notes      []RevisionText `json:"notes,omitempty"`
	Errors     []ErrorCase    `json:"errors,omitempty"`
	Rules      []*Rule        `json:"rules,omitempty"`
	Examples   []Example      `json:"examples,omitempty"`
}

// A RevisionText is a text with the revisions that it holds for.
type RevisionText struct {
	Revisions []string `json:"revisions"`
	Text      string   `json:"text"`
}

// A Shape is what something looks like in one revision.
type Shape struct {
	Revision string `json:"revision"`
	Type     string `json:"type"`
	// Optional is set if params may be left out.
	Optional bool     `json:"optional,omitempty"`
	Members  []Member `json:"members,omitempty"`
	// OneOf are the alternatives of a union, or the values of an enumeration.
	OneOf []string `json:"oneOf,omitempty"`
	// Alternatives are the objects among OneOf, where they are shown.
	Alternatives []*Shape `json:"alternatives,omitempty"`
}

// A Member is a member of an object, with its own members if they are shown.
type Member struct {
	Name     string   `json:"name"`
	Required bool     `json:"required"`
	Type     string   `json:"type"`
	Limits   string   `json:"limits,omitempty"`
	Members  []Member `json:"members,omitempty"`
}

// A Place is where a member of a name occurs.
type Place struct {
	In        string   `json:"in"` // the type that has it
	Type      string   `json:"type"`
	Required  []string `json:"required,omitempty"` // in these revisions
	Revisions []string `json:"revisions"`
}

// A Change is what a revision changed.
type Change struct {
	Revision string   `json:"revision"`
	What     []string `json:"what"`
}

// An ErrorCase is an error that may answer a request.
type ErrorCase struct {
	Code      int      `json:"code"`
	Revisions []string `json:"revisions"`
	When      string   `json:"when"`
}

// An Example is a message that is right in its revision.
type Example struct {
	Title    string          `json:"title"`
	Revision string          `json:"revision,omitempty"`
	Message  json.RawMessage `json:"message,omitempty"`
	Header   string          `json:"header,omitempty"`
}
