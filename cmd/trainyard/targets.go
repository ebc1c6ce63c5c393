package main

import (
	"github.com/trainyard/trainyard/internal/control"
	"github.com/trainyard/trainyard/internal/fleet"
	fleetprocess "github.com/trainyard/trainyard/internal/fleet/process"
	fleetslurm "github.com/trainyard/trainyard/internal/fleet/slurm"
	fleetssh "github.com/trainyard/trainyard/internal/fleet/ssh"
	"github.com/trainyard/trainyard/internal/target"
	targetdocker "github.com/trainyard/trainyard/internal/target/docker"
	targetkube "github.com/trainyard/trainyard/internal/target/kube"
	targetprocess "github.com/trainyard/trainyard/internal/target/process"
	targetslurm "github.com/trainyard/trainyard/internal/target/slurm"
)

// targets is THE list of ways to run a task. A new one is a folder under internal/target and a line here.
func targets() []target.Kind {
	return []target.Kind{
		targetprocess.Kind(),
		targetdocker.Kind(),
		targetslurm.Kind(),
		targetkube.Kind(),
	}
}

// fleets is THE list of places that machines come from. A new one is a folder under internal/fleet and a line here.
func fleets() []fleet.Kind {
	return []fleet.Kind{
		fleetprocess.Kind(),
		fleetssh.Kind(),
		fleetslurm.Kind(),
	}
}

// attachable are the types of compute that are attached: which driver each has, how its settings are made of what a user gives, and how it
// is looked at first.
func attachable() []control.Kind {
	return []control.Kind{
		{Type: "VirtualMachine", Fleet: fleetssh.Kind().Name, Settings: machineSettings, Keep: keepHostKey, Probe: probeMachine},
		{Type: "Slurm", Engine: targetslurm.Kind().Name, Settings: slurmSettings, Keep: keepLoginKey, Probe: probeSlurm},
		{Type: "Kubernetes", Engine: targetkube.Kind().Name, Settings: whole, Probe: probeKubernetes, Containers: true},
	}
}

// engine is the kind of target with that name.
func engine(name string) *target.Kind {
	for _, k := range targets() {
		if k.Name == name {
			return &k
		}
	}
	return nil
}

// fleetKind is the kind of fleet with that name, which a configuration was checked to have.
func fleetKind(name string) fleet.Kind {
	for _, k := range fleets() {
		if k.Name == name {
			return k
		}
	}
	return fleets()[0]
}
