package guardian

// A Guardian watches one process group. A nil Guardian does nothing.
type Guardian struct{}

// Start returns nil: the system ends a job object with its owner.
func Start() *Guardian { return nil }

// Watch does nothing.
func (*Guardian) Watch(int) {}

// Stop does nothing.
func (*Guardian) Stop() {}
