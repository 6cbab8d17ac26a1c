package main

import (
	"fmt"
	"strings"
)

// A slot is a field as the methods reach it.
type fieldRef struct {
	*field
	owner *goType
	expr  string // v.Name, or v.Task.Name
}

func (f fieldRef) required() bool { return f.owner.required(f.field) }

// fieldRefs returns the fields of a type, those that are embedded first.
func (m *model) fieldRefs(t *goType) []fieldRef {
	var all []fieldRef
	if t.embed != "" {
		for _, f := range m.types[t.embed].sorted() {
			all = append(all, fieldRef{f, m.types[t.embed], "v." + t.embed + "." + goName(f.name)})
		}
	}
	for _, f := range t.sorted() {
		all = append(all, fieldRef{f, t, "v." + goName(f.name)})
	}
	return all
}

func (p *printer) methods(t *goType) {
	receiver := "*" + t.name
	block, value := valueTypes[t.name]
	if value {
		receiver = t.name
	}
	implements := "appends the JSON text of all that is set."
	if value {
		implements = "implements [" + map[bool]string{true: "ContentBlock", false: "Reference"}[block] + "]."
	}
	p.printf("// AppendJSON %s", implements)
	p.printf("func (v %s) AppendJSON(dst []byte) []byte { return v.AppendRevision(dst, RevisionNone) }\n", receiver)
	if !value {
		implements = "appends the JSON text without what the revision does not have."
	}
	p.printf("// AppendRevision %s", implements)
	p.printf("func (v %s) AppendRevision(dst []byte, r Revision) []byte {", receiver)
	p.appendBody(t, block)
	p.printf("}\n")
	p.printf("// MarshalJSON implements [json.Marshaler].")
	p.printf("func (v %s) MarshalJSON() ([]byte, error) { return v.AppendRevision(nil, RevisionNone), nil }\n", t.name)
	p.printf("// UnmarshalJSON implements [json.Unmarshaler]. The error is a [*DecodeError].")
	p.printf("func (v *%s) UnmarshalJSON(data []byte) error {", t.name)
	p.printf("*v = %s{}", t.name)
	p.printf("return v.read(data).orNil()")
	p.printf("}\n")
	p.printf("func (v *%s) read(text []byte) *DecodeError {", t.name)
	p.readBody(t)
	p.printf("}\n")
}

// appendBody writes what AppendRevision does.
func (p *printer) appendBody(t *goType, block bool) {
	if first := t.revs.first(); block && first > 0 {
		p.printf("if !r.since(%s) {", first.ident())
		p.printf("return appendNote(dst, v.note(r))")
		p.printf("}")
	}
	p.printf("start := len(dst)")
	slots := p.m.fieldRefs(t)
	begin := "'{'"
	if len(slots) > 0 && slots[0].kind.form == formConst {
		begin = "`{" + constant(slots[0].field) + "`..."
		slots = slots[1:]
	}
	p.printf("dst = append(dst, %s)", begin)
	for len(slots) > 0 {
		cond := p.m.condition(slots[0].owner, slots[0].field)
		n := 1
		for n < len(slots) && p.m.condition(slots[n].owner, slots[n].field) == cond {
			n++
		}
		p.putAll(slots[:n], cond)
		slots = slots[n:]
	}
	if t.embed != "" {
		p.printf("dst = putExtra(dst, start, v.%s.Extra)", t.embed)
	}
	p.printf("return putEnd(dst, start, v.Extra)")
}

func constant(f *field) string { return fmt.Sprintf("%q:%q", f.name, f.kind.text) }

// putAll writes the statements that append fields that are there under one condition, which may be empty.
func (p *printer) putAll(slots []fieldRef, cond string) {
	if guard, call := p.put(slots[0]); len(slots) == 1 && cond != "" && guard != "" {
		if strings.Contains(guard, "||") {
			guard = "(" + guard + ")"
		}
		p.printf("if %s && %s {\ndst = %s\n}", cond, guard, call)
		return
	}
	if cond != "" {
		p.printf("if %s {", cond)
	}
	for _, s := range slots {
		if guard, call := p.put(s); guard != "" {
			p.printf("if %s {\ndst = %s\n}", guard, call)
		} else {
			p.printf("dst = %s", call)
		}
	}
	if cond != "" {
		p.printf("}")
	}
}

// put returns what appends a field, and when it is to be called; guard is empty if that is always.
func (p *printer) put(s fieldRef) (guard, call string) {
	key := "`\"" + s.name + "\":`"
	simple := func(function string) { call = fmt.Sprintf("%s(dst, %s, %s)", function, key, s.expr) }
	pick := func(required, optional string) {
		if s.required() {
			simple(required)
		} else {
			simple(optional)
		}
	}
	optional := !s.required()
	switch k := s.kind; k.form {
	case formConst:
		call = "append(putKey(dst, " + key + "), `\"" + k.text + "\"`...)"
	case formString:
		call = p.putString(s, key)
	case formBool:
		simple(map[bool]string{true: "putBoolPtr", false: "putTrue"}[k.pointer])
	case formInt:
		pick("putInt", "putIntPtr")
	case formIntNull:
		simple("putIntOrNull")
	case formFloat:
		pick("putFloat", "putFloatPtr")
	case formID:
		simple("putRaw")
	case formLevel:
		simple("putLevel")
	case formObject, formRaw:
		guard, call = p.putRaw(s, key)
	case formBytes:
		simple("putBytes")
	case formError:
		simple("putError")
	case formStrings, formTexts, formRawMap:
		simple(map[form]string{formStrings: "putStrings", formTexts: "putTexts", formRawMap: "putRaws"}[k.form])
		guard = nilGuard(s, optional)
	case formStruct:
		call = fmt.Sprintf("%s.AppendRevision(putKey(dst, %s), r)", s.expr, key)
		guard = nilGuard(s, optional)
	case formBlock, formRef:
		call = fmt.Sprintf("%s.AppendRevision(putKey(dst, %s), r)", s.expr, key)
		guard = s.expr + " != nil"
	case formList, formMap:
		call = fmt.Sprintf("%s(dst, %s, %s, r, (*%s).AppendRevision)", map[form]string{formList: "putList", formMap: "putMap"}[k.form], key, s.expr, k.elem)
		guard = nilGuard(s, optional)
	case formBlocks, formMessages:
		call = fmt.Sprintf("%s(dst, %s, %s, r)", map[form]string{formBlocks: "putBlocks", formMessages: "putMessages"}[k.form], key, s.expr)
	case formSampling:
		call = fmt.Sprintf("putSampling(dst, %s, %s, v.Extra, r)", key, s.expr)
	}
	return guard, call
}

func nilGuard(s fieldRef, optional bool) string {
	if optional {
		return s.expr + " != nil"
	}
	return ""
}

func (p *printer) putString(s fieldRef, key string) string {
	function, value := "putText", s.expr
	switch {
	case s.kind.pointer:
		function = "putStringPtr"
	case s.required():
		function = "putString"
	}
	if s.kind.elem != "" {
		value = "string(" + value + ")"
	}
	return fmt.Sprintf("%s(dst, %s, %s)", function, key, value)
}

// putRaw writes the statement for JSON text. Where only objects may stand in some revisions, it asks whether the text is one.
func (p *printer) putRaw(s fieldRef, key string) (guard, call string) {
	switch {
	case !s.required():
		call = fmt.Sprintf("putRaw(dst, %s, %s)", key, s.expr)
	case s.kind.text != "":
		call = fmt.Sprintf("putRawOr(dst, %s, %s, `%s`)", key, s.expr, s.kind.text)
	case s.kind.form == formRaw:
		call = fmt.Sprintf("putRawOr(dst, %s, %s, `null`)", key, s.expr)
	default:
		call = fmt.Sprintf("putRawOr(dst, %s, %s, `{}`)", key, s.expr)
	}
	if s.kind.revisionTest != "" {
		free := s.revs &^ s.closed
		guard = fmt.Sprintf("r.since(%s) || %s(%s)", free.first().ident(), s.kind.revisionTest, s.expr)
	}
	return guard, call
}

// readBody writes what read does. The members that must be there have the lowest numbers.
func (p *printer) readBody(t *goType) {
	var needed, others []fieldRef
	for _, s := range p.m.fieldRefs(t) {
		if s.needed() {
			needed = append(needed, s)
		} else {
			others = append(others, s)
		}
	}
	p.printf("d := readObject(text)")
	if len(needed)+len(others) == 0 {
		p.printf("for d.next() {\nd.keep()\n}")
		p.printf("return d.end(&v.Extra)")
		return
	}
	p.printf("for d.next() {\nswitch string(d.key) {")
	for i, s := range append(needed, others...) {
		p.printf("case %q:", s.name)
		nullable := s.kind.form == formRaw || s.kind.form == formIntNull || s.needed()
		p.printf("if d.%s(%d) {\n%s\n}", map[bool]string{true: "must", false: "may"}[nullable], i, s.readCall())
	}
	p.printf("default:\nd.keep()\n}\n}")
	names := ""
	for _, s := range needed {
		names += fmt.Sprintf(", %q", s.name)
	}
	p.printf("return d.end(&v.Extra%s)", names)
}

// needed reports whether the member has to be there.
func (f fieldRef) needed() bool { return f.required() && !lenientArrays[f.owner.name+"."+f.name] }

// readCall is the statement that reads a field.
func (f fieldRef) readCall() string {
	k, optional := f.kind, !f.required()
	pick := func(required, otherwise string) string {
		if optional {
			required = otherwise
		}
		return fmt.Sprintf("d.%s(&%s)", required, f.expr)
	}
	call := func(function string) string { return fmt.Sprintf("%s(&d, &%s)", function, f.expr) }
	method := func(function string) string { return fmt.Sprintf("%s(&d, &%s, (*%s).read)", function, f.expr, k.elem) }
	switch k.form {
	case formConst:
		return fmt.Sprintf("d.constant(%q)", k.text)
	case formString:
		if k.pointer {
			return "d.stringPtr(&" + f.expr + ")"
		}
		if k.elem != "" {
			return strings.Replace(pick("string", "text"), "&"+f.expr, "(*string)(&"+f.expr+")", 1)
		}
		return pick("string", "text")
	case formBool:
		if k.pointer {
			return "d.boolPtr(&" + f.expr + ")"
		}
		return "d.flag(&" + f.expr + ")"
	case formInt:
		return pick("int", "intPtr")
	case formFloat:
		return pick("float", "floatPtr")
	case formStruct:
		if optional {
			return method("readPtr")
		}
		return fmt.Sprintf("d.wrong(%s.read(d.val))", f.expr)
	case formList, formMessages:
		k.elem = map[bool]string{true: "SamplingMessage", false: k.elem}[k.form == formMessages]
		return method("readList")
	case formMap:
		return method("readMap")
	case formTexts:
		return fmt.Sprintf("readMap(&d, &%s, readText)", f.expr)
	case formRawMap:
		return fmt.Sprintf("readMap(&d, &%s, readRawObject)", f.expr)
	case formStrings:
		return call("readStrings")
	}
	return fmt.Sprintf("d.%s(&%s)", map[form]string{
		formIntNull: "intOrNull", formID: "id", formLevel: "level", formObject: "object", formRaw: "raw", formBytes: "bytes",
		formBlock: "block", formBlocks: "blocks", formSampling: "sampling", formRef: "reference", formError: "error",
	}[k.form], f.expr)
}
