package stdio

import (
	"io"
	"os"
)

// conn returns the Process for a framer.
func (p *Process) conn() io.ReadWriteCloser { return p }

func (p *Process) linger() {}

func exitSignal(*os.ProcessState) os.Signal { return nil }
