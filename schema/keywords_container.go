package schema

import "mcpwire/internal/jsonwire"

func (k *keywords) array(name string, raw []byte) (err error) {
	a := &k.arr
	switch name {
	case "prefixItems":
		a.prefix, err = k.children(name, raw)
	case "items":
		if raw[0] == '[' {
			return invalid(k.loc, name, "expected one schema, got an array, which is prefixItems in this draft")
		}
		a.items, err = k.child(raw, name)
	case "contains":
		a.contains, err = k.child(raw, name)
	case "minContains":
		k.minContains, err = k.size(name, raw)
	case "maxContains":
		k.maxContains, err = k.size(name, raw)
	case "uniqueItems":
		a.unique, err = k.flag(name, raw)
	default:
		if a.count == nil {
			a.count = &sizeRule{max: -1}
		}
		return k.bound(name, "minItems", raw, &a.count.min, &a.count.max)
	}
	return err
}

func (k *keywords) flag(name string, raw []byte) (bool, error) {
	if typeOf(raw[0]) != typeBoolean {
		return false, k.invalid(name, "a boolean", raw)
	}
	return raw[0] == 't', nil
}

func (k *keywords) object(name string, raw []byte) (err error) {
	if k.s.obj == nil {
		k.s.obj = &objectRule{}
	}
	o := k.s.obj
	switch name {
	case "properties":
		return k.childMap(name, raw, func(name string, s *subschema) error {
			o.members[o.index(name)].schema = s
			o.names = append(o.names, name)
			return nil
		})
	case "required":
		o.required, err = k.nameList(name, raw)
	case "additionalProperties":
		o.additional, err = k.child(raw, name)
	case "propertyNames":
		o.propName, err = k.child(raw, name)
	case "patternProperties":
		return k.childMap(name, raw, func(source string, s *subschema) error {
			re, cost, err := k.pattern(name, source)
			o.patterns = append(o.patterns, patternRule{re, cost, s})
			return err
		})
	case "dependentSchemas":
		return k.childMap(name, raw, func(name string, s *subschema) error {
			o.dependencies = append(o.dependencies, dependency{name: o.index(name), schema: s})
			return nil
		})
	case "dependentRequired":
		return k.dependentRequired(name, raw)
	default:
		if o.count == nil {
			o.count = &sizeRule{max: -1}
		}
		return k.bound(name, "minProperties", raw, &o.count.min, &o.count.max)
	}
	return err
}

// nameList reads an array of distinct member names as indexes.
func (k *keywords) nameList(keyword string, raw []byte) (list []int, err error) {
	if raw[0] != '[' {
		return nil, k.invalid(keyword, "an array of names", raw)
	}
	seen := map[int]bool{}
	for e := jsonwire.ArrayElements(raw); e.Next(); {
		name, err := k.text(keyword, e.Value())
		if err != nil {
			return nil, err
		}
		n := k.s.obj.index(name)
		if seen[n] {
			return nil, invalid(k.loc, keyword, "%s is listed twice", quoteClipped(name))
		}
		seen[n] = true
		list = append(list, n)
	}
	return list, nil
}

func (k *keywords) dependentRequired(keyword string, raw []byte) error {
	if raw[0] != '{' {
		return k.invalid(keyword, "an object", raw)
	}
	for m := jsonwire.ObjectMembers(raw); m.Next(); {
		needs, err := k.nameList(keyword, m.Value())
		if err != nil {
			return err
		}
		k.s.obj.dependencies = append(k.s.obj.dependencies, dependency{name: k.s.obj.index(m.KeyString()), required: needs})
	}
	return nil
}

// finish puts together what depends on several keywords.
func (k *keywords) finish() {
	s := k.s
	if s.num != nil {
		s.num.finish()
	}
	if o := s.obj; o != nil && len(o.members) <= maxLinearFields {
		o.byName = nil
	}
	if k.hasArr {
		k.arr.matches = sizeRule{min: k.minContains, max: k.maxContains}
		s.arr = &k.arr
	}
	// then and else mean nothing without if.
	if p := s.applicators; p != nil && p.cond == nil {
		p.then, p.els = nil, nil
	}
}
