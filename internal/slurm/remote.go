package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
)

// Login is a login node of the cluster, where Slurm is asked and files are, over SSH.
type Login struct {
	login.Settings
	KeyFile string `json:"privateKeyFile,omitempty"` // file of this computer's with the private key, instead of the key itself
}

func (l *Login) validate() error {
	s := l.Settings
	if l.KeyFile != "" && s.PrivateKey == "" && s.Password == "" {
		s.Password = "in the file" // something to log in with
	}
	return s.Validate()
}

// access is how to log in, now.
func (l *Login) access() (login.Settings, error) {
	s := l.Settings
	if l.KeyFile != "" {
		key, err := os.ReadFile(l.KeyFile)
		if err != nil {
			return s, fmt.Errorf("the private key for login node %s: %w", s.Address, err)
		}
		s.PrivateKey = string(key)
	}
	return s, nil
}

const (
	sessions   = 7                // commands at once; sshd allows ten sessions (MaxSessions), one of which has our files
	reachAgain = time.Second      // between tries to reach a login node that is away
	greeting   = 30 * time.Second // for sshd to offer its files
)

// remote is a login node: one connection, made when it is needed and again when it is gone. While it is gone every call says so at once.
type remote struct {
	at    Login
	pin   string // file with the host key that is believed, unless the settings name one; "" keeps none
	slots chan struct{}
	life  context.Context
	end   context.CancelFunc
	work  sync.WaitGroup

	mu    sync.Mutex // held by whoever dials
	conn  *conn
	shown ssh.PublicKey
	away  error // why there is no connection
	since time.Time
	tried time.Time
}

// conn is a connection.
type conn struct {
	*ssh.Client
	files *sftp.Client
}

func newRemote(at Login, pin string) *remote {
	r := &remote{at: at, pin: pin, slots: make(chan struct{}, sessions)}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

func (r *remote) close() {
	r.end()
	r.work.Wait()
}

// reach returns the connection.
func (r *remote) reach() (*conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.life.Err() != nil:
		return nil, r.lost(context.Canceled)
	case r.conn != nil:
		return r.conn, nil
	case r.away != nil && time.Since(r.tried) < reachAgain:
		return nil, r.lost(r.away)
	}
	c, err := r.dial()
	r.tried = time.Now()
	if err != nil {
		if r.away = err; r.since.IsZero() {
			r.since = time.Now()
		}
		return nil, r.lost(err)
	}
	r.conn, r.away, r.since = c, nil, time.Time{}
	r.work.Go(func() {
		why := login.Stay(r.life, c.Client, login.Alive)
		c.files.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.conn, r.since, r.away, r.tried = nil, time.Now(), fmt.Errorf("the connection to %s ended: %w", r.at.Endpoint(), why), time.Time{}
	})
	return c, nil
}

// lost says that the login node is out of reach, and since when.
func (r *remote) lost(err error) error {
	words := err.Error()
	if !r.since.IsZero() {
		words = fmt.Sprintf("out of reach since %s: %s", r.since.Format("15:04:05"), words)
	}
	return &Error{Command: "login node " + r.at.Address, Words: words, Err: errAway}
}

// broken is an error of a connection, as opposed to one of what was asked for through it.
func (r *remote) broken(doing string, err error) error {
	return &Error{Command: "login node " + r.at.Address, Words: fmt.Sprintf("the connection broke off (%s: %v)", doing, err), Err: errAway}
}

// dial logs in. The first host key that is shown is believed from then on.
func (r *remote) dial() (*conn, error) {
	s, err := r.at.access()
	if err != nil {
		return nil, err
	}
	if s.HostKey == "" && r.pin != "" {
		key, err := os.ReadFile(r.pin)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		s.HostKey = strings.TrimSpace(string(key))
	}
	c, shown, err := login.Dial(r.life, &s)
	if err != nil {
		return nil, err
	}
	if s.HostKey == "" && r.pin != "" {
		if err := WriteFile(r.pin, ssh.MarshalAuthorizedKey(shown), 0o600); err != nil {
			c.Close()
			return nil, err
		}
	}
	r.shown = shown
	hang := time.AfterFunc(greeting, func() { c.Close() })
	defer hang.Stop()
	files, err := sftp.NewClient(c, sftp.UseConcurrentWrites(true))
	if err != nil {
		c.Close()
		return nil, trainyard.Invalid("sshd of %s lets us in, but not to its files (%v); switch SFTP on there (Subsystem sftp internal-sftp)", s.Endpoint(), err)
	}
	return &conn{c, files}, nil
}

// run runs a command of Slurm's there. All goes through standard input as the body of a function, so that half of it does nothing, and
// whatever the login shell is.
func (r *remote) run(ctx context.Context, c command) (string, string, error) {
	var b strings.Builder
	b.WriteString("main() {\n")
	if c.input != "" {
		fmt.Fprintf(&b, "printf %%s %s | ", Quote(c.input))
	}
	b.WriteString(`env -i LANG=C.UTF-8 SHELL=/bin/bash HOME="$HOME" USER="$(id -un)" LOGNAME="$(id -un)" `)
	path := "$PATH:/usr/local/bin:/usr/bin:/bin"
	if c.folder != "" {
		path = c.folder + ":" + path
	}
	fmt.Fprintf(&b, `PATH="%s" `, path)
	if c.conf != "" {
		fmt.Fprintf(&b, "SLURM_CONF=%s ", Quote(c.conf))
	} else {
		b.WriteString(`${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} `)
	}
	for _, word := range append(append(c.env, c.name), c.args...) {
		b.WriteString(Quote(word) + " ")
	}
	if c.input == "" {
		b.WriteString("</dev/null")
	}
	b.WriteString("\n}\n")
	out, errs, err := r.script(ctx, b.String())
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok && exit.ExitStatus() == 127 {
		return "", "", &Error{Command: c.name, Err: err, Words: fmt.Sprintf(
			"there is no %s in PATH on login node %s: name the folder of Slurm's commands there (setting commands)", c.name, r.at.Address)}
	}
	// Shells tell of signals with 128 and their numbers. Other commands of Slurm's say with such a status what was wrong, see scancel.c.
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok && c.name == "sbatch" && exit.ExitStatus() > 128 && exit.ExitStatus() < 128+32 {
		err = untold(c.name, "it was ended from outside ("+exit.Error()+")", errs)
	}
	return out, errs, err
}

// script runs the function main of a script there. What login shells print before it is dropped.
func (r *remote) script(ctx context.Context, text string) (out, errs string, err error) {
	const mark = "@@trainyard@@\n"
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
	c, err := r.reach()
	if err != nil {
		return "", "", err
	}
	s, err := c.NewSession()
	if err != nil {
		return "", "", r.broken("open a session", err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	var o, e strings.Builder
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader(text+"printf '%s\\n' "+strings.TrimSpace(mark)+"\nmain\n"), &o, &e
	err = s.Run("exec sh -s")
	_, out, _ = strings.Cut(o.String(), mark)
	var exit *ssh.ExitError
	switch {
	case err == nil, errors.As(err, &exit):
		return out, e.String(), err
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	}
	return "", "", r.broken("run a command", err)
}

// system is what the login node runs, as Go names it.
func (r *remote) system(ctx context.Context) (string, error) {
	out, errs, err := r.script(ctx, "main() { uname -s -m; }\n")
	if err != nil {
		return "", fmt.Errorf("ask login node %s what it runs: %w (%s)", r.at.Address, err, lastWords(errs))
	}
	name, machine, _ := strings.Cut(strings.TrimSpace(out), " ")
	arch := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[machine]
	if name != "Linux" || arch == "" {
		return "", trainyard.Errorf(trainyard.CodeUnsupported, "login node %s runs %s on %s; clusters can be Linux on x86_64 or aarch64", r.at.Address, name, machine)
	}
	return "linux-" + arch, nil
}

// Program is the file of this computer with the program that the cluster's nodes run: path, unless they are of another kind.
func (c *Client) Program(ctx context.Context, path string) (string, error) {
	r, ok := c.Files.(*remote)
	if !ok {
		return path, nil
	}
	system, err := r.system(ctx)
	if err != nil || system == runtime.GOOS+"-"+runtime.GOARCH {
		return path, err
	}
	other := filepath.Join(filepath.Dir(path), "trainyard-"+system)
	if _, err := os.Stat(other); err != nil {
		return "", trainyard.Errorf(trainyard.CodeUnsupported, "the cluster's nodes need the program for %s, and the server has none: \"make cross\" makes bin/%s; the server looks for it as %s",
			system, filepath.Base(other), other)
	}
	return other, nil
}

// HostKey is the key that the login node showed, as authorized_keys has it, and its fingerprint for people; both are "" without one.
func (c *Client) HostKey() (key, fingerprint string) {
	r, ok := c.Files.(*remote)
	if !ok {
		return "", ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown == nil {
		return "", ""
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(r.shown))), ssh.FingerprintSHA256(r.shown)
}
