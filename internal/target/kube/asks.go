package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/trainyard/trainyard"
)

// A pod that has the program in a volume need not be told by a script what it is to run, which is the work of API server, kubelet and runtime
// again: it asks the server, with a token in which the cluster says what pod it is. That it begins is written down before it is answered, as it
// is when it is sent its task, so that what was stopped never begins. A pod that does not reach the server waits to be sent its task.

const (
	ticketFile = "ticket"         // in keptDir
	ticketTime = time.Hour        // that the kubelet has a token made for; it has it made anew before that is over
	sendAfter  = 10 * time.Second // how long after it was seen to run one that asks is sent its task all the same

	manyUnheard = 3         // pods in a row of which that had to be done before others are not left to ask
	noAsking    = time.Hour // for how long
)

// mayAsk says whether the pods of a new task may be left to ask. A gang's are told when all are there, with each other's addresses, and those
// that a node of another processor may have do not find the program.
func (d *Driver) mayAsk(p *plan) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.env.Tells && p.kept != nil && (p.kept.alone || p.shape.NodeSelector[archLabel] == p.kept.arch) && !p.gang() && p.task.Server != "" &&
		d.keys.there() && (d.unheard < manyUnheard || time.Now().After(d.deaf.Add(noAsking)))
}

// asks says whether the task's pods ask what they are to run.
func (p *plan) asks() bool { return p.ask && p.sent() }

// asks says whether its pods ask what they are to run.
func (j *job) asks() bool { return j.Meta.Annotations[asksAnnotation] != "" }

// audience is who a task's tickets are for: nobody but us, for this task alone.
func audience(name string) string { return "trainyard.io/" + name }

// ticket is the source of a volume with the token by which a pod shows who it is.
func (p *plan) ticket() object {
	return object{"serviceAccountToken": object{"audience": audience(p.name), "expirationSeconds": int(ticketTime.Seconds()), "path": ticketFile}}
}

// looksFor is what bootstrap.sh is to find before it asks, "" if it is not to ask.
func (p *plan) looksFor() string {
	if !p.asks() {
		return ""
	}
	return p.kept.words()
}

// question is what a pod is to ask, "" if it is not to.
func (p *plan) question() string {
	if !p.asks() {
		return ""
	}
	q, _ := json.Marshal(trainyard.Question{Server: p.task.Server, CA: p.task.CA, Node: p.task.Node, Task: p.task.ID}) // text alone
	return string(q)
}

// Tell answers a pod that asks.
func (d *Driver) Tell(ctx context.Context, id trainyard.TaskID, ticket string) (json.RawMessage, error) {
	no := trainyard.Errorf(trainyard.CodeForbidden, "no task that may begin asks here")
	d.mu.Lock()
	t := d.tasks[d.nameOf(id)]
	d.mu.Unlock()
	if t == nil || t.id != id {
		return nil, no
	}
	who, err := d.keys.holder(ctx, d.api, ticket, audience(t.name))
	if err != nil {
		d.env.Log.Debug("who asks for a task is not told it", "task", id, "err", err)
		return nil, err
	}
	t.op.Lock()
	defer t.op.Unlock()
	d.mu.Lock()
	s := d.sight(t)
	over := t.rec.Stop != nil || t.end != nil || t.removing || d.tasks[t.name] != t || judge(s, time.Now()).end != nil
	begun, another := t.rec.Begun[who], len(t.rec.Begun) > 0 && !t.rec.Begun[who]
	made, closed := t.rec.UID != "", d.closed
	d.mu.Unlock()
	i := slices.IndexFunc(s.pods, func(p podSight) bool { return p.Meta.UID == who })
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case closed: // it is opened again at once
		return nil, trainyard.Errorf(trainyard.CodeBusy, "the compute is being set up otherwise")
	case over, another, i >= 0 && s.pods[i].ended():
		return nil, no
	case !made, i < 0, s.job == nil, s.jobGone, s.job.Spec.Suspend, s.pods[i].Meta.Deleted != nil && !begun: // the news of it are on their way
		return nil, trainyard.Errorf(trainyard.CodeBusy, "the pod may not begin yet")
	case !s.job.asks():
		return nil, no
	}
	order, err := os.ReadFile(filepath.Join(t.dir, orderFile))
	if err != nil {
		return nil, fmt.Errorf("read what is to be sent: %w", err)
	}
	if !begun {
		if err := d.save(t, func(r *record) { r.Begun[who] = true }); err != nil {
			d.mu.Lock()
			delete(t.rec.Begun, who)
			d.mu.Unlock()
			return nil, trainyard.Errorf(trainyard.CodeBusy, "%v", err)
		}
		d.mu.Lock()
		d.unheard = 0
		d.mu.Unlock()
		d.env.Log.Debug("a pod was told its task", "task", t.id, "pod", s.pods[i].Meta.Name)
		t.look()
		d.signal()
	}
	return order, nil
}

// notHeard notes that a pod which was to ask had to be sent its task. After some the next ones are sent theirs at once.
func (d *Driver) notHeard(name string) {
	d.mu.Lock()
	d.unheard++
	many := d.unheard == manyUnheard
	if d.unheard >= manyUnheard {
		d.deaf = time.Now()
	}
	d.mu.Unlock()
	d.env.Log.Info("a pod that was to ask was sent its task", "pod", name)
	if many {
		d.env.Log.Warn("pods were not told what to run within "+sendAfter.String()+" of their start, and were sent it; jobs begin faster where pods reach the server",
			"pod", name, "server", cmp.Or(d.cfg.ServerURL, d.env.Server))
	}
}

// keys are those by which the cluster's tokens are known.
type keys struct {
	mu   sync.Mutex
	all  *jose.JSONWebKeySet
	next time.Time // when to read them again at the earliest
}

func (k *keys) there() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all != nil
}

// keysPath is where API servers publish them, to every account by default: the role system:service-account-issuer-discovery.
const keysPath = "/openid/v1/jwks"

// readKeys reads the keys, unless that was done. Without them pods do not ask.
func (d *Driver) readKeys(ctx context.Context) {
	if !d.env.Tells || d.keys.there() {
		return
	}
	if err := d.keys.read(ctx, d.api); err != nil && ctx.Err() == nil {
		d.env.Log.Info("read the keys of the cluster's tokens: pods are sent their tasks", "err", err)
	}
}

func (k *keys) read(ctx context.Context, api *client) error {
	var all jose.JSONWebKeySet
	err := api.get(ctx, keysPath, nil, &all)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = time.Now().Add(time.Minute)
	if err == nil {
		k.all = &all
	}
	return err
}

// algorithms are those that Kubernetes signs with.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512}

// holder is the UID of the pod that a token is of. Keys may be new: they are read again, once a minute at most.
func (k *keys) holder(ctx context.Context, api *client, token, audience string) (string, error) {
	no := trainyard.Errorf(trainyard.CodeForbidden, "the ticket is not one of the task's pods")
	later := trainyard.Errorf(trainyard.CodeBusy, "the keys of the cluster's tokens are not known yet")
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return "", no
	}
	var std jwt.Claims
	var more struct {
		Kubernetes struct {
			Namespace string `json:"namespace"`
			Pod       struct {
				UID string `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	for again := false; ; again = true {
		k.mu.Lock()
		all, stale := k.all, time.Now().After(k.next)
		k.mu.Unlock()
		err := error(jose.ErrJWKSKidNotFound)
		if all != nil {
			err = parsed.Claims(*all, &std, &more)
		}
		if err == nil {
			break
		}
		switch {
		case !errors.Is(err, jose.ErrJWKSKidNotFound), again:
			return "", no
		case !stale:
			return "", later
		}
		if err := k.read(ctx, api); err != nil {
			return "", later
		}
	}
	err = std.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{audience}, Time: time.Now()}, time.Minute)
	if err != nil {
		return "", trainyard.Errorf(trainyard.CodeForbidden, "the ticket: %v", err)
	}
	if more.Kubernetes.Namespace != api.namespace || more.Kubernetes.Pod.UID == "" {
		return "", no
	}
	return more.Kubernetes.Pod.UID, nil
}
