package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// requireVar, set to 1, makes a missing PostgreSQL a failure: nothing is to be skipped then.
const requireVar = "TRAINYARD_REQUIRE_ENGINES"

// postgresServer is a real PostgreSQL for the tests of this binary, started when the first test asks for it.
type postgresServer struct {
	once    sync.Once
	missing string // why there is none
	err     error
	dir     string
	kill    func()
	mu      sync.Mutex
	made    int
}

var thePostgres postgresServer

// database is the DSN of a new, empty database. It is dropped with the server.
func (p *postgresServer) database(t testing.TB) string {
	t.Helper()
	p.once.Do(p.start)
	if p.missing != "" && os.Getenv(requireVar) == "1" {
		t.Fatalf("%s=1 and there is no PostgreSQL: %s", requireVar, p.missing)
	}
	if p.missing != "" {
		t.Skipf("PostgreSQL half of %s not run: %s (apt-get install postgresql)", t.Name(), p.missing)
	}
	if p.err != nil {
		t.Fatalf("start PostgreSQL: %v", p.err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made++
	name := fmt.Sprintf("test%d", p.made)
	if err := p.admin("CREATE DATABASE " + name); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	return p.dsn(name)
}

func (p *postgresServer) dsn(name string) string {
	return "postgres://trainyard@/" + name + "?host=" + p.dir
}

func (p *postgresServer) admin(text string) error {
	db, err := sql.Open("pgx", p.dsn("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(text)
	return err
}

func postgresBinaries() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.Sort(found)
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	return ""
}

// start makes a cluster that listens on a socket in a folder of its own, with nothing durable: it lives as long as the tests.
func (p *postgresServer) start() {
	bin := postgresBinaries()
	if bin == "" {
		p.missing = "no initdb below /usr/lib/postgresql nor on the PATH"
		return
	}
	if p.dir, p.err = os.MkdirTemp("/tmp", "trainyard-pg-"); p.err != nil {
		return
	}
	user, missing := unprivileged(p.dir)
	if missing != "" {
		p.missing = missing
		return
	}
	data := filepath.Join(p.dir, "data")
	init := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "trainyard", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	init.SysProcAttr, init.Dir = user(), p.dir
	if out, err := init.CombinedOutput(); err != nil {
		p.err = fmt.Errorf("initdb: %w\n%s", err, out)
		return
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", p.dir, "-h", "", "-F", "-c", "max_connections=50", "-c", "shared_buffers=16MB")
	server.SysProcAttr, server.Dir = user(), p.dir
	p.run(server)
	if p.err == nil {
		p.err = p.awaitReady()
	}
}

func (p *postgresServer) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	db, err := sql.Open("pgx", p.dsn("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (p *postgresServer) stop() {
	if p.kill != nil {
		p.kill()
	}
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}
