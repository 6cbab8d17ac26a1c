// Command cast makes the moving picture of the README: a terminal in which mcpwire doctor and
// mcpwire watch run, as an animated SVG.
//
//	cd tools/release && go run ./cast -out ../../doc/pictures/cast.svg
//
// It builds mcpwire, runs it in tmux, and records what the terminal shows. Only the typing and the
// duration of each frame are made up. It needs tmux and python3.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const (
	columns = 98
	rows    = 27
	// maxWait limits the wait for a text on the screen.
	maxWait = time.Minute
	// poll is the time between two looks at the screen.
	poll = 150 * time.Millisecond
)

// server is the broken server that doctor examines.
const server = `import json, os, sys

key = os.environ["WEATHER_API_KEY"]
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}), flush=True)
`

// traffic is what watch shows: clients that call the demo server through taps.
const traffic = `tap() { name=$1; shift; mcpwire "$@" -- mcpwire tap --name "$name" -- mcpwire serve >/dev/null 2>&1; }
tap notes call echo text="Buy milk"
tap search call slow steps=5 delay_ms=250 &
tap notes call fail
tap notes prompt explain topic=taps
wait
tap math call add a=2 b=3
`

// A terminal is a tmux session.
type terminal struct {
	socket string
	env    []string
	frames []frame
}

// A frame is what the terminal shows for some time.
type frame struct {
	screen string
	lasts  time.Duration
}

func (t *terminal) tmux(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-L", t.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = t.env
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// shoot adds what the terminal shows to the frames. If that has not changed, the last frame lasts
// longer instead.
func (t *terminal) shoot(ctx context.Context, lasts time.Duration) (string, error) {
	screen, err := t.tmux(ctx, "capture-pane", "-p", "-e")
	if err != nil {
		return "", err
	}
	if n := len(t.frames); n > 0 && t.frames[n-1].screen == screen {
		t.frames[n-1].lasts += lasts
	} else {
		t.frames = append(t.frames, frame{screen, lasts})
	}
	return screen, nil
}

// typeLine types a line as a person does, and presses Enter.
func (t *terminal) typeLine(ctx context.Context, line string) error {
	for i := 0; i < len(line); i += 2 {
		if _, err := t.tmux(ctx, "send-keys", "-l", "--", line[i:min(i+2, len(line))]); err != nil {
			return err
		}
		if err := pause(ctx, poll/3); err != nil {
			return err
		}
		if _, err := t.shoot(ctx, 90*time.Millisecond); err != nil {
			return err
		}
	}
	t.hold(400 * time.Millisecond)
	_, err := t.tmux(ctx, "send-keys", "Enter")
	return err
}

// hold makes the last frame last longer.
func (t *terminal) hold(d time.Duration) { t.frames[len(t.frames)-1].lasts += d }

// until records frames until the screen contains text.
func (t *terminal) until(ctx context.Context, text string, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for {
		if err := pause(ctx, poll); err != nil {
			return fmt.Errorf("waiting for %q: %w", text, err)
		}
		screen, err := t.shoot(ctx, lasts)
		if err != nil {
			return err
		}
		if strings.Contains(screen, text) {
			return nil
		}
	}
}

// press presses a key and records the result.
func (t *terminal) press(ctx context.Context, key string, lasts time.Duration) error {
	if _, err := t.tmux(ctx, "send-keys", key); err != nil {
		return err
	}
	if err := pause(ctx, 3*poll); err != nil {
		return err
	}
	_, err := t.shoot(ctx, lasts)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record plays the session in a folder that is only for it.
func record(ctx context.Context, dir string) ([]frame, error) {
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "bin", "mcpwire"), "./cmd/mcpwire")
	build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"weather.py": server, "traffic.sh": traffic, "rc": "PS1='$ '\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, "bin") + ":/usr/local/bin:/usr/bin:/bin"
	t := &terminal{
		socket: fmt.Sprintf("cast-%d", os.Getpid()),
		env:    []string{"HOME=" + dir, "PATH=" + path, "TERM=xterm-256color", "LANG=C.UTF-8"},
	}
	if _, err := t.tmux(ctx, "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), "-c", dir, "bash --noprofile --rcfile rc"); err != nil {
		return nil, err
	}
	defer t.tmux(context.WithoutCancel(ctx), "kill-server")
	if _, err := t.tmux(ctx, "set", "-g", "status", "off"); err != nil {
		return nil, err
	}
	if err := t.until(ctx, "$", 300*time.Millisecond); err != nil {
		return nil, err
	}

	t.frames = nil
	if err := t.typeLine(ctx, "mcpwire doctor -- python3 weather.py"); err != nil {
		return nil, err
	}
	if err := t.until(ctx, "next, with", 350*time.Millisecond); err != nil {
		return nil, err
	}
	t.hold(5 * time.Second)

	if _, err := t.tmux(ctx, "send-keys", "-l", "clear"); err != nil {
		return nil, err
	}
	if _, err := t.tmux(ctx, "send-keys", "Enter"); err != nil {
		return nil, err
	}
	if err := pause(ctx, 4*poll); err != nil {
		return nil, err
	}
	if err := t.typeLine(ctx, "mcpwire watch"); err != nil {
		return nil, err
	}
	if err := t.until(ctx, "No taps", 300*time.Millisecond); err != nil {
		return nil, err
	}
	play := exec.CommandContext(ctx, "bash", "traffic.sh")
	play.Dir, play.Env = dir, t.env
	if err := play.Start(); err != nil {
		return nil, err
	}
	played := make(chan error, 1)
	go func() { played <- play.Wait() }()
	for playing := true; playing; {
		select {
		case err := <-played:
			if err != nil {
				return nil, err
			}
			playing = false
		default:
		}
		if err := pause(ctx, 2*poll); err != nil {
			return nil, err
		}
		if _, err := t.shoot(ctx, 2*poll); err != nil {
			return nil, err
		}
	}
	t.hold(1500 * time.Millisecond)
	for _, step := range []struct {
		key   string
		lasts time.Duration
	}{{"/", 400}, {"tool:slow", 900}, {"Enter", 900}, {"Enter", 2500}, {"7", 4000}} {
		if err := t.press(ctx, step.key, step.lasts*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return t.frames, nil
}

func run(ctx context.Context, out string) error {
	dir, err := os.MkdirTemp("", "cast")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	frames, err := record(ctx, dir)
	if err != nil {
		return err
	}
	for i := range frames {
		frames[i].screen = strings.ReplaceAll(frames[i].screen, dir, "~")
	}
	return os.WriteFile(out, []byte(animate(frames)), 0o666)
}

func main() {
	out := flag.String("out", "../../doc/pictures/cast.svg", "`FILE` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out); err != nil {
		log.Fatal(err)
	}
}
