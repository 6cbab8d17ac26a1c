package tap

// newLarge returns nil, which tells to grow by copying: memory must be paid for here when it is reserved.
func newLarge(int) []byte { return nil }

func freeLarge([]byte) {}
