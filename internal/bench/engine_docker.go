package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// dockerRun is Docker by itself: one `docker run --rm` a job, with the network and the image that Trainyard's tasks have.
type dockerRun struct{ host, image string }

func openDocker(ctx context.Context, binary string) (*contest, error) {
	host, image := os.Getenv(dockerHost), os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE")
	s, err := startServer(ctx, binary, setup{env: []string{"DOCKER_HOST=" + host}})
	if err != nil {
		return nil, err
	}
	c := &contest{plain: dockerRun{host, image}, server: s}
	o, err := s.through(ctx, "local", image)
	c.ours = []entrant{{o, "docker on this computer",
		"the engine, which makes and starts the container; of Trainyard's own some 5 ms and the shell that is first in the container",
		"processor, all cores full: the engine making and removing containers; Trainyard adds two commits, some files and the shells in each container, `docker run` its own start"}}
	return c, err
}

func (d dockerRun) run(ctx context.Context, text string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", "run", "--rm", "--network", "host", d.image, "bash", "-c", text)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+d.host)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker run: %w", err)
	}
	return string(out), nil
}

func (d dockerRun) start(ctx context.Context, _ string) (time.Duration, error) {
	at := time.Now()
	text, err := d.run(ctx, sayTime)
	if err != nil {
		return 0, err
	}
	began, err := stamp(text)
	return began.Sub(at), err
}

func (d dockerRun) many(ctx context.Context, _, work string, n int) (time.Duration, error) {
	at := time.Now()
	err := atOnce(n, func(int) error {
		_, err := d.run(ctx, work)
		return err
	})
	return time.Since(at), err
}
