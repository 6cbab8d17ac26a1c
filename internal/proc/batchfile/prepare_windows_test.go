package batchfile

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"
)

// helperVar makes the test binary print its arguments as JSON.
const helperVar = "BATCHFILE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) != "" {
		if err := json.NewEncoder(os.Stdout).Encode(os.Args[1:]); err != nil {
			os.Exit(99)
		}
		return
	}
	os.Exit(m.Run())
}

// wine reports whether this is Wine. Its cmd.exe expands variables in %* once more, and does not
// know %% outside of batch files.
func wine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

// install writes a batch file in a new folder. SELF in the script is replaced by the path of the
// test binary.
func install(t *testing.T, name, script string) (path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a & b (ü)")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(script, "SELF", `"`+self+`"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// received runs a command, and returns the arguments that the test binary got.
func received(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	cmd.Env = append(os.Environ(), helperVar+"=1")
	if err := Prepare(cmd); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var args []string
	if err := json.Unmarshal(out, &args); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return args
}

func TestPrepare(t *testing.T) {
	const shim = "@echo off\r\nSELF %*\r\n"
	for _, script := range []struct {
		name, text string
		shim       bool
	}{
		{"shim", shim, true},
		{"arguments one by one", "@echo off\r\nSELF %1 %2 %3 %4 %5 %6 %7 %8 %9\r\n", false},
		{"arguments without their quotes", "@echo off\r\nif \"%~1\"==\"x\" exit /b 9\r\nSELF %*\r\n", false},
	} {
		path := install(t, "srv.cmd", script.text)
		for _, args := range arguments {
			joined := strings.Join(args, "")
			if strings.Contains(joined, "%") && wine() {
				continue
			}
			if strings.Contains(joined, `"`) && !script.shim {
				continue // programs in Go read doubled quotes in their own way
			}
			if len(args) > 9 {
				args = args[:9]
			}
			if got := received(t, exec.Command(path, args...)); !cmp.Equal(got, append([]string{}, args...)) {
				t.Errorf("%s: %s", script.name, cmp.Diff(args, got))
			}
		}
	}
}

// TestPrepareInjects checks that batch files that are not shims do not run a part of an argument as
// a command.
func TestPrepareInjects(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	inject := `&echo>"` + marker + `"&`
	for _, script := range []string{
		"@echo off\r\nSELF %1 %2 %3\r\n",
		"@echo off\r\nif \"%~1\"==\"x\" exit /b 9\r\nSELF %*\r\n",
		"@echo off\r\nset \"A=%~1\"\r\nset \"B=%~2\"\r\nSELF x\r\n",
	} {
		path := install(t, "srv.bat", script)
		for _, args := range [][]string{{`x"y`, inject}, {`"` + inject}, {`"` + inject + `"`, `"`}, {`\"` + inject}, {inject}} {
			cmd := exec.Command(path, args...)
			if err := Prepare(cmd); err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(os.Environ(), helperVar+"=1")
			out, _ := cmd.CombinedOutput() // the script may reject the arguments
			if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%q ran a command in\n%s: %v %s", args, script, err, out)
			}
		}
	}
}

// TestPrepareFinds checks that a batch file is found as by os/exec.
func TestPrepareFinds(t *testing.T) {
	path := install(t, "srv.cmd", "@echo off\r\nSELF %*\r\n")
	dir := filepath.Dir(path)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+";"+os.Getenv("PATH"))
	volume := filepath.VolumeName(dir)
	for _, test := range []struct{ name, dir string }{
		{path, ""},
		{strings.TrimSuffix(path, ".cmd"), ""},
		{filepath.ToSlash(path), ""},
		{"srv", ""},
		{"srv.cmd", ""},
		{`.\srv`, dir},
		{`..\` + filepath.Base(dir) + `\srv.cmd`, dir},
		{strings.TrimPrefix(path, volume), dir},
		{self, ""},
	} {
		cmd := exec.Command(test.name, "a&b", "c d")
		cmd.Dir = test.dir
		if diff := cmp.Diff([]string{"a&b", "c d"}, received(t, cmd)); diff != "" {
			t.Errorf("%s in %q: %s", test.name, test.dir, diff)
		}
	}
}

func TestPrepareUnchanged(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{`C:\no\such.cmd`, `.\such`, "no-such-program", `C:\windows\system32\cmd.exe`} {
		cmd := exec.Command(name, "a&b\n")
		path := cmd.Path
		if err := Prepare(cmd); err != nil || cmd.Path != path || cmd.SysProcAttr != nil {
			t.Errorf("%s: %v, and it starts %s", name, err, cmd.Path)
		}
	}
}

func TestPrepareRejects(t *testing.T) {
	path := install(t, "srv.cmd", "@echo off\r\nSELF %*\r\n")
	if err := Prepare(exec.Command(path, "a\nb")); !errors.Is(err, ErrArguments) {
		t.Errorf("got %v", err)
	}
}
