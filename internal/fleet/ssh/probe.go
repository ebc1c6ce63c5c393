package ssh

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
)

// Found is what Probe saw of a machine.
type Found struct {
	HostKey     string   // for Settings.HostKey; authorized_keys format
	Fingerprint string   // of the host key, for people
	OS, Arch    string   // as Go names them: linux, amd64
	CPUs        int      // 0 if the machine does not say
	MemoryMB    int64    // MiB; 0 if the machine does not say
	GPUs        []string // a name each
	Home        string
	FreeMB      int64    // MiB on the home folder's disk
	Python      string   // version of python3; empty if there is none
	Engines     []string // container engines that the user may talk to: "docker"
	Notes       []string // what will not work there, in words
}

// leastFreeMB is room for the program and little else.
const leastFreeMB = 200

// Probe connects once and looks whether the computer can be a machine, for when it is attached: binary is the path of the program that would
// be its agent were it like this computer, as in fleet.Env. It leaves nothing there. Settings without a host key believe the first one shown:
// keep what is returned. Errors say in words what to do.
func Probe(ctx context.Context, s Settings, binary string) (Found, error) {
	if err := s.Validate(); err != nil {
		return Found{}, err
	}
	c, key, err := login.Dial(ctx, &s)
	if err != nil {
		return Found{}, err
	}
	defer c.Close()
	a, err := run(ctx, c, map[string]string{"ID": "probe", "NAME": "probe", "CA": ""}, "hello")
	if e, ok := errors.AsType[*scriptError](err); ok && e.doing == "" && bytes.Contains(c.ServerVersion(), []byte("Windows")) {
		return Found{}, unsupported(&s, "Windows") // its shells say at length that they know no sh
	}
	if err != nil {
		return Found{}, thereTrouble(&s, "", err)
	}
	f := Found{HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), Fingerprint: ssh.FingerprintSHA256(key), Home: a.first("home")}
	if f.OS, f.Arch, err = system(&s, a); err != nil {
		return Found{}, err
	}
	program, err := openProgram(binary, f.OS, f.Arch)
	if err != nil {
		return Found{}, err
	}
	program.Close()
	if a, err = run(ctx, c, map[string]string{"ID": "probe", "NAME": "probe", "CA": ""}, "probe"); err != nil {
		return Found{}, thereTrouble(&s, "", err)
	}
	f.CPUs, _ = strconv.Atoi(a.first("cpus"))
	f.MemoryMB = kibToMB(a.first("memory"))
	f.FreeMB, f.GPUs, f.Python = kibToMB(a.first("free")), a["gpu"], a.first("version")
	f.Engines = a["engine"]
	if f.FreeMB < leastFreeMB && a.first("free") != "" {
		return Found{}, there("no room on its disk", trainyard.Conflict(
			"only %d MiB are free in %s of %s; %d MiB are the least for the program and its tasks: free some space there", f.FreeMB, f.Home, s, leastFreeMB))
	}
	if f.Python == "" {
		f.Notes = append(f.Notes, noPython)
	}
	l, _, err := listen(c, 0)
	if err != nil {
		return Found{}, forwardTrouble(&s, err)
	}
	return f, l.Close()
}

const noPython = "no python3 there: jobs whose environment needs Python do not run"

func kibToMB(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n >> 10
}

// system is what programs the machine runs, as Go names it.
func system(s *Settings, a answer) (goos, arch string, err error) {
	name, machine := a.first("os"), a.first("arch")
	switch machine {
	case "x86_64", "amd64":
		arch = "amd64"
	case "aarch64", "arm64":
		arch = "arm64"
	}
	if name == "Linux" && arch != "" {
		return "linux", arch, nil
	}
	if name == "Darwin" {
		name = "macOS"
	}
	return "", "", unsupported(s, name+" on "+machine)
}

// unsupported is the error for a machine that no program is made for; what is its system and processor.
func unsupported(s *Settings, what string) error {
	return there(what+" is not supported", trainyard.Errorf(trainyard.CodeUnsupported,
		"%s runs %s; machines can be 64-bit Linux, on x86_64 or aarch64", s.Endpoint(), what))
}
