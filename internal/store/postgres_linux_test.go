package store

import (
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
)

// unprivileged says as whom PostgreSQL runs, which refuses root: as the user "postgres" then. The folder becomes that user's.
func unprivileged(dir string) (attr func() *syscall.SysProcAttr, missing string) {
	plain := func() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT} }
	if os.Getuid() != 0 {
		return plain, ""
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, "PostgreSQL does not run as root and there is no user postgres"
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err.Error()
	}
	return func() *syscall.SysProcAttr {
		a := plain()
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return a
	}, ""
}

// run starts the server so that it dies with the tests, however they end: the thread that started it is kept for that.
func (p *postgresServer) run(server *exec.Cmd) {
	started, stop, gone := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread()
		err := server.Start()
		started <- err
		if err != nil {
			return
		}
		<-stop
		server.Process.Signal(syscall.SIGQUIT) // at once: there is nothing to keep
		server.Wait()
	}()
	if p.err = <-started; p.err == nil {
		p.kill = func() { close(stop); <-gone }
	}
}
