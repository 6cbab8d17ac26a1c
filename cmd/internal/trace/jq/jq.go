package jq

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/itchyny/gojq"
)

// maxPayload is the size in bytes of the largest payload that programs run on.
const maxPayload = 4 << 20

// A Program is a jq program that compiles.
type Program struct{ source string }

// Compile checks that a program compiles and that a worker can run it. The payload is the only
// input of a program: it cannot read the environment, modules or files.
func Compile(source string) (*Program, error) {
	if _, err := compile(source); err != nil {
		return nil, err
	}
	if err := checkStartable(); err != nil {
		return nil, err
	}
	return &Program{source}, nil
}

func compile(source string) (*gojq.Code, error) {
	query, err := gojq.Parse(source)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(query)
}

// True reports whether the first value that the program returns for a payload is neither false nor
// null. For an array, which is a batch, it reports whether this is so for one of its elements. It
// returns false for payloads above 4 MiB, and if the program fails, exceeds maxTime or maxMemory,
// or ctx ends.
func (p *Program) True(ctx context.Context, payload []byte) bool {
	if len(payload) > maxPayload {
		return false
	}
	for range maxWorkers + 1 { // idle workers may have been killed
		w, release := acquire(ctx)
		if w == nil {
			return false
		}
		isTrue, err := w.evaluate(ctx, p.source, payload)
		release(err == nil)
		if !errors.Is(err, errExited) {
			return isTrue && err == nil
		}
	}
	return false
}

const (
	// maxWorkers limits the workers in use at a time.
	maxWorkers = 4
	// maxIdle is how long an idle worker lives.
	maxIdle = 30 * time.Second
)

// The workers of this process.
var (
	slots = make(chan struct{}, maxWorkers) // one element for each worker in use

	mu   sync.Mutex
	idle []*worker // idle workers, the last used one at the end
)

// acquire returns a worker for exclusive use, or nil if ctx ends first or no worker starts. The
// caller must call release and report whether the worker can be reused.
func acquire(ctx context.Context) (w *worker, release func(reusable bool)) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}
	if ctx.Err() != nil {
		<-slots
		return nil, nil
	}
	if w = getIdle(); w == nil {
		var err error
		if w, err = start(); err != nil {
			<-slots
			return nil, nil
		}
	}
	return w, func(reusable bool) {
		if reusable {
			putIdle(w)
		} else {
			w.kill()
		}
		<-slots
	}
}

// checkStartable returns an error if no worker is idle and none can be started.
func checkStartable() error {
	w := getIdle()
	if w == nil {
		var err error
		if w, err = start(); err != nil {
			return fmt.Errorf("start the process that runs jq programs: %w", err)
		}
	}
	putIdle(w)
	return nil
}

func getIdle() *worker {
	mu.Lock()
	defer mu.Unlock()
	for len(idle) > 0 {
		w := idle[len(idle)-1]
		idle = idle[:len(idle)-1]
		if w.idle.Stop() {
			return w
		}
		// Its timer has fired and kills it.
	}
	return nil
}

func putIdle(w *worker) {
	mu.Lock()
	defer mu.Unlock()
	w.idle = time.AfterFunc(maxIdle, func() { expire(w) })
	idle = append(idle, w)
}

// expire kills an idle worker.
func expire(w *worker) {
	mu.Lock()
	idle = slices.DeleteFunc(idle, func(other *worker) bool { return other == w })
	mu.Unlock()
	w.kill()
}

const (
	// maxTime limits the run time of a program on a payload.
	maxTime = 200 * time.Millisecond
	// maxTotal limits the total time of a worker for a payload, including reading it. The owner
	// kills the worker after that.
	maxTotal = time.Second
	// maxMemory is the heap size in bytes at which a worker ends. It is checked every millisecond.
	maxMemory = 256 << 20
	// maxPrograms limits the compiled programs that a worker keeps.
	maxPrograms = 64

	// workerVariable makes a process a worker.
	workerVariable = "MCPWIRE_JQ_WORKER"
)

// A worker is the owner's side of a process that evaluates programs.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
	// idle kills the worker when it was idle for maxIdle.
	idle *time.Timer
}

// start starts a worker.
func start() (*worker, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"mcpwire-jq"}
	cmd.Env = []string{workerVariable + "=1"}
	if zone, ok := os.LookupEnv("TZ"); ok {
		cmd.Env = append(cmd.Env, "TZ="+zone)
	}
	cmd.SysProcAttr = sysProcAttr()
	w := &worker{cmd: cmd}
	if w.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.out, err = cmd.StdoutPipe(); err != nil {
		w.in.Close()
		return nil, err
	}
	return w, cmd.Start()
}

// executable returns the path of this program, even if its file was replaced or removed since.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe", nil
		}
	}
	return os.Executable()
}

// errExited is the error of a worker that had ended before the request.
var errExited = errors.New("the worker has ended")

// evaluate runs a program on a payload. After an error the worker must be killed. The error is
// errExited if the program cannot have run.
func (w *worker) evaluate(ctx context.Context, program string, payload []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTotal)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = w.cmd.Process.Kill() })
	var answer [1]byte
	request := bufio.NewWriterSize(w.in, 16<<10)
	if errors.Join(writeText(request, []byte(program)), writeText(request, payload), request.Flush()) != nil {
		stop()
		return false, errExited
	}
	_, err := io.ReadFull(w.out, answer[:])
	if !stop() && err == nil {
		err = ctx.Err() // it is being killed
	}
	return answer[0] == 1, err
}

// kill ends the process and waits for it.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // closes the pipes too
}

// init is the main function of workers. It is here so that every executable that links this
// package can be one.
func init() {
	if os.Getenv(workerVariable) == "" {
		return
	}
	serve(os.Stdin, os.Stdout)
	os.Exit(0)
}

// serve answers requests until the input ends. A request is a program and a payload, each behind
// its length in four bytes, big endian. The response is one byte; 1 means true.
func serve(in io.Reader, out io.Writer) {
	debug.SetMemoryLimit(maxMemory / 2) // collect more often near the limit
	programs := map[string]*gojq.Code{}
	r := bufio.NewReader(in)
	for {
		source, err := readText(r)
		if err != nil {
			return
		}
		payload, err := readText(r)
		if err != nil {
			return
		}
		stop := enforceLimits()
		code := programs[string(source)]
		if code == nil {
			if code, err = compile(string(source)); err != nil {
				return // its owner has compiled it before
			}
			if len(programs) >= maxPrograms {
				clear(programs)
			}
			programs[string(source)] = code
		}
		answer := []byte{0}
		if isTrue(code, payload) {
			answer[0] = 1
		}
		stop()
		if _, err := out.Write(answer); err != nil {
			return
		}
	}
}

// enforceLimits ends this process if time or memory exceeds its limit before stop is called.
func enforceLimits() (stop func()) {
	done := make(chan struct{})
	go func() {
		deadline := time.After(maxTotal)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			select {
			case <-done:
				return
			case <-deadline:
				os.Exit(1)
			case <-tick.C:
				if metrics.Read(heap); heap[0].Value.Uint64() > maxMemory {
					os.Exit(1)
				}
			}
		}
	}()
	return func() { close(done) }
}

// isTrue runs a program on a payload, or on each element of a batch.
func isTrue(code *gojq.Code, payload []byte) bool {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	batch, isBatch := v.([]any)
	if !isBatch {
		batch = []any{v}
	}
	for _, v := range batch {
		first, ok := code.RunWithContext(ctx, v).Next()
		if _, failed := first.(error); ok && !failed && first != nil && first != false {
			return true
		}
	}
	return false
}

func writeText(w *bufio.Writer, text []byte) error {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(text)))
	if _, err := w.Write(length[:]); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

func readText(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	text := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(r, text)
	return text, err
}
