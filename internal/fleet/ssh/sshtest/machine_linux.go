package sshtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options are what is special about a machine. The zero value is an ordinary one.
type Options struct {
	Home     string   // mount options for a tmpfs as the user's home: "size=2m", "noexec"; empty: a folder of this computer's disk
	ReadOnly bool     // nothing can be written to the user's home
	Cgroups  bool     // show this computer's cgroups
	Config   []string // lines for sshd_config
	Root     bool     // the user is root, who logs in with the key alone
	Shell    string   // the user's login shell; empty: /bin/sh
	Uname    string   // what uname says that the computer is: "Linux aarch64"; empty: what it is
}

// Machine is a computer that runs sshd.
type Machine struct {
	Address  string // IPv4
	Address6 string
	Port     int
	User     string
	Password string
	Key      string // private, in OpenSSH's format; the user may log in with it
	HostKey  string // public, in the format of authorized_keys
	HomeDir  string // as the machine sees it

	o       Options
	dir     string
	link    string // this end of its cable
	gateway string // address of this end
	first   *process
}

// The user of every machine that is not root's. The hash is of the password, made with crypt(3).
const (
	userName     = "yard"
	userID       = 61234
	password     = "open sesame"
	passwordHash = "$6$trainyard$SnV17p8Q/82YbUQK.8nPWTTzsnNfB9BTjp80US.Hw1WOhb248CpTqWk2yoOW5gmU7OJIabZlGCLkcbxCM1tgo0"
)

// New starts a machine that lives as long as the test. It skips the test where there can be none, and says what is missing.
func New(t testing.TB, o Options) *Machine {
	t.Helper()
	if why := Missing(); why != "" {
		if os.Getenv(Require) == "1" {
			t.Fatalf("%s=1 and there can be no SSH machines: %s", Require, why)
		}
		t.Skipf("not run: %s (as root: %s)", why, Install)
	}
	m := &Machine{Port: 2222, User: userName, Password: password, HomeDir: "/home/" + userName, o: o, dir: t.TempDir()}
	if o.Root {
		m.User, m.Password, m.HomeDir = "root", "", "/root"
	}
	m.furnish(t)
	t.Cleanup(func() {
		m.first.kill()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			t.Logf("sshd of %s said:\n%s", m.Address, log[max(0, len(log)-3000):])
		}
	})
	m.boot(t)
	return m
}

func Missing() string {
	if os.Getuid() != 0 {
		return "SSH machines are made by root"
	}
	for _, tool := range []string{"/usr/sbin/sshd", "ip", "nsenter", "mount", "hostname"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "there is no " + tool
		}
	}
	return ""
}

// furnish writes what is on the machine's disk.
func (m *Machine) furnish(t testing.TB) {
	t.Helper()
	var public string
	m.Key, public = newKey(t)
	home := filepath.Join(m.dir, "home", userName)
	if m.o.Root {
		home = filepath.Join(m.dir, "root")
	}
	must(t, os.MkdirAll(filepath.Join(m.dir, "home"), 0o755))
	must(t, os.MkdirAll(filepath.Join(home, ".ssh"), 0o700))
	must(t, os.Chmod(filepath.Join(m.dir, "home"), 0o755))
	must(t, os.WriteFile(filepath.Join(home, ".ssh", "authorized_keys"), []byte(public+"\n"), 0o600))
	if !m.o.Root {
		for _, p := range []string{home, filepath.Join(home, ".ssh"), filepath.Join(home, ".ssh", "authorized_keys")} {
			must(t, os.Chown(p, userID, userID))
		}
	}
	shell := m.o.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	for file, line := range map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%d::%s:%s\n", userName, userID, userID, "/home/"+userName, shell),
		"group":  fmt.Sprintf("%s:x:%d:\n", userName, userID),
		"shadow": fmt.Sprintf("%s:%s:19000:0:99999:7:::\n", userName, passwordHash),
	} {
		data, err := os.ReadFile("/etc/" + file)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(m.dir, file), append(data, line...), 0o644))
	}
	if m.o.Uname != "" {
		system, processor, _ := strings.Cut(m.o.Uname, " ")
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = -s ] && echo %s || echo %s\n", system, processor)
		must(t, os.WriteFile(filepath.Join(m.dir, "uname"), []byte(script), 0o755))
	}
	config := append([]string{"Port 2222", "HostKey " + m.dir + "/hostkey", "PidFile none", "UsePAM no", "UseDNS no", "MaxStartups 100"}, m.o.Config...)
	must(t, os.WriteFile(filepath.Join(m.dir, "sshd_config"), []byte(strings.Join(config, "\n")+"\n"), 0o644))
	m.NewHostKey(t)
}

// NewHostKey makes the machine show another host key from its next boot on.
func (m *Machine) NewHostKey(t testing.TB) {
	t.Helper()
	var private string
	private, m.HostKey = newKey(t)
	must(t, os.WriteFile(filepath.Join(m.dir, "hostkey"), []byte(private), 0o600))
}

// initScript is the machine's first process until sshd takes its place. $1 is the machine's folder, $2 options for its home's tmpfs, $3 its name;
// $4 and $5 are not empty if cgroups are shown and the home cannot be written.
const initScript = `set -eu
mount --make-rprivate /
mount -t proc proc /proc
for f in passwd group shadow; do mount --bind "$1/$f" "/etc/$f"; done
[ ! -e "$1/uname" ] || mount --bind "$1/uname" "$(command -v uname)"
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
[ ! -d "$1/root" ] || mount --bind "$1/root" /root
mount --bind "$1/home" /home
if [ -n "$2" ]; then
	mount -t tmpfs -o "mode=700,uid=$(stat -c %u "/home/yard"),$2" tmpfs /home/yard
	mkdir -m 700 /home/yard/.ssh
	cp -p "$1/home/yard/.ssh/authorized_keys" /home/yard/.ssh/ 
	chown -R --reference=/home/yard /home/yard/.ssh
fi
[ -z "$5" ] || mount -o remount,ro,bind /home
[ -n "$4" ] || mount -t tmpfs tmpfs /sys/fs/cgroup
hostname "$3"
ip link set lo up
read -r connected
exec /usr/sbin/sshd -D -e -f "$1/sshd_config"
`

// boot starts the machine and plugs it in.
func (m *Machine) boot(t testing.TB) {
	t.Helper()
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x", mathrand.Uint32(), mathrand.Uint64N(1<<48))
	must(t, os.WriteFile(filepath.Join(m.dir, "boot_id"), []byte(id+"\n"), 0o444))
	yes := func(b bool) string { return map[bool]string{true: "yes"}[b] }
	cmd := exec.Command("/bin/sh", "-c", initScript, "sh", m.dir, m.o.Home, "machine", yes(m.o.Cgroups), yes(m.o.ReadOnly))
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	in, err := cmd.StdinPipe()
	must(t, err)
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
	m.first, err = start(cmd)
	must(t, err)
	m.plug(t)
	_, err = io.WriteString(in, "connected\n")
	must(t, err)
	m.awaitSSHD(t)
}

// awaitSSHD waits until sshd answers.
func (m *Machine) awaitSSHD(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(m.Address, fmt.Sprint(m.Port)), time.Second)
		if err == nil {
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, err = io.ReadFull(c, make([]byte, 4))
			c.Close()
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) || m.first.ended() {
			log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			t.Fatalf("sshd of %s does not answer: %v\n%s", m.Address, err, log)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Run runs a shell script on the machine as root, without sshd, and returns what it printed.
func (m *Machine) Run(t testing.TB, script string) string {
	t.Helper()
	out, err := m.Command(0, script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Command is a shell script on the machine, run as a user, not started yet. It ends with the machine.
func (m *Machine) Command(uid int, script string) *exec.Cmd {
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(m.first.pid), "-m", "-u", "-n", "-p", "-S", fmt.Sprint(uid), "-G", fmt.Sprint(uid), "--",
		"/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + m.HomeDir}
	return cmd
}

// UID is the user's.
func (m *Machine) UID() int {
	if m.o.Root {
		return 0
	}
	return userID
}

// Root is the path of the machine's root folder from outside; Home that of the user's home.
func (m *Machine) Root() string { return filepath.Join("/proc", fmt.Sprint(m.first.pid), "root") }

// Home is the path of the user's home folder from outside.
func (m *Machine) Home() string { return filepath.Join(m.Root(), m.HomeDir) }

// Cut pulls the cable; Mend puts it back.
func (m *Machine) Cut(t testing.TB) { t.Helper(); m.Run(t, "ip link set eth0 down") }

// Mend puts the cable back.
func (m *Machine) Mend(t testing.TB) {
	t.Helper()
	m.Run(t, "ip link set eth0 up; ip -6 addr add "+m.Address6+"/64 dev eth0 nodad 2>/dev/null || true")
}

// Off ends the machine and every process on it at once; On boots it again, with the same disk and address.
func (m *Machine) Off() { m.first.kill() }

// On boots the machine.
func (m *Machine) On(t testing.TB) { t.Helper(); m.boot(t) }

// Processes lists the command lines on the machine, but for sshd's own.
func (m *Machine) Processes(t testing.TB) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(m.Run(t, `for p in /proc/[0-9]*; do [ "$p" = /proc/$$ ] || { tr '\0' ' ' <$p/cmdline; echo; } 2>/dev/null; done`)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "sshd") && !strings.HasPrefix(line, "/usr/sbin/sshd") && !strings.HasPrefix(line, "tr ") {
			out = append(out, line)
		}
	}
	return out
}

// newKey makes a key pair, as OpenSSH writes it.
func newKey(t testing.TB) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	must(t, err)
	p, err := ssh.NewPublicKey(pub)
	must(t, err)
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p)))
}

// NewKey makes a private key that no machine knows.
func NewKey(t testing.TB) string {
	t.Helper()
	private, _ := newKey(t)
	return private
}

func tool(t testing.TB, run func() ([]byte, error)) {
	t.Helper()
	if out, err := run(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Without is a folder with links to all programs of this computer but those whose names begin so.
func Without(t testing.TB, prefix string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"/usr/bin", "/bin"} {
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) {
				_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())) // the second /bin is the first
			}
		}
	}
	return dir
}
