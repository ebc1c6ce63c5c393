package agent

import (
	"context"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// house gives a replica its port and tells it in its environment: a free one of loopback, or the one that it asks for where it has a
// network of its own. An image's own entry point knows its port.
func (k *task) house(t *trainyard.Task) error {
	if t.Serve == nil {
		return nil
	}
	port := t.Serve.ContainerPort()
	_, dials := k.a.cfg.Driver.(target.Dialer)
	switch {
	case k.a.cfg.SelfStaged && !dials:
		return trainyard.Errorf(trainyard.CodeUnsupported, "this compute's engine cannot serve models: nothing leads to a port of a task there; "+
			"choose a Kubernetes cluster, a machine, a cluster of nodes or this computer")
	case k.a.cfg.SelfStaged:
		if t.Serve.Image { // else the program in the pod takes the rows
			t.Env = maps.Clone(t.Env)
			k.houseCollector(t, t.Env)
		}
		return nil
	case t.Contained && t.Serve.Image:
		port = 0
	case !t.Contained && t.Serve.Image:
		return trainyard.Errorf(trainyard.CodeUnsupported, "the deployment's image serves by itself, and there is no container engine here to run it")
	case !t.Contained && !k.a.cfg.Alone:
		free, hold, err := target.FreePort()
		if err != nil {
			return err
		}
		port = free
		k.mu.Lock()
		k.kept.Port, k.hold = port, hold
		k.mu.Unlock()
	}
	env := maps.Clone(t.Run.Env)
	if env == nil {
		env = map[string]string{}
	}
	for _, name := range trainyard.PortVariables {
		if port != 0 {
			env[name] = strconv.Itoa(port)
		}
	}
	k.houseCollector(t, env)
	t.Run.Env = env
	return nil
}

// letGo gives the port back.
func (k *task) letGo() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hold != nil {
		k.hold.Close()
		k.hold = nil
	}
	if k.collects != nil {
		k.collects.Close()
		k.collects = nil
	}
}

// address is where this node reaches the replica's port; "" if only the driver does.
func (k *task) address() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept.Port != 0 {
		return target.Loopback(k.kept.Port)
	}
	if s := k.latest().seen; s != nil {
		return s.Address
	}
	return ""
}

// portPatience bounds the making of a connection with a replica.
const portPatience = 5 * time.Second

// dial connects with the replica's port.
func (k *task) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, portPatience)
	defer cancel()
	if at := k.address(); at != "" {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", at)
	}
	if d, ok := k.a.cfg.Driver.(target.Dialer); ok {
		return d.Dial(ctx, k.id)
	}
	return nil, trainyard.Errorf(trainyard.CodeUnsupported, "the port of %s is not known yet", k.id.Words())
}
