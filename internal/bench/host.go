package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trainyard/trainyard/client"
)

// server is a server of the bench's own.
type server struct {
	binary, dir, url string
	cmd              *exec.Cmd
}

// setup is how a server is started; the zero value is a plain one on loopback.
type setup struct {
	listen string   // default a free port of loopback
	config string   // text of its configuration file
	env    []string // besides the bench's own
}

// startServer starts the program on a free port and waits until it has said where it serves.
func startServer(ctx context.Context, binary string, with setup) (*server, error) {
	abs, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trainyard-bench")
	if err != nil {
		return nil, err
	}
	s := &server{binary: abs, dir: dir}
	if err := s.launch(ctx, with); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func (s *server) launch(ctx context.Context, with setup) error {
	if err := os.Mkdir(s.stamps(), 0o755); err != nil {
		return err
	}
	return s.start(ctx, with)
}

// start starts the server, on the data that it may have already.
func (s *server) start(ctx context.Context, with setup) error {
	args := []string{"server", "--data", filepath.Join(s.dir, "data"), "--listen", "127.0.0.1:0"}
	if with.listen != "" {
		args[len(args)-1] = with.listen
	}
	if with.config != "" {
		file := filepath.Join(s.dir, "config.yml")
		if err := os.WriteFile(file, []byte(with.config), 0o600); err != nil {
			return err
		}
		args = append(args, "--config", file)
	}
	logFile, err := os.Create(filepath.Join(s.dir, "server.log"))
	if err != nil {
		return err
	}
	defer logFile.Close()
	s.cmd = exec.CommandContext(ctx, s.binary, args...)
	s.cmd.Env = append(s.environ(), with.env...)
	s.cmd.Stderr = logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for the bench, which ends it in order
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	said := bufio.NewReader(stdout)
	first, err := said.ReadString('\n') // "Trainyard VERSION serves URL"
	if err != nil {
		_ = s.cmd.Wait()
		return fmt.Errorf("the server did not start: %s", s.tail())
	}
	s.url = strings.TrimSpace(first[strings.LastIndex(strings.TrimSpace(first), " ")+1:])
	go func() { _, _ = io.Copy(io.Discard, said) }() // keep the pipe empty
	return nil
}

// environ is the environment of the server and of commands that speak to it.
func (s *server) environ() []string {
	return append(os.Environ(), "TRAINYARD_CONFIG_DIR="+s.config(), "TRAINYARD_URL=", "TRAINYARD_TOKEN=")
}

// stamps is where the jobs of a run write: beside the server's folders nothing new can be made by a job.
func (s *server) stamps() string { return filepath.Join(s.dir, "stamps") }

func (s *server) config() string { return filepath.Join(s.dir, "config") }

func (s *server) client() (*client.Client, error) { return client.FromProfile(s.config()) }

// cli runs a command of the program that must work.
func (s *server) cli(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = s.environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("trainyard %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (s *server) tail() string {
	data, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	return string(data[max(0, len(data)-2000):])
}

// halt ends the server and leaves its data.
func (s *server) halt() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

func (s *server) stop() {
	s.halt()
	_ = os.RemoveAll(s.dir)
}
