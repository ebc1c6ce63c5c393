package spec

import (
	"path"
	"slices"
	"strings"
)

// Kind is what a document describes.
type Kind string

// The kinds this build acts on.
const (
	CommandJob  Kind = "commandJob"
	PipelineJob Kind = "pipelineJob"
	Cluster     Kind = "amlCompute"
	Environment Kind = "environment"
	Data        Kind = "data"
	Datastore   Kind = "datastore"
	Workspace   Kind = "workspace"
	Model       Kind = "model"

	ComponentFile Kind = "component"

	Endpoint   Kind = "onlineEndpoint"   // managed or of Kubernetes
	Deployment Kind = "onlineDeployment" // of any type

	BatchEndpoint Kind = "batchEndpoint"
	BatchScoring  Kind = "batchDeployment" // of a model or a component
	BatchInputs   Kind = "batchInputs"     // of an invocation

	VirtualMachine Kind = "vmCompute"
	Kubernetes     Kind = "kubernetesCompute"
	Slurm          Kind = "slurmCompute" // ours, not Azure's
)

// computeKinds are the kinds of the types of compute that this build has.
var computeKinds = map[string]Kind{"": Cluster, "amlcompute": Cluster, "virtualmachine": VirtualMachine, "kubernetes": Kubernetes, "slurm": Slurm}

// nouns are the command line's nouns and the kind each means when a file says nothing more.
var nouns = map[string]Kind{"job": CommandJob, "compute": Cluster, "environment": Environment, "data": Data, "datastore": Datastore, "workspace": Workspace,
	"model": Model, "component": ComponentFile, "online-endpoint": Endpoint, "online-deployment": Deployment,
	"batch-endpoint": BatchEndpoint, "batch-deployment": BatchScoring, "batch-inputs": BatchInputs}

// schemas are the last parts of $schema, lower case without ".schema.json", with the noun and the type they stand for.
var schemas = map[string]struct{ noun, typ string }{
	"commandjob": {"job", "command"}, "pipelinejob": {"job", "pipeline"}, "sweepjob": {"job", "sweep"}, "sparkjob": {"job", "spark"},
	"paralleljob": {"job", "parallel"}, "importjob": {"job", "import"}, "finetuningjob": {"job", "finetuning"},
	"amlcompute": {"compute", "amlcompute"}, "computeinstance": {"compute", "computeinstance"}, "vmcompute": {"compute", "virtualmachine"},
	"synapsesparkcompute": {"compute", "synapsespark"}, "kubernetescompute": {"compute", "kubernetes"},
	"environment": {"environment", ""}, "data": {"data", ""}, "workspace": {"workspace", ""},
	"azureblob": {"datastore", "azure_blob"}, "azurefile": {"datastore", "azure_file"},
	"azuredatalakegen1": {"datastore", "azure_data_lake_gen1"}, "azuredatalakegen2": {"datastore", "azure_data_lake_gen2"},
	"commandcomponent": {"component", ""}, "pipelinecomponent": {"component", ""}, "sparkcomponent": {"component", ""},
	"model": {"model", ""}, "schedule": {"schedule", ""}, "batchendpoint": {"batch-endpoint", ""}, "batchdeployment": {"batch-deployment", ""},
	"modelbatchdeployment": {"batch-deployment", ""}, "pipelinecomponentbatchdeployment": {"batch-deployment", ""}, "managedonlineendpoint": {"online-endpoint", ""}, "kubernetesonlineendpoint": {"online-endpoint", ""},
	"managedonlinedeployment": {"online-deployment", ""}, "kubernetesonlinedeployment": {"online-deployment", ""}, "registry": {"registry", ""},
}

// jobTypes are the values of a job's type that are understood by name.
var jobTypes = []string{"command", "pipeline", "sweep", "spark", "automl", "parallel", "import", "finetuning", "distillation", "data_transfer", "labeling"}

// computeTypes are the values of a compute's type that are understood by name.
var computeTypes = []string{"amlcompute", "computeinstance", "virtualmachine", "kubernetes", "aks", "slurm", "synapsespark", "databricks", "hdinsight",
	"datalakeanalytics", "batch", "local"}

// detect finds the document's kind: the noun always suffices, type and $schema say more or contradict it.
func (d *Document) detect(noun string) {
	schema, typ := d.schema(), ""
	if t := d.root.get("type"); !t.null() && t.kind == scalar {
		typ = strings.ToLower(t.text)
	}
	if noun == "" {
		noun = guess(schema.noun, typ)
	}
	kind, known := nouns[noun]
	switch {
	case noun == "" && len(d.problems.list) > 0: // more is wrong than that
		return
	case noun == "":
		d.problems.at(d.root.place, "", "nothing says what this file is: add a $schema or a type")
		return
	case !known:
		d.problems.at(d.where("$schema"), "", "this build has no %ss", noun)
		return
	case schema.noun != "" && schema.noun != noun:
		d.problems.at(d.where("$schema"), "$schema", "this file is for %q, not for %q", schema.noun, noun)
		return
	}
	d.Kind = kind
	switch noun {
	case "job":
		if typ = d.jobType(typ, schema.typ); typ == "pipeline" {
			d.Kind = PipelineJob
			return
		}
		d.only("command", jobTypes, typ, "command and pipeline jobs")
	case "compute":
		if typ == "" {
			typ = schema.typ
		}
		if kind, built := computeKinds[typ]; built {
			d.Kind = kind
			return
		}
		d.only("amlcompute", computeTypes, typ, "amlcompute, virtualmachine, kubernetes and slurm computes")
	}
}

// only refuses every type of a noun but the one that is built, by name. runs says what there is instead; its last word is the noun's.
func (d *Document) only(built string, known []string, typ, runs string) {
	things := runs[strings.LastIndexByte(runs, ' ')+1:]
	switch {
	case typ == "" || typ == built:
	case strings.HasPrefix(typ, "automl") || slices.Contains(known, typ):
		d.problems.at(d.where("type"), "type", "%s %s are not run by this build: it runs %s", typ, things, runs)
		d.Kind = ""
	default:
		d.problems.at(d.where("type"), "type", "got %q, want %s", typ, built)
	}
}

// jobType is a job's type: as it says, as its $schema says, or as its fields show.
func (d *Document) jobType(typ, schema string) string {
	if typ != "" || schema != "" && schema != "command" {
		if typ == "" {
			typ = schema
		}
		return typ
	}
	for _, sign := range []struct{ field, typ string }{{"jobs", "pipeline"}, {"search_space", "sweep"}, {"trial", "sweep"}, {"entry", "spark"}, {"task", "automl"}} {
		if !d.root.get(sign.field).null() && d.root.get("command").null() {
			return sign.typ
		}
	}
	return "command"
}

func (d *Document) schema() (s struct{ noun, typ string }) {
	n := d.root.get("$schema")
	if n.null() || n.kind != scalar {
		return s
	}
	base := d.schemaName()
	if strings.HasPrefix(base, "automl") {
		return struct{ noun, typ string }{"job", "automl"}
	}
	return schemas[base]
}

// schemaName is the last part of $schema, in lower case and without ".schema.json"; "" where there is none.
func (d *Document) schemaName() string {
	n := d.root.get("$schema")
	if n.null() || n.kind != scalar {
		return ""
	}
	base, _, _ := strings.Cut(strings.ToLower(path.Base(n.text)), ".")
	return base
}

// guess is the noun of a file that is used without one.
func guess(schema, typ string) string {
	switch {
	case schema != "":
		return schema
	case slices.Contains(jobTypes, typ):
		return "job"
	case slices.Contains(computeTypes, typ):
		return "compute"
	case slices.Contains([]string{"azure_blob", "azure_file", "azure_data_lake_gen1", "azure_data_lake_gen2"}, typ):
		return "datastore"
	case typ == "uri_file" || typ == "uri_folder" || typ == "mltable":
		return "data"
	case strings.HasSuffix(typ, "_model"):
		return "model"
	}
	return ""
}

func (d *Document) where(field string) place {
	if n := d.root.get(field); n != nil {
		return n.place
	}
	return d.root.place
}
