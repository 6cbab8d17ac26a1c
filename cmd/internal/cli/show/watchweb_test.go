package show

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"mcpwire/cmd/internal/cli/targets"
)

// TestWebAccess shows that the address of the page stays the same, unless another watch has it or
// the user wants another one.
func TestWebAccess(t *testing.T) {
	captures := filepath.Join(t.TempDir(), "captures")
	begin := func(fresh bool) (*webAccess, net.Listener) {
		t.Helper()
		a, err := openWebAccess(captures, fresh)
		if err != nil {
			t.Fatal(err)
		}
		l, err := a.listen(t.Context(), targets.WebHere)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if err := a.save(); err != nil {
			t.Fatal(err)
		}
		return a, l
	}
	first, l := begin(false)
	second, other := begin(false)
	if second.Token != first.Token || other.Addr().String() == l.Addr().String() || second.Port != first.Port {
		t.Errorf("while the port is in use: %+v at %v after %+v at %v", second, other.Addr(), first, l.Addr())
	}
	l.Close()
	third, again := begin(false)
	if third.Token != first.Token || again.Addr().String() != l.Addr().String() {
		t.Errorf("the next time: %+v at %v after %+v at %v", third, again.Addr(), first, l.Addr())
	}
	again.Close()
	path := filepath.Join(filepath.Dir(captures), webAccessName)
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if fresh, _ := begin(true); fresh.Token == first.Token {
		t.Error("--new-token keeps the token")
	}
	if runtime.GOOS == "windows" {
		return
	}
	last, _ := begin(false)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if after, _ := begin(false); after.Token == last.Token {
		t.Error("a token that others could read is used again")
	}
}
