package stdio

import (
	"os"
	"os/signal"
	"syscall"
)

// signals returns the channel on which the signals that end Serve arrive, and what gives them back to the program.
func (c *Config) signals() (<-chan os.Signal, func()) {
	if c.KeepSignals {
		return nil, func() {}
	}
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	// A handler that prints to a closed stderr must not end the server: Go programs die of SIGPIPE on descriptors 1 and 2, unless somebody listens
	// for it. Ignoring it would be inherited by child processes; listening is not.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return stop, func() {
		signal.Stop(stop)
		signal.Stop(pipe)
	}
}

// exit ends the process as the signal would have, except that the log is flushed.
func (r *run) exit(s os.Signal) {
	status := 1
	if n, ok := s.(syscall.Signal); ok {
		status = 128 + int(n)
	}
	r.log.Warn("second signal: exiting at once", "signal", s.String())
	flushLog(r.log, exitFlushTimeout)
	os.Exit(status)
}
