package main

// A form is a Go representation of a property, with the way to write it.
type form int

const (
	formConst    form = iota + 1 // no field: has one value
	formString                   // string, or the named type elem
	formBool                     // bool
	formInt                      // int64
	formIntNull                  // *int64; nil is null
	formFloat                    // float64
	formID                       // jsonrpc.ID
	formLevel                    // LoggingLevel
	formObject                   // json.RawMessage, an object
	formRaw                      // json.RawMessage, any value
	formBytes                    // []byte, in base64
	formStrings                  // []string, or of the named type elem
	formStruct                   // elem
	formList                     // []elem
	formBlock                    // ContentBlock
	formBlocks                   // []ContentBlock
	formSampling                 // SamplingContent
	formMessages                 // []SamplingMessage, with more in older revisions
	formRef                      // Reference
	formTexts                    // map[string]string
	formRawMap                   // map[string]json.RawMessage
	formMap                      // map[string]elem
	formError                    // *jsonrpc.Error
)

// A kind is the Go type of a property.
type kind struct {
	form form
	// elem is the name of a type of package mcp.
	elem string
	// pointer reports an optional property for which empty differs from absent.
	pointer bool
	// text is the value of formConst. For formObject it is written in place of nil.
	text string
	// revisionTest names a function that reports whether the value is allowed in revisions that
	// allow only an object.
	revisionTest string
}

// goType returns the type of the field.
func (k kind) goType(optional bool) string {
	named := func(basic string) string {
		if k.elem != "" {
			return k.elem
		}
		return basic
	}
	pointer := ""
	if optional {
		pointer = "*"
	}
	switch k.form {
	case formString:
		if k.pointer {
			return "*" + named("string")
		}
		return named("string")
	case formBool:
		if k.pointer {
			return "*bool"
		}
		return "bool"
	case formInt:
		return pointer + "int64"
	case formIntNull:
		return "*int64"
	case formFloat:
		return pointer + "float64"
	case formStrings:
		return "[]" + named("string")
	case formStruct:
		return pointer + k.elem
	case formList:
		return "[]" + k.elem
	case formMap:
		return "map[string]" + k.elem
	}
	return map[form]string{
		formID: "jsonrpc.ID", formLevel: "LoggingLevel", formObject: "json.RawMessage", formRaw: "json.RawMessage", formBytes: "[]byte",
		formBlock: "ContentBlock", formBlocks: "[]ContentBlock", formSampling: "SamplingContent", formMessages: "[]SamplingMessage",
		formRef: "Reference", formTexts: "map[string]string", formRawMap: "map[string]json.RawMessage", formError: "*jsonrpc.Error",
	}[k.form]
}

// kindOf returns the kind of a property of a type. It returns the zero kind if s is an object that
// is defined inline.
func (m *model) kindOf(typ, name string, s *schema) kind {
	where := typ + "." + name
	if k, ok := kinds[where]; ok {
		m.use("kinds", where)
		return k
	}
	if ref := s.def(); ref != "" {
		if k, ok := refKinds[ref]; ok {
			m.use("refKinds", ref)
			return k
		}
		return kind{form: formStruct, elem: m.typeName(ref)}
	}
	switch {
	case name == "_meta":
		return kind{form: formObject}
	case s.AnyOf != nil:
		return m.unionKind(where, s.AnyOf)
	case s.Const != nil:
		return kind{form: formConst, text: string(s.Const)}
	case s.Format == "byte":
		return kind{form: formBytes}
	case len(s.Type) == 2 && s.Type[1] == "null":
		return kind{form: formIntNull}
	case len(s.Type) == 2:
		return kind{form: formID}
	case s.Type.is("array"):
		return m.listKind(typ, name, s)
	case s.Type.is("object"):
		return objectKind(s)
	case s.free():
		return kind{form: formRaw}
	}
	k := kind{form: map[string]form{"string": formString, "boolean": formBool, "integer": formInt, "number": formFloat}[append(s.Type, "")[0]]}
	k.pointer = k.form == formString && pointerFields[name]
	if k.pointer {
		m.use("pointers", name)
	}
	if elem := stringTypes[name]; elem != "" && k.form == formString {
		m.use("stringTypes", name)
		k.elem = elem
	}
	return k
}

func objectKind(s *schema) kind {
	switch {
	case len(s.Properties) > 0:
		return kind{}
	case s.Additional == nil, s.Additional.free():
		return kind{form: formObject}
	case s.Additional.Type.is("string"):
		return kind{form: formTexts}
	case s.Additional.Type.is("object"), s.Additional.def() == "JSONObject":
		return kind{form: formRawMap}
	}
	return kind{form: formObject}
}

// unionKind recognizes unions by one of their members.
func (m *model) unionKind(where string, members []*schema) kind {
	for _, s := range members {
		switch s.def() {
		case "TextContent":
			return kind{form: formBlock}
		case "TextResourceContents":
			return kind{form: formStruct, elem: "ResourceContents"}
		case "PromptReference":
			return kind{form: formRef}
		}
	}
	m.fail("%s: unknown union", where)
	return kind{}
}

func (m *model) listKind(typ, name string, s *schema) kind {
	k := m.kindOf(typ, name, s.Items)
	switch k.form {
	case 0:
		return kind{form: formList} // of an inline type
	case formStruct:
		k.form = formList
	case formString:
		k.form = formStrings
	case formBlock:
		k.form = formBlocks
	default:
		m.fail("%s.%s: array of an unknown type", typ, name)
	}
	return k
}
