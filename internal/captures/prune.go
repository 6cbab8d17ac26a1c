package captures

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// A Pruner says which captures have to go. The zero Pruner removes none.
type Pruner struct {
	MaxAge   time.Duration // remove those that were not changed for longer; 0 does not look at the age
	MaxBytes int64         // remove the oldest until all of them together have no more bytes; 0 does not look at the size
	Now      time.Time     // what age counts from; zero is the present
	DryRun   bool          // only say what would go
}

// Run removes captures from dir, and returns them. Those that are being written stay, and count.
func (p Pruner) Run(dir string) ([]Info, error) {
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	now := p.Now
	if now.IsZero() {
		now = time.Now()
	}
	var total int64
	var removed []Info
	var failed error
	full := false
	for _, i := range list { // the newest first: where they do not fit any more, all that is older goes
		total += i.Size
		old := p.MaxAge > 0 && now.Sub(i.Modified) > p.MaxAge
		full = full || p.MaxBytes > 0 && total > p.MaxBytes
		if i.State == Writing || !old && !full {
			continue
		}
		if !p.DryRun {
			if err := os.Remove(i.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err)
				continue
			}
		}
		removed = append(removed, i)
	}
	return removed, failed
}
