// Package fleet is the contract for machines: one folder below it per kind. A machine is one agent that dials home with the join token
// it was given; a fleet starts, lists and stops machines, and knows nothing of what runs on them.
//
// For those who write a driver:
//   - Machines returns everything of ours at this location or an error: orphans are found by comparing it with what is wanted.
//   - Grow is keyed by MachineSpec.ID and idempotent: a machine that lives is left alone, one whose agent is dead gets a new agent in
//     the same place (its tasks may still run and will be adopted), an unknown one is made.
//   - Grow may do part of the work: it returns how many of want exist when it returns, and joins an error per machine that does not.
//   - Shrink returns the IDs that are gone for certain, with every process that ran there. Unknown IDs count as gone.
//   - fleettest holds all this as one suite.
package fleet

import (
	"context"
	"log/slog"

	"github.com/trainyard/trainyard"
)

// Driver makes machines at one location.
type Driver interface {
	Machines(ctx context.Context) ([]trainyard.Machine, error)
	Grow(ctx context.Context, want []trainyard.MachineSpec) (started int, err error)
	Shrink(ctx context.Context, ids []trainyard.NodeID) (stopped []trainyard.NodeID, err error)
}

// MachineError is one machine that Grow could not make; Grow joins them with errors.Join.
type MachineError struct {
	ID  trainyard.NodeID
	Err error
}

func (e *MachineError) Error() string { return "machine " + string(e.ID) + ": " + e.Err.Error() }
func (e *MachineError) Unwrap() error { return e.Err }

// Kind is an entry in cmd/trainyard's list of fleets.
type Kind struct {
	Name string
	Doc  string
	New  func() Config

	// Far kinds make machines that are not this one: Env.Server is where they reach the server, and Env.CA what they trust there.
	Far bool
}

// Config is a kind's settings and constructor in one.
type Config interface {
	Validate() error
	Open(ctx context.Context, env Env) (Driver, error)
}

// Env is what every driver is given.
type Env struct {
	Dir    string   // a folder of its own that outlives the process
	Name   string   // of the location; with Dir it tells this server's machines from another's
	Server string   // URL that agents dial
	CA     string   // file with the CA certificate that agents trust; empty for plain HTTP on loopback
	Binary string   // path of the program to start as agent
	Cache  string   // folder that the nodes of one machine share for code, data and environments; work/{ID} in it is a machine's own
	Hide   []string // paths of this machine that no task may reach, where the system can enforce it
	Vars   []string // variables of ours that agents on this machine get as the server has them; of the others they get none
	Log    *slog.Logger
}
