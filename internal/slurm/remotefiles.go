package slurm

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/pkg/sftp"
)

// The login node's files, over SFTP.

// readAhead is how much of a file is asked for at once.
const readAhead = 256 << 10

// try does something with a file there.
func (r *remote) try(doing, name string, f func(c *sftp.Client) error) error {
	c, err := r.reach()
	if err != nil {
		return err
	}
	return r.told(doing, name, f(c.files))
}

// told tells what the other end said from a connection that broke off.
func (r *remote) told(doing, name string, err error) error {
	status, said := errors.AsType[*sftp.StatusError](err)
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrExist),
		said && status.FxCode() != sftp.ErrSSHFxConnectionLost && status.FxCode() != sftp.ErrSSHFxNoConnection:
		return &fs.PathError{Op: doing, Path: r.at.Address + ":" + name, Err: err}
	}
	return r.broken(doing+" "+name, err)
}

func (r *remote) List(dir string) (out []fs.DirEntry, err error) {
	err = r.try("list", dir, func(c *sftp.Client) error {
		infos, err := c.ReadDir(dir)
		out = make([]fs.DirEntry, len(infos))
		for i, info := range infos {
			out[i] = fs.FileInfoToDirEntry(info)
		}
		return err
	})
	return out, err
}

func (r *remote) Stat(name string) (info fs.FileInfo, err error) {
	err = r.try("look at", name, func(c *sftp.Client) error { info, err = c.Stat(name); return err })
	return info, err
}

func (r *remote) Open(name string, from int64) (io.ReadCloser, error) {
	var out io.ReadCloser
	err := r.try("read", name, func(c *sftp.Client) error {
		f, err := c.Open(name)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			_, err = f.Seek(min(max(from, 0), info.Size()), io.SeekStart)
		}
		if err != nil {
			f.Close()
			return err
		}
		left := io.LimitReader(&reading{r, f, name}, max(0, info.Size()-max(from, 0)))
		out = &section{bufio.NewReaderSize(left, readAhead), f}
		return nil
	})
	return out, err
}

// reading is a file whose errors tell a broken connection from others.
type reading struct {
	r    *remote
	f    *sftp.File
	name string
}

func (f *reading) Read(p []byte) (int, error) {
	n, err := f.f.Read(p)
	return n, f.r.told("read", f.name, err)
}

func (r *remote) Write(name string, data io.Reader, mode fs.FileMode) error {
	part := name + ".part"
	err := r.try("write", name, func(c *sftp.Client) error {
		f, err := c.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
		if err != nil {
			return err
		}
		if err = f.Chmod(mode); err == nil { // before there is anything in it
			_, err = f.ReadFrom(data)
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return err
	}
	return r.Rename(part, name)
}

func (r *remote) Mkdir(dir string) error {
	return r.try("make", dir, func(c *sftp.Client) error { return mkdir(c, dir) })
}

func mkdir(c *sftp.Client, dir string) error {
	_, err := c.Stat(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := path.Dir(dir); parent != dir {
		if err := mkdir(c, parent); err != nil {
			return err
		}
	}
	if err := c.Mkdir(dir); err != nil {
		if _, there := c.Stat(dir); there == nil {
			return nil // somebody else made it
		}
		return err
	}
	return c.Chmod(dir, 0o700)
}

func (r *remote) Rename(from, to string) error {
	return r.try("rename", from, func(c *sftp.Client) error { return c.PosixRename(from, to) })
}

func (r *remote) Remove(name string) error {
	err := r.try("remove", name, func(c *sftp.Client) error { return c.Remove(name) })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if Away(err) {
		return err
	}
	word := Quote(name) // a folder with something in it
	_, errs, err := r.script(r.life, "main() { rm -rf -- "+word+" 2>/dev/null || { chmod -R u+rwx -- "+word+"; rm -rf -- "+word+"; }; }\n")
	if err != nil && !Away(err) {
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New(lastWords(errs))}
	}
	return err
}
