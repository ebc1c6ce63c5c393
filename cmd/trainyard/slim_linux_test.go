package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// ancestor prints the program that looks after the user's command, which is started by a shell that it started, and its size where it can be
// seen: on Slurm the job may not look into that program, nor at its file.
const ancestor = `parent=$(cut -d' ' -f4 /proc/$PPID/stat) && tr '\0' '\n' </proc/$parent/cmdline | head -n 1; stat -L -c %s /proc/$parent/exe || true`

// muchSmaller is what the small program takes less than; this one has 40 MB and more.
const muchSmaller = 15 << 20

func TestEnginesStartTheSmallProgram(t *testing.T) {
	conf, kubeconfig := os.Getenv("TRAINYARD_TEST_SLURM_CONF"), os.Getenv("TRAINYARD_TEST_KUBECONFIG")
	if conf == "" {
		leftOut(t, "Slurm", "test/engines/slurm/up.sh")
	} else {
		t.Run("Slurm", func(t *testing.T) {
			l := newLab(t)
			l.cli("compute", "attach", "-n", "hpc", "--type", "slurm", "--conf", conf, "-o", "none")
			l.startsSmall("hpc", filepath.Join(l.data, "programs")+"/")
		})
	}
	if kubeconfig == "" {
		leftOut(t, "Kubernetes", "test/engines/kube/up.sh")
	} else {
		t.Run("Kubernetes", func(t *testing.T) {
			p := kubePlace(t, kubeconfig)
			p.lab.startsSmall(p.compute, "/trainyard/bin/")
		})
	}
}

// startsSmall runs a job and looks at which program looked after it.
func (l *lab) startsSmall(compute, folder string) {
	l.t.Helper()
	l.submit("small", compute, ancestor)
	l.until("small", trainyard.JobCompleted)
	path, rest, _ := strings.Cut(strings.TrimSpace(l.log("small")), "\n")
	size, err := strconv.Atoi(strings.TrimSpace(rest))
	if info, here := os.Stat(path); here == nil {
		size, err = int(info.Size()), nil
	}
	if !strings.HasPrefix(path, folder) || err != nil || size > muchSmaller {
		l.t.Errorf("%s has %d bytes (%v), want a small program in %s", path, size, err, folder)
	}
}
