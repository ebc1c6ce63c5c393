package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// way is one way to the same replica.
type way struct {
	name, url, key string
	pids           []int // whose processor time is the proxy's; none: there is no proxy
}

// process is one that the bench started and ends.
type process struct {
	cmd   *exec.Cmd
	first string // line of its output
}

// begin starts a process and waits for its first line.
func begin(ctx context.Context, env []string, logFile string, program string, args ...string) (*process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Env, p.cmd.Stderr = env, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if p.first, err = bufio.NewReader(stdout).ReadString('\n'); err != nil {
		p.end()
		said, _ := os.ReadFile(logFile)
		return nil, fmt.Errorf("%s did not start: %s", filepath.Base(program), said)
	}
	p.first = strings.TrimSpace(p.first)
	return p, nil
}

func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// nginxConf is nginx as a plain reverse proxy: as many workers as processors, connections to the replica kept, nothing logged.
const nginxConf = `daemon off;
%s
worker_processes auto;
pid %[2]s/nginx.pid;
error_log %[2]s/nginx-error.log;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi; uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
  keepalive_requests 1000000000;
  upstream replica { server %[3]s; keepalive %[4]d; keepalive_requests 1000000000; }
  server {
    listen %[5]s;
    location / { proxy_pass http://replica; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`

// nginx starts one in front of a replica.
func nginx(ctx context.Context, dir, replica string) (way, func(), error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program = "/usr/sbin/nginx"; !isThere(program) {
			return way{}, nil, fmt.Errorf("nginx is not installed (Debian: nginx)")
		}
	}
	addr, err := freePort()
	if err != nil {
		return way{}, nil, err
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // else its workers may not enter dir
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, user, dir, replica, manyClients, addr), 0o644); err != nil {
		return way{}, nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-p", dir, "-c", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return way{}, nil, err
	}
	end := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	if err := answers(ctx, addr); err != nil {
		end()
		return way{}, nil, fmt.Errorf("nginx did not start: %w: %s", err, said.String())
	}
	return way{name: "nginx", url: "http://" + addr + "/score", pids: append(childrenOf(cmd.Process.Pid), cmd.Process.Pid)}, end, nil
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// freePort is an address of loopback that nobody listens on just now.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// answers waits until somebody accepts connections at an address.
func answers(ctx context.Context, addr string) error {
	for try := 0; ; try++ {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			return nc.Close()
		}
		if try == 100 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// childrenOf are a process's children.
func childrenOf(pid int) []int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var out []int
	for _, word := range strings.Fields(string(data)) {
		if n, err := strconv.Atoi(word); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// processorTime is what processes have used of processors so far, to a hundredth of a second.
func processorTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		for _, word := range fields[11:13] { // utime, stime, in hundredths on every Linux
			n, err := strconv.Atoi(word)
			if err != nil {
				return 0, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
			}
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum, nil
}
