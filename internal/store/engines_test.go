package store

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The same tests run on both databases: eachEngine calls them with the DSN of an empty one.

// childVar makes the test binary do something else: see TestMain.
const childVar = "TRAINYARD_STORE_CHILD"

func TestMain(m *testing.M) {
	if mode, arg, ok := strings.Cut(os.Getenv(childVar), "="); ok {
		os.Exit(child(mode, arg))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		flag.Set("rapid.checks", "30") // each opens databases
	}
	flag.Set("rapid.nofailfile", "true") // the seed in its message is enough
	code := m.Run()
	thePostgres.stop()
	os.Exit(code)
}

// child is what the test binary does when a test starts it as a process of its own.
func child(mode, dsn string) int {
	ctx := context.Background()
	s, err := Open(ctx, Config{DSN: dsn, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println("cannot open:", err)
		return 1
	}
	switch mode {
	case "open":
		s.Close()
		fmt.Println("opened")
	case "hold": // until standard input ends
		fmt.Println("opened")
		bufio.NewReader(os.Stdin).ReadString('\n')
		s.Close()
	case "ack":
		acknowledge(s)
	case "fill":
		return fill(s)
	}
	return 0
}

// reporter is what the tests and the properties report to.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

func open(t reporter, dsn string) *Store {
	t.Helper()
	s, err := Open(context.Background(), Config{DSN: dsn, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("open %s: %v", dsn, err)
	}
	return s
}

// opened is a store on the DSN that is closed with the test.
func opened(t testing.TB, dsn string) *Store {
	t.Helper()
	s := open(t, dsn)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func sqliteDSN(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "trainyard.db") }

// eachEngine runs the test on SQLite and on a PostgreSQL of its own.
func eachEngine(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sqliteDSN(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, thePostgres.database(t)) })
}

// within waits for a condition.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(limit), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}
