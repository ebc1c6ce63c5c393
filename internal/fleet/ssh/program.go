package ssh

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
)

// stallTime is how long a copy may go without a byte taken.
const stallTime = 2 * time.Minute

// program is the one program, for some system.
type program struct {
	path string
	size int64
	sum  string // SHA-256
}

// openProgram opens the program for a system: own, the path of the one that runs here, where that is the same, else the one beside it that
// "make cross" makes. The error for users says which is missing, or is one for another system.
func openProgram(own, goos, arch string) (*os.File, error) {
	path := own
	if goos != runtime.GOOS || arch != runtime.GOARCH {
		path = filepath.Join(filepath.Dir(own), "trainyard-"+goos+"-"+arch)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && path != own {
		return nil, there("no program for "+goos+"-"+arch, trainyard.Errorf(trainyard.CodeUnsupported,
			"the machine needs the program for %s-%s, and the server has none: \"make cross\" makes bin/%s; the server looks for it as %s",
			goos, arch, filepath.Base(path), path))
	}
	if err != nil {
		return nil, fmt.Errorf("open the program for machines: %w", err)
	}
	if path == own {
		return f, nil
	}
	if e, err := elf.NewFile(f); err != nil || e.Machine != processors[arch] {
		f.Close()
		return nil, there("no program for "+goos+"-"+arch, trainyard.Errorf(trainyard.CodeUnsupported,
			"the machine needs the program for %s-%s, and %s is something else: \"make cross\" makes bin/%s, and it goes there", goos, arch, path, filepath.Base(path)))
	}
	return f, nil
}

// processors are what files of programs for Linux call those that machines may have.
var processors = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// program is the program for a system as it is now.
func (d *Driver) program(goos, arch string) (program, error) {
	f, err := openProgram(d.env.Binary, goos, arch)
	if err != nil {
		return program{}, err
	}
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return program{}, fmt.Errorf("read the program for machines: %w", err)
	}
	return program{f.Name(), size, hex.EncodeToString(hash.Sum(nil))}, nil
}

// upload copies the program to a file in the machine's bin folder. The name is relative to the home folder, where sshd starts commands, and
// holds nothing that login shells could read in different ways.
func (p program) upload(ctx context.Context, c *ssh.Client, part string) error {
	f, err := os.Open(p.path)
	if err != nil {
		return fmt.Errorf("open the program for machines: %w", err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(stallTime, cancel)
	defer stall.Stop()
	_, said, err := execute(ctx, c, "cat > .trainyard/bin/"+part, moving{f, func() { stall.Reset(stallTime) }})
	if _, exited := errors.AsType[*ssh.ExitError](err); exited {
		return &scriptError{"copy the program", lastLine(said)}
	}
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	return nil
}

// moving calls moved whenever it is read.
type moving struct {
	io.Reader
	moved func()
}

func (m moving) Read(p []byte) (int, error) {
	m.moved()
	return m.Reader.Read(p)
}
