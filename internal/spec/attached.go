package spec

import (
	"strings"

	"github.com/trainyard/trainyard"
)

// Computes that are attached: a machine or an engine that is there already. What a file says becomes ARM's properties under ARM's names;
// passwords, keys and kubeconfigs are read out of the files that are named, on the user's machine.

// attached translates the part of a compute that its type has.
func (d *Document) attached(f *fields, c *Compute) {
	p := map[string]any{}
	switch d.Kind {
	case VirtualMachine:
		f.machine(p)
	case Kubernetes:
		f.kubernetes(p)
	case Slurm:
		f.slurm(p)
	}
	c.Spec.ResourceID = f.text("resource_id")
	c.Spec.Properties.Extra = trainyard.Extra{}
	for name, value := range p {
		if value != nil && value != "" {
			c.Spec.Properties.Extra[name] = asJSON(value)
		}
	}
}

// machine is a machine that SSH reaches.
func (f *fields) machine(p map[string]any) {
	if f.has("resource_id") && !f.has("address") && f.told() {
		f.p.at(f.n.place, "", "--address is missing: --resource-id names a machine of Azure's, and this server reaches a machine by its address")
	} else if f.has("resource_id") && !f.has("address") {
		f.p.at(f.place("resource_id"), "address", "it is missing: resource_id names a machine of Azure's, and this server reaches a machine by its address: add address: HOST")
	}
	switch {
	case f.has("resource_id") || f.has("address"):
	case f.told():
		f.p.at(f.n.place, "", "--address is missing")
	default:
		f.need("address")
	}
	f.login(p)
}

// login is how SSH reaches a computer.
func (f *fields) login(p map[string]any) {
	p["address"] = f.text("address")
	s, told := f.sub("ssh_settings"), f.told()
	switch {
	case s.n == nil && told:
		f.p.at(f.n.place, "", "nothing says how to log in: give --admin-username, and --admin-password or --ssh-private-key-file")
		return
	case s.n == nil:
		f.p.at(f.n.place, "ssh_settings", "it is missing: give admin_username, and admin_password or ssh_private_key_file")
		return
	}
	if port := s.integer("ssh_port", 1); port != nil {
		p["sshPort"] = *port
	}
	account := map[string]string{"username": s.text("admin_username")}
	switch {
	case s.has("admin_username"):
	case told:
		f.p.at(f.n.place, "", "--admin-username is missing")
	default:
		s.need("admin_username")
	}
	if text := s.text("admin_password"); text != "" {
		account["password"] = text
	}
	if text := s.contents("ssh_private_key_file"); text != "" {
		account["privateKeyData"] = text
	}
	if text := s.contents("ssh_public_key_file"); text != "" {
		account["publicKeyData"] = strings.TrimSpace(text)
	}
	if text := s.text("host_key"); text != "" {
		p["hostKey"] = text
	}
	switch {
	case account["password"] != "" || account["privateKeyData"] != "" || s.has("ssh_private_key_file"):
	case told:
		f.p.at(f.n.place, "", "--admin-password or --ssh-private-key-file is missing: one of them lets the server in")
	default:
		f.p.at(s.n.place, s.path, "it has no admin_password and no ssh_private_key_file: one of them lets the server in")
	}
	s.done()
	p["administratorAccount"] = account
}

// told says whether there is no file: who gave flags knows the fields by those.
func (f *fields) told() bool { return f.n.src.name == commandLine }

// kubernetes is a namespace of a cluster.
func (f *fields) kubernetes(p map[string]any) {
	for field, name := range map[string]string{"namespace": "namespace", "context": "context", "default_instance_type": "defaultInstanceType", "image": "image",
		"queue": "queue", "service_account": "serviceAccount", "priority_class": "priorityClass", "server_url": "serverURL", "work_size": "workSize"} {
		p[name] = f.text(field)
	}
	if in := f.boolean("in_cluster"); in != nil {
		p["inCluster"] = *in
	}
	p["kubeconfig"] = f.contents("kubeconfig")
	switch in, _ := p["inCluster"].(bool); {
	case f.has("kubeconfig") || in || f.has("in_cluster") && p["inCluster"] == nil: // that is said already
	case f.told():
		f.p.at(f.n.place, "", "--kubeconfig or --in-cluster is missing: name the file by which kubectl reaches the cluster, or say that the server runs in it")
	default:
		f.p.at(f.n.place, "kubeconfig", "it is missing: name the file by which kubectl reaches the cluster, or set in_cluster: true where the server runs in it")
	}
	if list := f.list("image_pull_secrets"); list != nil {
		p["imagePullSecrets"] = list
	}
	if grace := f.integer("image_pull_grace", 1); grace != nil {
		p["imagePullGrace"] = *grace
	}
	if m := f.texts("annotations", false); m != nil {
		p["annotations"] = m
	}
	types := map[string]any{}
	f.each("instance_types", func(k, v *node, path string) {
		one := &fields{p: f.p, n: v, path: path}
		if v.null() || v.kind != mapping {
			f.p.at(v.place, path, "got %s, want a map with node_selector and resources", v.words())
			return
		}
		t := map[string]any{}
		if m := one.texts("node_selector", false); m != nil {
			t["nodeSelector"] = m
		}
		if all := one.tolerations(); all != nil {
			t["tolerations"] = all
		}
		if r := one.sub("resources"); r.n != nil {
			amounts := map[string]any{}
			for _, name := range []string{"requests", "limits"} {
				if m := r.texts(name, false); m != nil {
					amounts[name] = m
				}
			}
			r.done()
			t["resources"] = amounts
		}
		one.done()
		types[k.text] = t
	})
	if len(types) > 0 {
		p["instanceTypes"] = types
	}
}

// tolerations let pods on to tainted nodes: what a pod's spec has under that name, but for tolerationSeconds.
func (f *fields) tolerations() []map[string]string {
	n := f.get("tolerations")
	if n == nil {
		return nil
	}
	if n.kind != list {
		f.wrong(n, "tolerations", "a list of maps with key, operator, value and effect")
		return nil
	}
	var all []map[string]string
	for i, v := range n.values {
		one := &fields{p: f.p, n: v, path: f.at("tolerations") + (step{index: i}).String()}
		if v.null() || v.kind != mapping {
			f.p.at(v.place, one.path, "got %s, want a map with key, operator, value and effect", v.words())
			continue
		}
		t := map[string]string{}
		for _, name := range []string{"key", "operator", "value", "effect"} {
			if text := one.text(name); text != "" {
				t[name] = text
			}
		}
		one.done()
		all = append(all, t)
	}
	return all
}

// slurm is partitions of a cluster.
func (f *fields) slurm(p map[string]any) {
	for field, name := range map[string]string{"partition": "partition", "account": "account", "qos": "qos", "constraint": "constraint",
		"reservation": "reservation", "time_limit": "timeLimit", "commands": "commands", "conf": "confPath", "folder": "folder", "server_url": "serverURL"} {
		p[name] = f.text(field)
	}
	if lines := f.list("sbatch"); lines != nil {
		p["sbatch"] = lines
	}
	if whole := f.boolean("exclusive"); whole != nil {
		p["exclusive"] = *whole
	}
	login := f.has("address") || f.has("ssh_settings") // of a login node
	switch {
	case !login:
	case f.has("address"):
		f.login(p)
	case f.told():
		f.p.at(f.n.place, "", "--address is missing: it names the login node that --admin-username and the others log in to")
		f.login(p)
	default:
		f.need("address")
		f.login(p)
	}
	r := f.sub("rest")
	if r.n == nil {
		return
	}
	p["restURL"] = r.need("url")
	account := map[string]string{"username": r.text("username")}
	if r.has("token") && r.has("token_file") {
		f.p.at(r.place("token_file"), r.at("token_file"), "the token is said twice: leave out token or token_file")
	}
	if token := strings.TrimSpace(r.text("token") + r.contents("token_file")); token != "" {
		account["password"] = token // ARM's word for what an account proves itself with; it is kept as one
	}
	r.done()
	if login {
		f.p.at(r.n.place, r.path, "a login node and slurmrestd are two ways to the same Slurm: leave out address and ssh_settings, or rest")
		return
	}
	if account["username"] != "" || account["password"] != "" {
		p["administratorAccount"] = account
	}
}

// contents is what is in the file that a field names, relative to the file that the field stands in.
func (f *fields) contents(name string) string {
	n := f.get(name)
	if n == nil {
		return ""
	}
	if n.kind != scalar {
		f.wrong(n, name, "the path of a file")
		return ""
	}
	data, err := slurp(onDisk(n.text, n.src.dir))
	if err != nil {
		f.p.at(n.place, f.at(name), "%v", err)
	}
	return string(data)
}
