package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// Kind is a type of compute that is attached: an engine with machines of its own, or a machine. One of Engine and Fleet is set.
type Kind struct {
	Type   string // ARM's computeType
	Engine string // kind of target whose engine runs the tasks
	Fleet  string // kind of fleet that puts an agent on the machine

	Containers bool // the engine runs tasks in containers

	// Settings makes the driver's settings of what ARM calls the compute's properties, and of its secrets. It refuses what is missing or
	// wrong, by the names that a compute file has.
	Settings func(properties, secret json.RawMessage) (json.RawMessage, error)
	// Keep carries over into new settings what was found out before and must not change by itself. Nil: nothing.
	Keep func(old, settings json.RawMessage) (json.RawMessage, error)
	// Probe looks whether the engine or the machine can be used, and returns the settings with what it found out added. Nil: no look.
	Probe func(ctx context.Context, settings json.RawMessage) (Found, error)
}

// place is the location, which no file can name, of machines that were attached.
func (k *Kind) place() string {
	if k.Fleet == "" {
		return ""
	}
	return "attached/" + k.Fleet
}

// OtherPlaces are locations that no configuration names: of attached machines, and those that have nodes still.
func (c *Control) OtherPlaces() []trainyard.Location {
	out := slices.Clone(c.retired)
	for i := range c.Kinds {
		if at := c.Kinds[i].place(); at != "" {
			out = append(out, trainyard.Location{Name: at, Driver: c.Kinds[i].Fleet})
		}
	}
	return out
}

// dropAttached forgets the node of an attached machine that cannot be reached: waiting for it could last for ever. Its agent stops by
// itself when it has heard nothing from the server for long.
func (c *Control) dropAttached(ctx context.Context, key trainyard.ComputeKey) error {
	comp, err := c.Store.Compute(ctx, key)
	if err != nil || comp.Elastic() || comp.Hosted() {
		return nil
	}
	nodes, err := c.Store.Nodes(ctx, key)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.State == trainyard.NodeIdle || c.Now().Sub(c.lastSeen(n.ID)) < expire && n.Epoch > 0 {
			continue // it is there, and will be let go of in order
		}
		const why = "detached by force while it could not be reached"
		if err := c.warnOf(ctx, n.ID, why+": what ran there goes on until it is reached, or by itself"); err != nil {
			return err
		}
		if err := c.nodeGone(ctx, n.ID, why); err != nil {
			return err
		}
	}
	return nil
}

// warnOf writes down on the jobs of a node what they would not say: one that was canceled ends as that.
func (c *Control) warnOf(ctx context.Context, id trainyard.NodeID, why string) error {
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		for _, ref := range tx.NodeTasks(id) {
			if ref.Task().State == trainyard.TaskEnded {
				continue
			}
			j, err := tx.Job(ref.Job.Key())
			if err != nil {
				return err
			}
			j.Status.Warnings = trainyard.Warn(j.Status.Warnings, fmt.Sprintf("node %s was %s", id, why))
			if err := tx.PutJob(j); err != nil {
				return err
			}
		}
		return nil
	})
}

// Found is what a look at an engine or a machine found.
type Found struct {
	Settings json.RawMessage
	Engines  []string // container engines of a machine
	Notes    []string // for people: what is not as they may expect
}

func (c *Control) kind(computeType string) *Kind {
	for i := range c.Kinds {
		if strings.EqualFold(c.Kinds[i].Type, computeType) {
			return &c.Kinds[i]
		}
	}
	return nil
}

// types are the types of compute that this build has.
func (c *Control) types() []string {
	out := []string{trainyard.ComputeLocal, trainyard.ComputeCluster}
	for _, k := range c.Kinds {
		out = append(out, k.Type)
	}
	return out
}

// attach makes the settings of a compute that is attached, looking at what they lead to when they are new, or when they are said once more
// while there is trouble.
func (c *Control) attach(ctx context.Context, comp *trainyard.Compute) error {
	kind := c.kind(comp.Spec.ComputeType)
	if kind == nil || kind.Settings == nil {
		return nil
	}
	old, err := c.Store.Compute(ctx, comp.Key())
	troubled := err == nil && len(comp.Secret) > 0 && len(old.Errors) > 0
	if err != nil {
		old = nil
	} else if len(comp.Secret) == 0 {
		comp.Secret = old.Secret
	}
	props, err2 := json.Marshal(comp.Spec.Properties)
	if err2 != nil {
		return err2
	}
	if err == nil && !troubled {
		before, err := json.Marshal(old.Spec.Properties)
		if err == nil && bytes.Equal(before, props) && bytes.Equal(old.Secret, comp.Secret) {
			comp.Settings, comp.Engines = old.Settings, old.Engines
			return nil
		}
	}
	settings, err := kind.Settings(props, comp.Secret)
	if err != nil {
		return named(comp, err)
	}
	if old != nil && kind.Keep != nil {
		if settings, err = kind.Keep(old.Settings, settings); err != nil {
			return named(comp, err)
		}
	}
	found := Found{Settings: settings}
	if kind.Probe != nil {
		if found, err = kind.Probe(ctx, settings); err != nil {
			return named(comp, err)
		}
	}
	comp.Settings, comp.Engines = found.Settings, found.Engines
	for _, note := range found.Notes {
		comp.Warnings = trainyard.Warn(comp.Warnings, note)
	}
	return nil
}

// named puts the compute's name before an error for users.
func named(comp *trainyard.Compute, err error) error {
	code := trainyard.CodeOf(err)
	switch code {
	case trainyard.CodeInternal, trainyard.CodeBusy, "": // it is what was asked for that does not work: to ask again changes nothing
		code = trainyard.CodeInvalid
	}
	return trainyard.Errorf(code, "compute %q: %v", comp.Name, err)
}

// letGo has the node of a hosted compute that is being deleted leave when it has nothing left to do.
func (c *Control) letGo(ctx context.Context, comp *trainyard.Compute, nodes []*trainyard.Node) error {
	if !comp.Deleting {
		return nil
	}
	if len(nodes) == 0 {
		return c.finishDelete(ctx, comp.Key())
	}
	for _, n := range nodes {
		if n.State == trainyard.NodeLeaving || len(c.Store.NodeTasks(n.ID)) > 0 {
			continue
		}
		err := c.Store.Update(ctx, func(tx *store.Tx) error {
			n, err := tx.Node(n.ID)
			if err != nil || len(tx.NodeTasks(n.ID)) > 0 {
				return nil
			}
			if err := n.MoveTo(trainyard.NodeLeaving, trainyard.Reason{Code: "Detached", Message: comp.Name + " is being deleted"}, c.Now()); err != nil {
				return err
			}
			return tx.PutNode(n)
		})
		if err != nil {
			return err
		}
		c.nodes.bump(n.ID)
		c.nodes.bump(everyHosted)
	}
	return nil
}

// HostedGone says that the agent in the server has let go of a node that was to leave.
func (c *Control) HostedGone(ctx context.Context, id trainyard.NodeID) error {
	n, err := c.Store.Node(ctx, id)
	if err != nil {
		return nil // gone already
	}
	if err := c.nodeGone(ctx, id, n.Reason.Message); err != nil {
		return err
	}
	return c.finishDelete(ctx, n.Compute)
}

// IsLeaving says whether a node is to leave, or gone.
func (c *Control) IsLeaving(ctx context.Context, id trainyard.NodeID) bool {
	n, err := c.Store.Node(ctx, id)
	return err != nil || n.State == trainyard.NodeLeaving
}

// HostedFailed keeps on a compute, and for those who look at its node, why the agent in the server cannot work for it; "" forgets it.
func (c *Control) HostedFailed(ctx context.Context, id trainyard.NodeID, why string) error {
	now := trainyard.Reason{}
	if why != "" {
		now = trainyard.Reason{Code: codeUnseen, Message: why, Since: c.Now()}
	}
	told, err := c.toldEngineAway(ctx, id, now)
	if err != nil {
		return err
	}
	was, known := c.knownEngineAway(id) // before the update, which may be made twice
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		n, err := tx.Node(id)
		if err != nil {
			return nil
		}
		if known || why != "" { // that an agent begins says nothing of what was before
			c.setEngineAway(tx, n, was, now, told)
		}
		comp, err := tx.Compute(n.Compute)
		if err != nil {
			return nil
		}
		if comp.Errors = nil; why != "" {
			comp.Errors = []string{why}
		}
		return tx.PutCompute(comp)
	})
}
