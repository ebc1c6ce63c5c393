// Package slurm speaks to Slurm for the target and the fleet of that name: settings and what they may hold, submitting, the queue, reasons in
// words, and the files that nodes see. There are three ways in: Slurm's own commands (sbatch, squeue, scancel, scontrol, sacct, sinfo) here,
// the same commands and the files on a login node over SSH, and slurmrestd. Commands work with every version since 20.02, the service with
// its API v0.0.38 (Slurm 22.05 to 23.11). It knows nothing of tasks or machines.
package slurm

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Settings say where jobs go and how Slurm is reached. The zero value is right where Slurm's commands are in PATH and its defaults do.
type Settings struct {
	Partition   string   `json:"partition,omitempty"`
	Account     string   `json:"account,omitempty"`
	QOS         string   `json:"qos,omitempty"`
	Constraint  string   `json:"constraint,omitempty"` // features that nodes must have, as Slurm writes them: "a100&nvlink"
	Reservation string   `json:"reservation,omitempty"`
	TimeLimit   string   `json:"timeLimit,omitempty"` // as Slurm writes it: "90", "12:00:00", "2-00:00:00"
	Sbatch      []string `json:"sbatch,omitempty"`    // further #SBATCH lines, without that word: "--mail-type=FAIL"
	Commands    string   `json:"commands,omitempty"`  // folder of Slurm's commands, here and on the nodes; default: they are in PATH
	ConfPath    string   `json:"confPath,omitempty"`  // of slurm.conf, for SLURM_CONF
	Folder      string   `json:"folder,omitempty"`    // that the nodes see under the same path
	Exclusive   bool     `json:"exclusive,omitempty"` // whole nodes

	Login *Login `json:"login,omitempty"` // a login node, over SSH: commands, confPath and folder are there
	REST  *REST  `json:"rest,omitempty"`  // slurmrestd
}

var (
	nameText       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.,@:+-]*$`)
	constraintText = regexp.MustCompile(`^[A-Za-z0-9_[(][A-Za-z0-9_.,:=+&|*()\[\]-]*$`)
	timeText       = regexp.MustCompile(`^(?i:unlimited|infinite|\d{1,9}(:\d{1,2}){0,2}|\d{1,6}-\d{1,2}(:\d{1,2}){0,2})$`)
	pathText       = regexp.MustCompile(`^/[A-Za-z0-9_./@:+,=-]*$`)
	lineText       = regexp.MustCompile(`^-(-[A-Za-z][A-Za-z-]*|[A-Za-z])([ =]?[A-Za-z0-9_./@:+,=%&|*()\[\]-]+)?$`)
)

// Validate says what is wrong with s. Nothing that a shell or a batch script could take for more than a value is let through.
func (s *Settings) Validate() error {
	for _, f := range []struct {
		name, value string
		text        *regexp.Regexp
		want        string
	}{
		{"partition", s.Partition, nameText, "a name, or several with commas: gpu,gpu-long"},
		{"account", s.Account, nameText, "a name of letters, digits and _ . -"},
		{"qos", s.QOS, nameText, "a name of letters, digits and _ . -"},
		{"constraint", s.Constraint, constraintText, "features as Slurm writes them: a100&nvlink"},
		{"reservation", s.Reservation, nameText, "a name of letters, digits and _ . -"},
		{"timeLimit", s.TimeLimit, timeText, "minutes, hours:minutes:seconds or days-hours:minutes:seconds: 90, 12:00:00, 2-00:00:00"},
		{"commands", s.Commands, pathText, "the absolute path of a folder: /opt/slurm/bin"},
		{"confPath", s.ConfPath, pathText, "the absolute path of a file: /etc/slurm/slurm.conf"},
		{"folder", s.Folder, pathText, "the absolute path of a folder that all nodes see"},
	} {
		if f.value != "" && (!f.text.MatchString(f.value) || len(f.value) > 1024) {
			return trainyard.Invalid("%s %q cannot be used; it must be %s", f.name, f.value, f.want)
		}
	}
	if len(s.Sbatch) > 100 {
		return trainyard.Invalid("there are %d lines in sbatch, and at most 100 can be used", len(s.Sbatch))
	}
	for _, line := range s.Sbatch {
		if err := checkLine(line); err != nil {
			return err
		}
	}
	return s.checkWay()
}

// checkWay says what is wrong with how Slurm is reached.
func (s *Settings) checkWay() error {
	switch {
	case s.Login != nil && s.REST != nil:
		return trainyard.Invalid("a login node and slurmrestd are two ways to the same Slurm; name one of them")
	case s.Login != nil:
		if err := s.Login.validate(); err != nil {
			return err
		}
		if s.Folder == "" {
			return trainyard.Invalid("folder is missing: name a folder of login node %s that the cluster's nodes see under the same path; "+
				"tasks, this program and logs pass through it", s.Login.Address)
		}
	case s.REST != nil:
		return s.REST.validate(s)
	}
	return nil
}

// CheckServer says whether the cluster's nodes may reach a server at that URL, as far as the settings tell.
func (s *Settings) CheckServer(server string) error {
	u, err := url.Parse(server)
	if err != nil || !trainyard.Loopback(u.Hostname()) {
		return nil
	}
	where := ""
	switch {
	case s.Login != nil:
		where = s.Login.Address
	case s.REST != nil:
		where = s.REST.host()
	}
	if where == "" || trainyard.Loopback(where) {
		return nil
	}
	return trainyard.Invalid("the nodes of the cluster behind %s cannot reach this server at %s, which only this computer can; "+
		"start it with --listen 0.0.0.0:PORT, or say at which URL they reach it (server_url)", where, server)
}

// ours are options that say what a job is; a line of the user's that changed them would make it another.
var ours = []string{"array", "batch", "bcast", "chdir", "clusters", "error", "export", "export-file", "get-user-env", "gid",
	"help", "het-group", "hetjob", "input", "job-name", "nodes", "no-submit", "ntasks", "ntasks-per-node", "output", "parsable", "quiet",
	"requeue", "test-only", "uid", "usage", "version", "wait", "wrap"}

const oursShort = "aDeihJMnNoQVW"

// checkLine refuses what is not one option, and options that are ours. Slurm takes long options by any unambiguous beginning.
func checkLine(line string) error {
	if len(line) > 1024 || !lineText.MatchString(line) {
		return trainyard.Invalid("sbatch line %q cannot be used; it must be one option of sbatch without quotes or other characters "+
			"that a shell acts on: --mail-type=FAIL", line)
	}
	name, long := strings.CutPrefix(line, "--")
	name, _, _ = strings.Cut(strings.ToLower(name), "=")
	name, _, _ = strings.Cut(name, " ")
	taken := !long && strings.ContainsRune(oursShort, rune(line[1]))
	if long {
		taken = slices.ContainsFunc(ours, func(o string) bool { return strings.HasPrefix(o, name) })
	}
	if taken {
		return trainyard.Invalid("sbatch line %q cannot be used: that option is set for each job here; leave the line out", line)
	}
	return nil
}

// Args are the options of sbatch that s stands for.
func (s *Settings) Args() []string {
	var args []string
	for _, o := range []struct{ name, value string }{
		{"partition", s.Partition}, {"account", s.Account}, {"qos", s.QOS}, {"constraint", s.Constraint},
		{"reservation", s.Reservation}, {"time", s.TimeLimit},
	} {
		if o.value != "" {
			args = append(args, "--"+o.name+"="+o.value)
		}
	}
	if s.Exclusive {
		args = append(args, "--exclusive")
	}
	return args
}

// Head is how a batch script begins: with the user's own lines, and with Slurm's commands in PATH.
func (s *Settings) Head() string {
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	for _, line := range s.Sbatch {
		fmt.Fprintf(&b, "#SBATCH %s\n", line)
	}
	if s.Commands != "" {
		fmt.Fprintf(&b, "PATH=%s:$PATH\n", Quote(s.Commands))
	}
	return b.String()
}

// Client is the way to the Slurm that s names. It asks for nothing before it is asked. In dir, unless it is "", the host key of a login node
// is kept that the settings do not name: the first that is shown.
func (s *Settings) Client(dir string) *Client {
	switch {
	case s.REST != nil:
		service := newService(*s)
		return &Client{service, disk{}, service.http.CloseIdleConnections}
	case s.Login != nil:
		pin := ""
		if dir != "" {
			pin = filepath.Join(dir, "host-key")
		}
		r := newRemote(*s.Login, pin)
		return &Client{&commands{r, s.Commands, s.ConfPath}, r, r.close}
	}
	return &Client{&commands{here{}, s.Commands, s.ConfPath}, disk{}, func() {}}
}

// CheckFolder says whether Slurm and batch scripts can take the path of a folder as it is.
func CheckFolder(dir string) error {
	if !filepath.IsAbs(dir) || !pathText.MatchString(dir) {
		return trainyard.Invalid("folder %q cannot be handed to Slurm: use an absolute path of letters, digits and _ . / @ : + , = -, "+
			"which all nodes see (setting folder)", dir)
	}
	return nil
}

// Quote makes s one word of a shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
