package store

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A full disk and a read-only one are real ones: small file systems in a mount namespace of the child's own.
func TestFullAndReadOnlyDisks(t *testing.T) {
	dir := t.TempDir()
	run := func(script string) (string, error) {
		cmd := exec.Command("/bin/sh", "-ec", script)
		cmd.Env = append(os.Environ(), "DIR="+dir, "BIN="+os.Args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(`mount -t tmpfs -o size=1m none "$DIR"`); err != nil {
		t.Skipf("needs a kernel that lets this user mount a tmpfs in a user namespace (sysctl kernel.unprivileged_userns_clone=1): %v %s", err, out)
	}
	t.Run("full", func(t *testing.T) {
		out, err := run(`mount -t tmpfs -o size=4m none "$DIR"; head -c 1000000 /dev/zero >"$DIR/ballast"; ` + childVar + `=fill=sqlite:$DIR/trainyard.db exec "$BIN"`)
		if err != nil || out != "ok\n" {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("full from the start", func(t *testing.T) {
		out, err := run(`mount -t tmpfs -o size=64k none "$DIR"; head -c 60000 /dev/zero >"$DIR/ballast"; ` + childVar + `=open=sqlite:$DIR/trainyard.db exec "$BIN"`)
		if err == nil || !strings.Contains(out, "disk that holds "+dir+"/trainyard.db is full") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		out, err := run(`mount -t tmpfs -o size=1m,ro none "$DIR"; ` + childVar + `=open=sqlite:$DIR/trainyard.db exec "$BIN"`)
		if err == nil || !strings.Contains(out, "database "+dir+"/trainyard.db cannot be written") || !strings.Contains(out, "--data") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
