package policy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proc/filelock"
	"mcpwire/internal/proc/inuse"
	"mcpwire/internal/text/clip"
)

// A PinMode says what happens when a definition changes. Others than the constants, such as off,
// ignore changes, and record nothing.
type PinMode string

const (
	// PinWarn logs and counts changes.
	PinWarn PinMode = "warn"
	// PinHide also hides the changed item until somebody accepts the change.
	PinHide PinMode = "hide"
)

// Limits of pins.
const (
	maxPins = 50_000
	// maxPinnedText limits the bytes of a stored definition. Of a longer one, only the hash is
	// stored, so that a change can be detected but not shown.
	maxPinnedText = 64 << 10
	maxPinFile    = 256 << 20
	// pinSaveDelay joins the changes of one catalog into one write.
	pinSaveDelay = 200 * time.Millisecond
	// pinLockTimeout limits the wait for another process that writes the file.
	pinLockTimeout = 5 * time.Second
	lockPoll       = 20 * time.Millisecond
	// pinCheckInterval is the time between looks at the file, which another process may change.
	pinCheckInterval = time.Second
)

// PinOptions are the options of [OpenPins].
type PinOptions struct {
	// Path is the file. It and its folder are created when there is something to write, with modes
	// 0600 and 0700. The file is replaced with each change.
	Path string
	// Mode is the mode of each upstream.
	Mode func(upstream string) PinMode
	// Logger receives changes of definitions at level warn, and failures. Nil discards them.
	Logger *slog.Logger
}

// Pins remembers the definitions of tools, prompts, resources, templates and servers as they were
// first seen, and detects changes: a server that was harmless when it was chosen may later change
// the texts that models and users read.
//
// All members count, except those in volatile. White space and the order of members do not count.
// A server may have other definitions for other kinds of clients, so each catalog has pins. The
// first definition in a catalog must have the texts that the pin of another catalog has.
type Pins struct {
	path string
	mode func(upstream string) PinMode
	log  *slog.Logger
	wake chan struct{}
	done chan struct{}
	// ctx ends with Close.
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	pins map[pinKey]*pin
	// dirty are the pins that the file does not have yet.
	dirty map[pinKey]bool
	// seen describes the file that was last read or written, at lastCheck; nil if there was none.
	seen      os.FileInfo
	lastCheck time.Time
	// replaced says that another process has replaced the file since the last Reread.
	replaced bool
	// full says that the log has a message about too many pins.
	full bool
}

// A pinKey names an item.
type pinKey struct{ upstream, catalog, kind, name string }

// A pin is an item in the file.
type pin struct {
	Upstream string `json:"upstream"`
	Catalog  string `json:"catalog"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	definition
	// Pinned is when the definition was first seen or accepted.
	Pinned time.Time `json:"pinned"`
	// Changed is the latest definition, if it differs.
	Changed *definition `json:"changed,omitempty"`
	// ChangedAt is when Changed was first seen.
	ChangedAt time.Time `json:"changedAt,omitzero"`
}

func (p *pin) key() pinKey { return pinKey{p.Upstream, p.Catalog, p.Kind, p.Name} }

// A definition has the parts of an item that count.
type definition struct {
	SHA256 string `json:"sha256"`
	// Text is the canonical text, or nil if it is too long.
	Text json.RawMessage `json:"definition,omitempty"`
}

// sameTexts reports whether the texts of two definitions for two catalogs agree. What only one
// of them has does not count, since a revision or a kind of client may lack it.
func (d *definition) sameTexts(e *definition) bool {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(d.Text, &a) != nil || json.Unmarshal(e.Text, &b) != nil {
		return d.SHA256 == e.SHA256
	}
	for _, name := range []string{"title", "description", "inputSchema", "outputSchema", "annotations", "arguments", "instructions"} {
		if a[name] != nil && b[name] != nil && hashJSON(a[name]) != hashJSON(b[name]) {
			return false
		}
	}
	return true
}

// pinVersion is the version of the file. Version 1 had fewer members, and one pin for all catalogs.
const pinVersion = 2

// pinFile is the file.
type pinFile struct {
	Version int    `json:"version"`
	Pins    []*pin `json:"pins"`
}

// maxFold is the depth to which names that differ in case only are looked for.
const maxFold = 1 << 10

// newDefinition returns the parts of an item that count.
func newDefinition(kind gateway.Kind, item []byte) definition {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(item))
	d.UseNumber()
	_, duplicate := jsonwire.Duplicate(item, maxFold)
	if duplicate || d.Decode(&all) != nil {
		// Readers may disagree about such a text, so every change of it counts.
		all = map[string]any{"description": string(item)}
	}
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	if kind == gateway.KindResource {
		removeVolatile(all)
	}
	def := definition{SHA256: hashJSON(all)}
	if text, err := json.Marshal(all); err == nil && len(text) <= maxPinnedText {
		def.Text = text
	}
	return def
}

// removeVolatile removes the size and the time of the last change from a resource. They change with
// its content, and have no room for a text.
func removeVolatile(resource map[string]any) {
	if _, ok := resource["size"].(json.Number); ok {
		delete(resource, "size")
	}
	annotations, _ := resource["annotations"].(map[string]any)
	text, _ := annotations["lastModified"].(string)
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		delete(annotations, "lastModified")
	}
}

// hashJSON returns the hash of the canonical text of a decoded JSON value: Marshal sorts members.
func hashJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // impossible for what a decoder returned
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// OpenPins reads the file, which may not exist yet. Close it after the gateway.
func OpenPins(o PinOptions) (*Pins, error) {
	p := &Pins{
		path: o.Path, mode: o.Mode, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		wake: make(chan struct{}, 1), done: make(chan struct{}), dirty: map[pinKey]bool{},
	}
	var err error
	if p.pins, p.seen, err = readPins(o.Path); err != nil {
		return nil, err
	}
	p.lastCheck = time.Now()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	go p.run()
	return p, nil
}

// Decide compares the definition of an item with its pin, or pins it if it is new. It is a
// gateway.Options.Pin.
func (p *Pins) Decide(upstream, catalog string, kind gateway.Kind, name string, item []byte) gateway.PinDecision {
	mode := p.mode(upstream)
	if mode != PinWarn && mode != PinHide {
		return gateway.PinShow
	}
	d, now := newDefinition(kind, item), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rereadLocked(now)
	key := pinKey{upstream, catalog, kind.String(), name}
	have := p.pins[key]
	for _, other := range gateway.Catalogs {
		sibling := p.pins[pinKey{upstream, other, key.kind, name}]
		if have == nil && sibling != nil && !sibling.sameTexts(&d) {
			have = &pin{Upstream: upstream, Catalog: catalog, Kind: key.kind, Name: name, definition: sibling.definition, Pinned: sibling.Pinned}
		}
	}
	switch {
	case have == nil && len(p.pins) < maxPins:
		p.setLocked(&pin{Upstream: upstream, Catalog: catalog, Kind: key.kind, Name: name, definition: d, Pinned: now.UTC()})
		return gateway.PinShow
	case have == nil:
		if !p.full {
			p.full = true
			p.log.Error("too many definitions are pinned; new ones count as changed", "path", p.path, "max", maxPins)
		}
	case have.SHA256 == d.SHA256:
		if have.Changed != nil {
			same := *have
			same.Changed, same.ChangedAt = nil, time.Time{}
			p.setLocked(&same)
		}
		return gateway.PinShow
	case have.Changed == nil || have.Changed.SHA256 != d.SHA256:
		changed := *have
		changed.Changed, changed.ChangedAt = &d, now.UTC()
		p.setLocked(&changed)
		p.log.Warn("a definition has changed", "upstream", upstream, "kind", key.kind, "name", name, "action", string(mode), "changes", strings.Join(changed.change().Lines(), "; "))
	}
	if mode == PinHide {
		return gateway.PinHide
	}
	return gateway.PinWarn
}

// setLocked replaces a pin, and has it written.
func (p *Pins) setLocked(to *pin) {
	p.pins[to.key()] = to
	p.dirty[to.key()] = true
	wait.Signal(p.wake)
}

// Reread reads the file again if another process has replaced it, such as AcceptPins, and reports
// whether it has. Decide does the same, so a gateway calls Reread to learn that it must ask again.
func (p *Pins) Reread() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rereadLocked(time.Now())
	replaced := p.replaced
	p.replaced = false
	return replaced
}

// rereadLocked reads the file again if another process has replaced it.
func (p *Pins) rereadLocked(now time.Time) {
	if now.Sub(p.lastCheck) < pinCheckInterval {
		return
	}
	p.lastCheck = now
	if now, err := os.Stat(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) || config.SameVersion(now, p.seen) {
		return
	}
	pins, info, err := readPins(p.path)
	if err != nil {
		p.log.Error("pins not read again", "error", err)
		return
	}
	p.mergeLocked(pins)
	p.pins, p.seen, p.replaced = pins, info, true
}

// mergeLocked adds the pins that are not written yet to those of the file. An item that another
// process has pinned or accepted keeps that definition.
func (p *Pins) mergeLocked(file map[pinKey]*pin) {
	for key := range p.dirty {
		mine, theirs := p.pins[key], file[key]
		if theirs == nil || theirs.SHA256 == mine.SHA256 {
			file[key] = mine
		}
	}
}

// Close writes what is pending.
func (p *Pins) Close() error {
	p.cancel()
	<-p.done
	p.mu.Lock()
	pending := len(p.dirty)
	p.mu.Unlock()
	if pending > 0 {
		return p.save()
	}
	return nil
}

// run writes changes until Close.
func (p *Pins) run() {
	defer close(p.done)
	for {
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return
		}
		if !wait.Sleep(p.ctx, pinSaveDelay) {
			return
		}
		if err := p.save(); err != nil {
			p.log.Error("pins not written", "error", err)
		}
	}
}

// save writes what is pending.
func (p *Pins) save() error {
	if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
		return fmt.Errorf("pins: %w", err)
	}
	unlock, err := lockFile(p.path)
	if err != nil {
		return err
	}
	defer unlock()
	file, was, err := readPins(p.path)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.replaced = p.replaced || !config.SameVersion(was, p.seen)
	p.mergeLocked(file)
	merged := map[pinKey]*pin{}
	for key := range p.dirty {
		merged[key] = p.pins[key]
	}
	p.mu.Unlock()
	info, err := writePins(p.path, file)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, mine := range merged {
		if p.pins[key] == mine { // and not set again meanwhile
			delete(p.dirty, key)
		}
	}
	p.mergeLocked(file)
	p.pins, p.seen = file, info
	return nil
}

// A PinChange is a changed definition.
type PinChange struct {
	Upstream, Catalog, Kind, Name string
	// Since is when the change was first seen.
	Since time.Time
	// Changes are the differences, or empty if a definition is too long to be stored.
	Changes []jsondiff.Change
}

// Lines describes the differences, one a line, in JSON text: replace /description: "old" → "new".
func (c *PinChange) Lines() []string {
	const maxLines, maxValue = 20, 300
	lines := []string{}
	for i, d := range c.Changes {
		if i == maxLines {
			return append(lines, fmt.Sprintf("and %d more", len(c.Changes)-i))
		}
		line := fmt.Sprintf("%s %s", d.Op, d.Pointer)
		if d.Old != "" {
			line += ": " + clip.String(d.Old, maxValue)
		}
		if d.New != "" {
			line += " → " + clip.String(d.New, maxValue)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = append(lines, "the definition is too long to be shown")
	}
	return lines
}

// change returns the change of a pin that has one.
func (p *pin) change() *PinChange {
	c := &PinChange{Upstream: p.Upstream, Catalog: p.Catalog, Kind: p.Kind, Name: p.Name, Since: p.ChangedAt}
	if p.Text != nil && p.Changed.Text != nil {
		c.Changes = jsondiff.Diff(p.Text, p.Changed.Text, nil)
	}
	return c
}

// ChangedPins returns the changed definitions in a file of pins, sorted by name.
func ChangedPins(path string) ([]*PinChange, error) {
	pins, _, err := readPins(path)
	if err != nil {
		return nil, err
	}
	return changesOf(pins, func(*pin) bool { return true }), nil
}

// changesOf returns the changes of the selected pins.
func changesOf(pins map[pinKey]*pin, selected func(*pin) bool) []*PinChange {
	var list []*PinChange
	for _, p := range sorted(pins) {
		if p.Changed != nil && selected(p) {
			list = append(list, p.change())
		}
	}
	return list
}

// AcceptPins pins the changed definitions of an upstream, of the tools and prompts with this name
// or of all if name is empty, and returns what it accepted. A running gateway notices it by
// [Pins.Reread].
func AcceptPins(path, upstream, name string) ([]*PinChange, error) {
	unlock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	pins, _, err := readPins(path)
	if err != nil {
		return nil, err
	}
	selected := func(p *pin) bool { return p.Upstream == upstream && (name == "" || p.Name == name) }
	accepted := changesOf(pins, selected)
	if len(accepted) == 0 {
		return nil, nil
	}
	for key, p := range pins {
		if p.Changed != nil && selected(p) {
			pins[key] = &pin{Upstream: p.Upstream, Catalog: p.Catalog, Kind: p.Kind, Name: p.Name, definition: *p.Changed, Pinned: time.Now().UTC()}
		}
	}
	_, err = writePins(path, pins)
	return accepted, err
}

// readPins reads a file. A missing file has no pins and a nil FileInfo.
func readPins(path string) (map[pinKey]*pin, os.FileInfo, error) {
	pins := map[pinKey]*pin{}
	file, err := inuse.Open(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return pins, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pins: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("pins: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxPinFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("pins: %w", err)
	}
	var f pinFile
	if len(text) > maxPinFile || json.Unmarshal(text, &f) != nil || f.Version != pinVersion {
		return nil, nil, fmt.Errorf("pins: %s is not a file of pins of version %d, which sees all changes: remove it to accept the present definitions of all servers, or name another file", path, pinVersion)
	}
	for _, p := range f.Pins {
		if p != nil {
			pins[p.key()] = p
		}
	}
	return pins, info, nil
}

// sorted returns pins by name.
func sorted(pins map[pinKey]*pin) []*pin {
	list := make([]*pin, 0, len(pins))
	for _, p := range pins {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *pin) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Catalog, b.Catalog))
	})
	return list
}

// writePins replaces a file. The caller has its lock.
func writePins(path string, pins map[pinKey]*pin) (os.FileInfo, error) {
	text, err := json.MarshalIndent(pinFile{Version: pinVersion, Pins: sorted(pins)}, "", "\t")
	if err != nil {
		return nil, err
	}
	info, err := inuse.Replace(path, append(text, '\n'))
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	return info, nil
}

// lockFile waits for the lock on a file that is replaced, which is a file beside it.
func lockFile(path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), pinLockTimeout)
	defer cancel()
	file, err := inuse.Open(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	for {
		got, err := filelock.Try(file)
		if err == nil && got {
			return func() { file.Close() }, nil
		}
		if err == nil && !wait.Sleep(ctx, lockPoll) {
			err = fmt.Errorf("another process has locked %s for %v", path, pinLockTimeout)
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("pins: %w", err)
		}
	}
}
