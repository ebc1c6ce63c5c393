package ssh

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// unreached is a fleet in a folder, with a CA file and a program that are only files.
func unreached(t *testing.T, c *Config, dir string) (*Driver, error) {
	t.Helper()
	files := t.TempDir()
	for _, name := range []string{"ca.pem", "trainyard"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := c.Open(t.Context(), fleet.Env{Dir: dir, Server: "http://127.0.0.1:1", CA: filepath.Join(files, "ca.pem"), Binary: filepath.Join(files, "trainyard")})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { d.(*Driver).Close() })
	return d.(*Driver), nil
}

func TestOpenNeedsTheCA(t *testing.T) {
	_, err := (&Config{}).Open(t.Context(), fleet.Env{Dir: t.TempDir(), Name: "lab", Server: "http://127.0.0.1:1"})
	if trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), `"lab"`) {
		t.Errorf("%v", err)
	}
	if err := (&Config{Key: []byte("short")}).Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Errorf("a short key: %v", err)
	}
}

// A record that cannot be read is a machine that would be forgotten: there is no list then.
func TestDamagedRecordIsNoView(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a-1", recordFile), []byte(`{"id`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "half-made"), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := unreached(t, &Config{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := d.Machines(t.Context()); err == nil || !strings.Contains(err.Error(), "a-1") {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "half-made")); !os.IsNotExist(err) {
		t.Errorf("a machine that was only being written down is still there: %v", err)
	}
}

func TestSealedWithAnotherKey(t *testing.T) {
	dir := t.TempDir()
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, keySize) }
	first, err := unreached(t, &Config{Key: key(1)}, dir)
	if err != nil {
		t.Fatal(err)
	}
	name, login := first.folder("a"), &Settings{Address: "127.0.0.1", Port: 9, User: "u", Password: "geheim"}
	if err := first.writeRecord(name, record{ID: "a", State: trainyard.MachineRunning, Touched: true}); err != nil {
		t.Fatal(err)
	}
	if err := first.writeAccess(name, login); err != nil {
		t.Fatal(err)
	}
	if got, err := first.readAccess(name); err != nil || *got != *login {
		t.Errorf("%v, %v", got, err)
	}
	if sealed, _ := os.ReadFile(filepath.Join(dir, name, accessFile)); bytes.Contains(sealed, []byte("geheim")) {
		t.Errorf("not sealed: %q", sealed)
	}
	first.Close()
	second, err := unreached(t, &Config{Key: key(2)}, dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := second.Machines(t.Context())
	if err != nil || len(list) != 1 || list[0].State != trainyard.MachineDead || !strings.Contains(list[0].Note, "another key") {
		t.Errorf("%+v, %v", list, err)
	}
	if gone, err := second.Shrink(t.Context(), []trainyard.NodeID{"a"}); err == nil || len(gone) != 0 {
		t.Errorf("Shrink: %v, %v", gone, err)
	}
}

func TestProgramForAnotherSystem(t *testing.T) {
	d, err := unreached(t, &Config{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if p, err := d.program(runtime.GOOS, runtime.GOARCH); err != nil || p.path != d.env.Binary || p.size != int64(len("trainyard")) {
		t.Errorf("our own: %+v, %v", p, err)
	}
	arch := otherArch()
	other := filepath.Join(filepath.Dir(d.env.Binary), "trainyard-linux-"+arch)
	_, err = d.program("linux", arch)
	if trainyard.CodeOf(err) != trainyard.CodeUnsupported || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), "make cross") {
		t.Errorf("none is there: %v", err)
	}
	for what, machine := range map[string]elf.Machine{"of RISC-V": elf.EM_RISCV, "of this computer": processors[runtime.GOARCH]} {
		writeProgram(t, other, machine)
		if _, err := d.program("linux", arch); trainyard.CodeOf(err) != trainyard.CodeUnsupported || !strings.Contains(err.Error(), other+" is something else") {
			t.Errorf("one %s is there: %v", what, err)
		}
	}
	writeProgram(t, other, processors[arch])
	if p, err := d.program("linux", arch); err != nil || p.path != other || p.size == 0 || len(p.sum) != 64 {
		t.Errorf("one is there: %+v, %v", p, err)
	}
}

// otherArch is a processor that machines may have and this computer has not.
func otherArch() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

// writeProgram makes a file that says it is a program for a processor, and holds no more.
func writeProgram(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	h := elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	data, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestWhatShellsSayIsCutDown(t *testing.T) {
	for said, want := range map[string]string{
		"sh: 12: cannot create /x: Permission denied\n":                                          "cannot create /x: Permission denied",
		"bash: line 7: /home/u/.p: Permission denied":                                            "/home/u/.p: Permission denied",
		"welcome\nsh: 1: printf: printf: I/O error\ncat: write error: No space left on device\n": "cat: write error: No space left on device",
		"": "",
	} {
		if got := lastLine(said); got != want {
			t.Errorf("%q becomes %q, not %q", said, got, want)
		}
	}
}
