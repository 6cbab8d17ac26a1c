package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// liveFields are the fields that a reload applies to the running gateway, with what does it. A new
// field is in this list, or makes upstreams connect anew, or needs a restart.
var liveFields = map[string]string{
	"views":                 "gateway.Options.View",
	"limits":                "policy.Limits",
	"keys":                  "gateway.Options.Secrets",
	"audit":                 "policy.Audit",
	"pins":                  "policy.Pins",
	"instructions":          "gateway.Options.Instructions",
	"labelElicitations":     "gateway.Options.LabelElicitations",
	"listWait":              "gateway.Options.ListWait",
	"upstreams.u.rename":    "gateway.Upstream.Rename",
	"upstreams.u.tools":     "gateway.Options.View",
	"upstreams.u.prompts":   "gateway.Options.View",
	"upstreams.u.resources": "gateway.Options.View",
	"upstreams.u.pin":       "policy.Pins and gateway.Upstream.RequirePin",
	"upstreams.u.disabled":  "the upstream is added or removed",
	"upstreams.u.limits":    "policy.Limits",
}

// A leaf is a field of a configuration that has no others in it, or what a field refers to.
type leaf struct {
	path, reload string
	change       func()
}

// content is what a field refers to: a secret, or a file of certificates.
const content = " content"

// A filler gives each field of a configuration a value, and collects the leaves.
type filler struct {
	dir    string
	leaves []leaf
}

func (f *filler) add(path, reload string, change func()) {
	f.leaves = append(f.leaves, leaf{path, reload, change})
}

// file returns the path of a file for a field.
func (f *filler) file(path, reload string) string {
	name := filepath.Join(f.dir, strings.NewReplacer(".", "_", "[", "_", "]", "_").Replace(path))
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	write("one")
	f.add(path+content, reload, func() { write("two") })
	return name
}

func (f *filler) fill(path, reload string, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *Reference:
		x.File = f.file(path, reload)
		f.add(path, reload, func() { x.File, x.Env = "", "HOME" })
		return
	case *Path:
		*x = Path(f.file(path, reload))
		f.add(path, reload, func() { *x = Path(f.file(path+"2", reload)) })
		return
	case *Value:
		f.fill(path, reload, reflect.ValueOf(&x.Reference).Elem())
		return
	case *Upstreams:
		u := &Upstream{Name: "u"}
		*x = Upstreams{u}
		f.fill(path+".u", reload, reflect.ValueOf(u).Elem())
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || keyOf(field) == "" {
				continue
			}
			inner := reload
			if own, ok := field.Tag.Lookup("reload"); ok {
				inner = own
			}
			f.fill(strings.TrimPrefix(path+"."+keyOf(field), "."), inner, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(path, reload, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(path+"[0]", reload, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		element := reflect.New(v.Type().Elem()).Elem()
		first := len(f.leaves)
		f.fill(path+".k", reload, element)
		store := func() { v.SetMapIndex(reflect.ValueOf("k"), element) }
		store()
		for i := range f.leaves[first:] {
			change := f.leaves[first+i].change
			f.leaves[first+i].change = func() { change(); store() }
		}
	case reflect.String:
		v.SetString("one")
		f.add(path, reload, func() { v.SetString("two") })
	case reflect.Bool:
		f.add(path, reload, func() { v.SetBool(true) })
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
		f.add(path, reload, func() { v.SetInt(2) })
	case reflect.Float64:
		v.SetFloat(1)
		f.add(path, reload, func() { v.SetFloat(2) })
	default:
		panic(path + ": unknown kind " + v.Kind().String())
	}
}

// TestReload changes each field, and each secret and file that one refers to, by itself. Either the
// change is applied to the running gateway, or upstreams connect anew, or the reload is refused.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	filled := func(path string) (*Config, []leaf) {
		c, f := &Config{file: &file{}}, filler{dir: dir}
		f.fill("", "", reflect.ValueOf(c).Elem())
		if strings.HasPrefix(path, "limits.upstream.") {
			c.Upstreams[0].Limits = UpstreamLimits{} // it would replace them
		}
		return c, f.leaves
	}
	_, all := filled("")
	if len(all) < 100 {
		t.Fatalf("got %d fields", len(all))
	}
	for i, l := range all {
		old, _ := filled(l.path)
		c, leaves := filled(l.path)
		fingerprint := func() string {
			f, err := c.Fingerprint(c.Upstreams[0])
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		before := fingerprint()
		leaves[i].change()
		connects, refused := fingerprint() != before, c.NeedsRestart(old) != nil
		isContent := strings.HasSuffix(l.path, content)
		want := "live"
		switch {
		case l.reload == reloadConnect, l.reload == reloadReread && !isContent:
			want = "connect"
		case l.reload == reloadRestart && !isContent: // it is read once, or again when it changes
			want = "restart"
		case l.reload == reloadLive, l.reload == reloadPresence:
			live := false
			for path := range liveFields {
				live = live || l.path == path || strings.HasPrefix(l.path, path+".") || strings.HasPrefix(l.path, path+"[") || l.path == path+content
			}
			if !live {
				t.Errorf("%s has the tag live, and nothing says what applies it", l.path)
			}
		case !isContent:
			t.Errorf("%s has the tag reload:%q", l.path, l.reload)
		}
		got := "live"
		if connects {
			got = "connect"
		}
		if refused {
			got += " restart"
		}
		if got = strings.TrimPrefix(got, "live "); got != want {
			t.Errorf("a change of %s: got %s, want %s", l.path, got, want)
		}
	}
	old, _ := filled("")
	c, _ := filled("")
	c.Keys = nil
	for _, pair := range [][2]*Config{{old, c}, {c, old}} {
		if err := pair[0].NeedsRestart(pair[1]); err == nil || !strings.Contains(err.Error(), "keys has changed, which needs a restart") {
			t.Errorf("keys: got %v", err)
		}
	}
}
