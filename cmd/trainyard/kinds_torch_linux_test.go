package main

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// addTorch trains the second model in its image, on this lab's engine, and adds the kinds that serve it from the same image. Each has an
// engine: this computer's for those on it, one of its own for the attached machine, and the cluster, if there is one.
func (s *servedLab) addTorch(t *testing.T, kube *servedLab) {
	t.Helper()
	l := s.lab
	l.cli("job", "create", "-f", torch.files+"/job.yml", "-n", "torch", "-o", "none")
	l.until("torch", trainyard.JobCompleted)
	l.cli("model", "create", "-n", torch.name, "--path", "azureml://jobs/torch/outputs/model", "-o", "none")
	plain := s.plain("torch")
	s.add("local", plain, "--local").model = torch
	s.add("managed", plain).model = torch
	if sshtest.Missing() == "" {
		s.addMachine(s.engined(t), plain).model = torch
	}
	s.add("container instance", plain, "--set", "type=container_instance").model = torch
	if kube != nil {
		kube.bringModel(s, torch.name, "custom_model")
		kube.addKubernetes(plain).model = torch
	}
}

// engined is the attached machine that has a Docker engine of its own with the images of the models there are, and a user who may use it.
func (s *servedLab) engined(t *testing.T) *sshtest.Machine {
	t.Helper()
	if s.machine != nil {
		return s.machine
	}
	dir, err := os.MkdirTemp("", "engine") // t.TempDir is too long for sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engines, err := filepath.Abs("../../test/engines")
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	cache := cmp.Or(os.Getenv("TRAINYARD_ENGINES_CACHE"), filepath.Join(home, ".cache", "trainyard-engines"))
	host := "unix://" + dir + "/run/docker.sock"
	images := ""
	for script, variable := range map[string]string{"torch.sh": "TRAINYARD_TEST_TORCH_IMAGE", "triton.sh": "TRAINYARD_TEST_TRITON_IMAGE"} {
		if os.Getenv(variable) != "" {
			images += " && " + engines + "/" + script
		}
	}
	m := sshtest.New(t, sshtest.Options{Cgroups: true, Config: []string{"SetEnv DOCKER_HOST=" + host}})
	t.Cleanup(func() { m.Run(t, engines+"/docker/down.sh "+dir) })
	m.Run(t, "export TRAINYARD_ENGINES_CACHE="+cache+" TRAINYARD_TEST_DOCKER_HOST="+host+"; "+engines+"/docker/up.sh "+dir+images)
	m.Run(t, "chmod a+x "+dir+" "+dir+"/run && chmod a+rw "+dir+"/run/docker.sock")
	return m
}
