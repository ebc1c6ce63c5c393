package blob

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
		cmd.Env = append(os.Environ(), "DIR="+dir, "BIN="+os.Args[0], dirVar+"="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(`mount -t tmpfs -o size=1m none "$DIR"`); err != nil {
		t.Skipf("needs a kernel that lets this user mount a tmpfs in a user namespace (sysctl kernel.unprivileged_userns_clone=1): %v %s", err, out)
	}
	if out, err := run(`mount -t tmpfs -o size=1m none "$DIR"; ` + childVar + `=full exec "$BIN"`); err != nil || out != "ok\n" {
		t.Errorf("on a full disk: %v\n%s", err, out)
	}
	out, err := run(`mount -t tmpfs -o size=1m,ro none "$DIR"; ` + childVar + `=full exec "$BIN"`)
	if err == nil || !strings.Contains(out, "blob folder "+dir+" cannot be written") {
		t.Errorf("on a read-only disk: %v\n%s", err, out)
	}
}
