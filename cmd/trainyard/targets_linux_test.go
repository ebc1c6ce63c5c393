package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
	"github.com/trainyard/trainyard/internal/stage"
)

// One suite for every kind of target: the files in testdata/targets, submitted as they are, with nothing set but where they run (and, where
// tasks run in containers, the image). docs/targets.md is what came of it: see tableVar.

// tableVar names the file to write the table into.
const tableVar = "TRAINYARD_TARGETS_TABLE"

// place is a target as the suite sees it.
type place struct {
	name    string            // for people
	engine  string            // whose machines it has: places of one engine take turns
	lab     *lab              // the server that has it
	compute string            // that jobs run on
	limited string            // one with a memory limit below 6 GiB; "": compute
	low     string            // a low-priority compute of a full location; "" is in lacks
	paid    string            // a dedicated one of the same location
	crowds  []string          // --set of a job that leaves no room for what take wants
	take    func(l *lab)      // nil: a job on paid takes low's room; else this does, and gives it back
	sets    []string          // --set of every job
	lacks   map[string]string // what it cannot have, and why
}

// check is one thing that every target must do.
type check struct {
	name, doc string
	hold      func(l *lab, p *place, job string)
	refused   string // what is said where the job is submitted to a place that lacks it and refuses it; "": that cannot be tried
}

var checks = []check{
	{"hello", "it runs, its log and `./outputs` are kept", checkHello, ""},
	{"data", "inputs and outputs of every type", checkData, ""},
	{"environment", "a conda file with a package from PyPI", checkEnvironment, ""},
	{"build", "an image from a Dockerfile, built once", checkBuild, "is a Docker build context, and "},
	{"gang", "two nodes that know of each other", checkGang, "is one machine: leave it out, or name a cluster"},
	{"timeout", "`limits.timeout` ends it, and says so", checkTimeout, ""},
	{"cancel", "it is canceled while it runs", checkCancel, ""},
	{"failure", "its exit code is told", checkFailure, ""},
	{"memory", "over its memory limit: said as such", checkMemory, ""},
	{"preemption", "it gives way, and goes on from its checkpoint", checkPreemption, ""},
}

func TestTheSameJobFilesRunOnEveryTarget(t *testing.T) {
	places := placesOf(t)
	results, engines := map[string]map[string]string{}, map[string][]*place{}
	for _, p := range places {
		results[p.name] = map[string]string{}
		engines[p.engine] = append(engines[p.engine], p)
	}
	t.Run("on", func(t *testing.T) {
		for engine, places := range engines {
			t.Run(engine, func(t *testing.T) {
				t.Parallel()
				for _, p := range places {
					p.holdAll(t, results[p.name])
				}
			})
		}
	})
	if path := os.Getenv(tableVar); path != "" {
		if err := os.WriteFile(path, []byte(targetsPage(places, results)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// holdAll makes every check of a place, and tells what came of each.
func (p *place) holdAll(t *testing.T, results map[string]string) {
	for _, c := range checks {
		if why := p.lacks[c.name]; why != "" {
			results[c.name] = why
			if c.refused != "" {
				t.Run(p.name+"/no "+c.name, func(t *testing.T) { c.refuse(p.lab.in(t), p) })
			}
			continue
		}
		t.Run(p.name+"/"+c.name, func(t *testing.T) {
			results[c.name] = "fails"
			c.hold(p.lab.in(t), p, c.name+"-"+strings.ReplaceAll(p.name, " ", "-"))
			if !t.Failed() {
				results[c.name] = "✓"
			}
		})
	}
}

// refuse has a place that lacks something refuse a job that needs it when it is created, and say so.
func (c *check) refuse(l *lab, p *place) {
	args := []string{"job", "create", "-f", filepath.Join("testdata", "targets", c.name+".yml"), "--set", "compute=azureml:" + p.compute}
	if out, err := l.try(args...); err == nil || !strings.Contains(out+err.Error(), c.refused) {
		l.t.Errorf("%q says %v: %s; want %q", args, err, out, c.refused)
	}
}

// suiteServer is a server with a wide and a narrow location, and clusters in both. dockerHost is the engine that its nodes find.
func suiteServer(t *testing.T, dockerHost string) *lab {
	t.Helper()
	config := "locations:\n  - name: local\n    approved: [all]\n  - name: narrow\n    capacity: {nodes: 1}\n"
	if conf := engineAt("TRAINYARD_TEST_SLURM_CONF"); conf != "" {
		for name, capacity := range map[string]string{"pilots": "{}", "narrow-pilots": "{nodes: 1}"} {
			config += "  - name: " + name + "\n    driver: slurm\n    settings: {confPath: " + conf + "}\n    capacity: " + capacity + "\n"
		}
	}
	l := newLabWith(t, config, "DOCKER_HOST="+dockerHost)
	l.cluster("cpu-cluster", "Standard_F2s_v2", 2, 30)
	l.rivals("narrow")
	return l
}

// rivals makes two clusters in a location with room for one node: the paid one takes it from the low one.
func (l *lab) rivals(location string) (low, paid string) {
	l.t.Helper()
	for suffix, tier := range map[string]string{"-low": "low_priority", "-paid": "dedicated"} {
		l.cli("compute", "create", "-n", location+suffix, "--type", "amlcompute", "--size", "Standard_F2s_v2", "--tier", tier, "--location", location,
			"--max-instances", "1", "--idle-time-before-scale-down", "1", "-o", "none")
	}
	return location + "-low", location + "-paid"
}

// placesOf are the targets that can be had here: those of this machine, and an engine for each variable that leads to one.
func placesOf(t *testing.T) []*place {
	const (
		engineless = "its machines have no container engine in this run: a job with a build context is refused when it is created"
		unlimited  = "not limited: tasks share the computer"
		fixed      = "its machines are never taken away by us"
	)
	conf := engineAt("TRAINYARD_TEST_SLURM_CONF")
	if conf != "" {
		t.Cleanup(func() { clearSlurm(t, conf) }) // after the server's end: pilots whose server is gone wait for it
	}
	l := suiteServer(t, "unix:///nowhere")
	places := []*place{
		{name: "local", engine: "processes", lab: l, compute: "local", lacks: map[string]string{"build": engineless, "memory": unlimited, "preemption": fixed}},
		{name: "cluster", engine: "processes", lab: l, compute: "cpu-cluster", low: "narrow-low", paid: "narrow-paid", lacks: map[string]string{"build": engineless}},
		{name: "serverless", engine: "processes", lab: l, compute: "serverless", sets: []string{"resources.instance_type=Standard_F2s_v2"}, low: "narrow-low", paid: "narrow-paid", lacks: map[string]string{"build": engineless}},
	}
	if host := engineAt("TRAINYARD_TEST_DOCKER_HOST"); host != "" {
		image := "environment.image=" + os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE")
		places = append(places, &place{name: "docker", engine: "docker", lab: suiteServer(t, host), compute: "cpu-cluster", sets: []string{image}, low: "narrow-low", paid: "narrow-paid"})
	} else {
		leftOut(t, "Docker engine", `eval "$(test/engines/docker/up.sh DIR)"`)
	}
	if conf != "" {
		l.cli("compute", "attach", "-n", "hpc", "--type", "slurm", "--conf", conf, "-o", "none")
		l.cli("compute", "attach", "-n", "hpc-low", "--type", "slurm", "--conf", conf, "--partition", "low", "-o", "none")
		places = append(places, &place{name: "slurm", engine: "slurm", lab: l, compute: "hpc", low: "hpc-low", lacks: map[string]string{"build": engineless}, take: func(l *lab) { takeSlurm(l, conf) }})
		if login := os.Getenv("TRAINYARD_TEST_SLURM_LOGIN"); login != "" {
			l.attachBySSH("hpc-ssh", conf, login, "main")
			l.attachBySSH("hpc-ssh-low", conf, login, "low")
			places = append(places, &place{name: "slurm over ssh", engine: "slurm", lab: l, compute: "hpc-ssh", low: "hpc-ssh-low", lacks: map[string]string{"build": engineless}, take: func(l *lab) { takeSlurm(l, conf) }})
		} else {
			leftOut(t, "login node of Slurm", "apt-get install openssh-server")
		}
		l.cli("compute", "create", "-n", "pilots", "--type", "amlcompute", "--size", "Standard_F2s_v2", "--location", "pilots", "--max-instances", "2", "--idle-time-before-scale-down", "30", "-o", "none")
		low, paid := l.rivals("narrow-pilots")
		places = append(places, &place{name: "slurm pilots", engine: "slurm", lab: l, compute: "pilots", low: low, paid: paid, lacks: map[string]string{"build": engineless}})
	} else {
		leftOut(t, "Slurm", `eval "$(test/engines/slurm/up.sh DIR)"`)
	}
	if file := engineAt("TRAINYARD_TEST_KUBECONFIG"); file != "" {
		places = append(places, kubePlace(t, file))
	} else {
		leftOut(t, "Kubernetes", `eval "$(test/engines/kube/up.sh DIR)"`)
	}
	if why := sshtest.Missing(); why == "" {
		m := sshtest.New(t, sshtest.Options{})
		key := l.file("id_machine", m.Key)
		offline(t, m)
		l.cli("compute", "attach", "-n", "lab-pc", "--type", "virtualmachine", "--address", m.Address, "--ssh-port", strconv.Itoa(m.Port), "--admin-username", m.User,
			"--ssh-private-key-file", key, "-o", "none")
		places = append(places, &place{name: "ssh machine", engine: "ssh", lab: l, compute: "lab-pc",
			lacks: map[string]string{"build": engineless, "gang": "one machine is one node", "memory": unlimited, "preemption": fixed}})
	} else {
		leftOut(t, "SSH machine ("+why+")", sshtest.Install)
	}
	return places
}

// kubePlace is a cluster whose pods reach a server of their own at this machine's end of their network.
func kubePlace(t *testing.T, kubeconfig string) *place {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, port, _ := strings.Cut(freeAddr(t), ":")
	cluster := newCluster(t, kubeconfig)
	namespace := cluster.namespace(t)
	l := &lab{t: t, bin: bin, data: filepath.Join(dir, "data"), config: filepath.Join(dir, "config"), addr: "0.0.0.0:" + port}
	l.start()
	t.Cleanup(l.clean)
	const image = "trainyard.test/base:1" // as test/engines/kube/images.sh makes it
	wide := cluster.wide(t)
	l.cli("compute", "attach", "-n", "k8s", "--type", "kubernetes", "--kubeconfig", kubeconfig, "--namespace", namespace, "-o", "none",
		"--server-url", "https://198.18.0.1:"+port, "--set", "image="+image, "--set", "instance_types.tight.resources.limits.memory=256Mi", "--set", "instance_types.tight.resources.requests.memory=256Mi",
		"--set", "instance_types.wide.resources.requests.cpu="+wide)
	return &place{name: "kubernetes", engine: "kubernetes", lab: l, compute: "k8s", low: "k8s", sets: []string{"environment.image=" + image},
		crowds: []string{"resources.instance_type=wide"}, lacks: map[string]string{"build": "images are not built for Kubernetes: a job with a build context is refused when it is created, with what to do"}, take: func(l *lab) { takeKubernetes(l, cluster, wide) }}
}

// offline lets a machine without a network build the suites' environments: pip on it finds the packages in a folder.
func offline(t *testing.T, m *sshtest.Machine, more ...string) {
	t.Helper()
	wheels := t.TempDir()
	if out, err := exec.Command("python3", append([]string{"-m", "pip", "download", "--quiet", "--dest", wheels, "six==1.16.0", "pip", "setuptools<81", "wheel", "uv==" + stage.UVVersion}, more...)...).CombinedOutput(); err != nil {
		t.Fatalf("download the suite's packages: %v %s", err, out)
	}
	m.Run(t, "chmod a+rx "+filepath.Dir(wheels)+" "+wheels+" && su "+m.User+" -s /bin/sh -c 'mkdir -p ~/.config/pip && printf \"[global]\\nno-index = true\\nfind-links = "+wheels+"\\n\" > ~/.config/pip/pip.conf'")
}

// engineAt is what a variable says of where an engine is, if the table is to be made. Else the engines are left to their drivers' tests, which
// stop and break them.
func engineAt(variable string) string {
	if os.Getenv(tableVar) == "" {
		return ""
	}
	return os.Getenv(variable)
}

// leftOut says which engine is not there, and how to have it. In CI the table has them all.
func leftOut(t *testing.T, what, command string) {
	t.Helper()
	if os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" && os.Getenv(tableVar) != "" {
		t.Errorf("there is no %s for the suite; to have it: %s", what, command)
		return
	}
	t.Logf("left out: %s; to have it: %s", what, command)
}

// run submits one of the suite's files.
func (l *lab) run(p *place, file, compute, job string, sets ...string) {
	l.t.Helper()
	args := []string{"job", "create", "-f", filepath.Join("testdata", "targets", file+".yml"), "-n", job, "-o", "none", "--set", "compute=azureml:" + compute}
	for _, s := range p.sets {
		if compute == "serverless" || !strings.HasPrefix(s, "resources.instance_type=") {
			args = append(args, "--set", s)
		}
	}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	l.cli(args...)
}

// files are a job's downloaded files by their last name, and its user logs as one text.
func (l *lab) files(job string) (files map[string]string, log string) {
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "download-"+job)
	l.cli("job", "download", "-n", job, "--all", "--download-path", dir)
	files = map[string]string{}
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[d.Name()] = string(data)
		if strings.HasPrefix(d.Name(), "std_log") {
			names = append(names, d.Name())
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	slices.Sort(names)
	for _, n := range names {
		log += files[n]
	}
	return files, log
}

// targetsPage is docs/targets.md.
func targetsPage(places []*place, results map[string]map[string]string) string {
	var b strings.Builder
	b.WriteString("# Targets\n\nThe same job files (`cmd/trainyard/testdata/targets`) on every kind of target, as the last run of the suite had it. Made by\n" +
		"`make targets` with real engines; do not edit.\n\n|  |")
	for _, p := range places {
		b.WriteString(" " + p.name + " |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(places)) + "\n")
	var notes []string
	for _, c := range checks {
		fmt.Fprintf(&b, "| **%s**: %s |", c.name, c.doc)
		for _, p := range places {
			r := results[p.name][c.name]
			if r != "✓" && r != "fails" {
				i := slices.Index(notes, r)
				if i < 0 {
					notes, i = append(notes, r), len(notes)
				}
				r = fmt.Sprintf("– (%d)", i+1)
			}
			b.WriteString(" " + r + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, n := range notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, n)
	}
	return b.String()
}

// attachBySSH attaches Slurm through its login node. login is what the engine's script says of it, as JSON.
func (l *lab) attachBySSH(name, conf, login, partition string) {
	l.t.Helper()
	var at struct {
		Login struct {
			Address    string `json:"address"`
			Port       int    `json:"port"`
			User       string `json:"user"`
			PrivateKey string `json:"privateKeyFile"`
		} `json:"login"`
	}
	if err := json.Unmarshal([]byte(login), &at); err != nil {
		l.t.Fatal(err)
	}
	l.cli("compute", "attach", "-o", "none", "--file", l.file(name+".yml", fmt.Sprintf(`
name: %s
type: slurm
partition: %s
address: %s
folder: %s
conf: %s
ssh_settings: {admin_username: %s, ssh_port: %d, ssh_private_key_file: %s}
`, name, partition, at.Login.Address, l.t.TempDir(), conf, at.Login.User, at.Login.Port, at.Login.PrivateKey)))
}
