//go:build !linux

package store

import (
	"os/exec"
	"syscall"
)

func unprivileged(string) (attr func() *syscall.SysProcAttr, missing string) {
	return nil, "the tests start PostgreSQL on Linux only"
}

func (p *postgresServer) run(*exec.Cmd) {}
