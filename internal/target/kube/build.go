package kube

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard"
)

// Where things are in a pod. The work folder and the folder of the program are the pod's own and go with it.
const (
	baseDir    = "/trainyard"
	programDir = baseDir + "/bin"
	taskDir    = baseDir + "/task"
	workDir    = baseDir + "/work"
	keptDir    = baseDir + "/program"
	resultFile = "/dev/termination-log"
	taskFile   = "task.json"
)

//go:embed bootstrap.sh
var bootstrap string

// objectName is the name of all objects of a task: the job's name for people, and a hash of group and task.
func objectName(group string, id trainyard.TaskID, job string) string {
	sum := sha256.Sum256([]byte(group + "\x00" + string(id)))
	clean := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, job), "-")
	if len(clean) > 30 {
		clean = strings.Trim(clean[:30], "-")
	}
	return strings.ReplaceAll("ty-"+clean+"-"+hex.EncodeToString(sum[:6]), "--", "-")
}

// jobOf is the job's name in a task's ID.
func jobOf(id trainyard.TaskID) string {
	key := string(id.Job())
	return key[strings.LastIndexByte(key, '/')+1:]
}

// labelValue is text that Kubernetes takes as a label's value, with a hash where something had to change.
func labelValue(text string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, text)
	if clean == text && len(text) <= 63 && strings.Trim(text, "._-") == text {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return strings.Trim(clean[:min(len(clean), 50)], "._-") + "-" + hex.EncodeToString(sum[:4])
}

// plan is a task made into objects.
type plan struct {
	cfg    *Config
	group  string
	name   string
	task   trainyard.Task
	shape  InstanceType
	image  string
	arches []string // of nodes that pods may run on; none for any
	kept   *stock   // what its pods find the program in; nil: it is sent
	order  []byte   // the task as JSON
	ask    bool     // its pods ask what they are to run
	disk   bool     // a volume for what the pod writes
	made   *job     // an earlier start made it; nil: none did
}

// longest is how long a task may be to be sent with the program, by a shell that reads it letter by letter.
const longest = 64 << 10

// sent says whether the task comes with the program, so that it is in nobody's keeping but ours. Others find it in a Secret: those that
// Kubernetes may start again, and those that are long.
func (p *plan) sent() bool {
	if p.made != nil {
		return p.made.sent()
	}
	return !p.serves() && len(p.order) <= longest
}

func (p *plan) ranks() int { return max(1, p.task.Hi-p.task.Lo) }
func (p *plan) gang() bool { return p.ranks() > 1 }

// newPlan works out what is to be made, and refuses what cannot.
func (d *Driver) newPlan(t trainyard.Task) (*plan, error) {
	p := &plan{cfg: d.cfg, group: d.group, name: d.nameOf(t.ID), task: t, image: d.cfg.Image}
	var err error
	if p.shape, err = d.cfg.instanceType(t.InstanceType); err != nil {
		return nil, &trainyard.ClassError{Class: trainyard.ClassEnvironment, Err: err}
	}
	if e := t.Environment; e != nil {
		if e.Context != "" {
			return nil, &trainyard.ClassError{Class: trainyard.ClassEnvironment, Err: trainyard.Errorf(trainyard.CodeUnsupported,
				"%s has a build context, and images are not built for Kubernetes; build it, push it to a registry that the cluster "+
					"reaches, and name it as the environment's image", e.Words())}
		}
		if e.Image != "" {
			p.image = e.Image
		}
	}
	if p.image == "" {
		return nil, &trainyard.ClassError{Class: trainyard.ClassEnvironment, Err: trainyard.Invalid(
			"the job's environment has no image, and the compute has no default one; name an image in either")}
	}
	p.arches, p.kept = d.program.arches(), d.keptFor(p)
	p.ask = d.mayAsk(p)
	d.mu.Lock()
	p.disk = d.rigid
	d.mu.Unlock()
	if p.order, err = json.Marshal(t); err != nil {
		return nil, fmt.Errorf("write %s: %w", t.ID.Words(), err)
	}
	if !p.sent() && len(p.order) > 1<<20-1<<10 {
		return nil, &trainyard.ClassError{Class: trainyard.ClassUser, Err: trainyard.Invalid(
			"the job is %d bytes long with its command and variables, and Kubernetes takes at most a megabyte; put the command into a file", len(p.order))}
	}
	return p, nil
}

func (p *plan) meta(more object) object {
	m := object{
		"name": p.name,
		"labels": object{
			"app.kubernetes.io/managed-by": "trainyard", groupLabel: p.group, taskLabel: p.name,
			jobLabel: labelValue(p.task.JobName), workspaceLabel: labelValue(p.task.Scope.Workspace),
		},
	}
	maps.Copy(m, more)
	return m
}

// secret holds the task as JSON.
func (p *plan) secret() object {
	return object{
		"apiVersion": "v1", "kind": "Secret", "metadata": p.meta(nil), "type": "Opaque",
		"data": object{taskFile: base64.StdEncoding.EncodeToString(p.order)},
	}
}

// service makes the pods of a gang known to each other by name.
func (p *plan) service() object {
	return object{
		"apiVersion": "v1", "kind": "Service", "metadata": p.meta(nil),
		"spec": object{"clusterIP": "None", "publishNotReadyAddresses": true, "selector": object{taskLabel: p.name}},
	}
}

// job is the Job. The server tries again, Kubernetes never does.
func (p *plan) job() object {
	about := object{idAnnotation: string(p.task.ID), ranksAnnotation: strconv.Itoa(p.ranks())}
	if p.asks() {
		about[asksAnnotation] = "true"
	}
	more := object{}
	for k, v := range p.cfg.Annotations {
		about[k], more[k] = v, v
	}
	m := p.meta(object{"annotations": about})
	spec := object{
		"completionMode": "Indexed", "completions": p.ranks(), "parallelism": p.ranks(),
		"backoffLimit": 0, "podReplacementPolicy": "Failed",
		"template": object{"metadata": object{"labels": p.meta(nil)["labels"], "annotations": more}, "spec": p.pod()},
	}
	if p.cfg.TTL > 0 {
		spec["ttlSecondsAfterFinished"] = p.cfg.TTL
	}
	if p.cfg.Queue != "" {
		m["labels"].(object)[queueLabel] = p.cfg.Queue
		spec["suspend"] = true // Kueue lets it go
	}
	return object{"apiVersion": "batch/v1", "kind": "Job", "metadata": m, "spec": spec}
}

func (p *plan) pod() object {
	where := object{"kubernetes.io/os": "linux"}
	for k, v := range p.shape.NodeSelector {
		where[k] = v
	}
	volumes, mounts := p.volumes()
	spec := object{
		"restartPolicy": "Never", "enableServiceLinks": false, "nodeSelector": where,
		"automountServiceAccountToken":  p.cfg.ServiceAccount != "",
		"terminationGracePeriodSeconds": int(p.task.Grace.Seconds()) + finishing,
		"volumes":                       volumes,
		"containers": []object{{
			"name": containerName, "image": p.image, "resources": p.resources(), "volumeMounts": mounts,
			"command":                []string{"/bin/sh", "-c", bootstrap, "trainyard", strconv.Itoa(p.task.Lo), p.hosts(), p.name, p.looksFor(), p.question()},
			"terminationMessagePath": resultFile, "terminationMessagePolicy": "File",
		}},
	}
	if p.gang() {
		spec["subdomain"] = p.name
	}
	set := func(name string, value any, if_ bool) {
		if if_ {
			spec[name] = value
		}
	}
	set("serviceAccountName", p.cfg.ServiceAccount, p.cfg.ServiceAccount != "")
	set("affinity", p.affinity(), len(p.arches) > 0)
	set("priorityClassName", p.cfg.PriorityClass, p.cfg.PriorityClass != "")
	set("tolerations", p.shape.Tolerations, len(p.shape.Tolerations) > 0)
	var pull []object
	for _, name := range p.cfg.ImagePullSecrets {
		pull = append(pull, object{"name": name})
	}
	set("imagePullSecrets", pull, len(pull) > 0)
	return spec
}

// affinity keeps pods on nodes that the program is there for. An image for one processor alone wants a nodeSelector in the instance type.
func (p *plan) affinity() object {
	arch := object{"key": archLabel, "operator": "In", "values": p.arches}
	return object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{
		"nodeSelectorTerms": []object{{"matchExpressions": []object{arch}}}}}}
}

// volumes are the pod's disks, and where the container sees them. A Job's pod has none unless it must: the kubelet looks only every 300 ms
// whether those of a pod are there, so one of any kind costs as much, and its container has a disk of its own.
func (p *plan) volumes() (volumes, mounts []object) {
	add := func(name, path string, readOnly bool, source object) {
		source["name"] = name
		volumes = append(volumes, source)
		mounts = append(mounts, object{"name": name, "mountPath": path, "readOnly": readOnly})
	}
	work := object{}
	if p.cfg.WorkSize != "" {
		work["sizeLimit"] = p.cfg.WorkSize
	}
	switch {
	case p.serves(): // the container may be started again, on a fresh disk
		add("program", programDir, false, object{"emptyDir": object{}})
		add("work", workDir, false, object{"emptyDir": work})
	case p.hasDisk():
		add("work", baseDir, false, object{"emptyDir": work})
	}
	if !p.sent() {
		add(taskVolume, taskDir, true, object{"secret": object{"secretName": p.name, "defaultMode": 0o444}})
	}
	if p.task.ShmSize != "" {
		add("shm", "/dev/shm", false, object{"emptyDir": object{"medium": "Memory", "sizeLimit": shmQuantity(p.task.ShmSize)}})
	}
	if p.kept != nil {
		add("kept", keptDir, true, p.keptVolume())
	}
	if p.cfg.shared != "" {
		add("shared", p.cfg.shared, false, object{"hostPath": object{"path": p.cfg.shared}})
	}
	return volumes, mounts
}

// shmQuantity is Docker's way to write a size, "2g", in Kubernetes': "2Gi".
func shmQuantity(size string) string {
	last := strings.ToUpper(size[len(size)-1:])
	switch last {
	case "K", "M", "G":
		return size[:len(size)-1] + last + "i"
	case "B":
		return size[:len(size)-1]
	}
	return size
}

// resources are the instance type's, and the task's own where it has some: what it may use is also what it is placed by, unless it says that
// apart, and then the instance type's limit holds for what it does not limit.
func (p *plan) resources() object {
	requests, limits := map[string]string{}, map[string]string{}
	maps.Copy(requests, p.shape.Resources.Requests)
	maps.Copy(limits, p.shape.Resources.Limits)
	set := func(name, request, limit string) {
		switch {
		case limit != "":
			requests[name], limits[name] = cmp.Or(request, limit), limit
		case request != "":
			requests[name] = request
			if has, ok := limits[name]; ok && less(has, request) {
				limits[name] = request
			}
		}
	}
	may, asks := p.task.Resources, p.task.Requests
	set("memory", megabytes(asks.MemoryMB), megabytes(may.MemoryMB))
	set("cpu", millis(asks.CPUs), millis(may.CPUs))
	set(gpuResource, "", number(max(may.GPUs, asks.GPUs))) // these must be equal
	return object{"requests": requests, "limits": limits}
}

// number, megabytes and millis are quantities; of nothing they are "".
func number(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func megabytes(mb int64) string {
	if mb <= 0 {
		return ""
	}
	return strconv.FormatInt(mb, 10) + "Mi"
}

func millis(cpus float64) string {
	if cpus <= 0 {
		return ""
	}
	return strconv.FormatInt(max(1, int64(cpus*1000+0.5)), 10) + "m"
}

// less compares quantities. One that cannot be read is not less: the API server says what is wrong with it.
func less(a, b string) bool {
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(b)
	return err == nil && x.Cmp(y) < 0
}

// hosts are the addresses of all ranks: names in the Service for those of this task.
func (p *plan) hosts() string {
	all := append([]string(nil), p.task.Hosts...)
	for rank := p.task.Lo; rank < p.task.Hi; rank++ {
		for len(all) <= rank {
			all = append(all, "127.0.0.1")
		}
		if p.gang() {
			all[rank] = hostname(p.name, rank-p.task.Lo) + "." + p.name
		}
	}
	return strings.Join(all, ",")
}

// hostname is what the Job controller calls the pod of an index.
func hostname(name string, index int) string { return name + "-" + strconv.Itoa(index) }

// thisArch is how Kubernetes calls this computer's processor.
const thisArch = runtime.GOARCH
