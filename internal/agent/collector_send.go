package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// rowsFile ends the name of the file that has, while a replica runs, the rows that its script collected and the server has not: one a line,
// after the collection's name and a tab. An agent that is killed loses none that it took, and may send those of its last second twice.
const rowsFile = ".rows"

// add keeps a row for the next send; false: too much waits.
func (c *collector) add(collection string, row []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes+len(row) > collectedWaits {
		return false
	}
	c.hold(collection, row)
	if c.file != nil {
		if _, err := c.file.Write(fileRow(collection, row)); err != nil {
			c.noFile(err)
		}
	}
	return true
}

// hold puts a row in line. The caller holds mu.
func (c *collector) hold(collection string, row []byte) {
	c.rows[collection] = append(c.rows[collection], row)
	c.bytes += len(row)
}

// fileRow is a row as the file has it: a line that begins with the collection's name.
func fileRow(collection string, row []byte) []byte {
	return append(append([]byte(collection), '\t'), row...)
}

// openFile takes up the rows that an earlier agent had taken and not sent, and opens the file for those that come.
func (c *collector) openFile() {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := os.ReadFile(c.k.base + rowsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.noFile(err)
		return
	}
	for line := range bytes.Lines(data) {
		name, row, ok := bytes.Cut(line, []byte{'\t'})
		if ok && bytes.HasSuffix(row, []byte{'\n'}) { // what was being written when the agent was killed was not taken
			c.hold(string(name), row)
		}
	}
	c.trimFile()
}

// trimFile leaves in the file the rows that wait, and has it open for more. At any moment the file is whole, the old one or the new one. The
// caller holds mu.
func (c *collector) trimFile() {
	name := c.k.base + rowsFile
	if c.bytes == 0 && c.file != nil {
		if err := c.file.Truncate(0); err != nil {
			c.noFile(err)
		}
		return
	}
	var all []byte
	for _, collection := range slices.Sorted(maps.Keys(c.rows)) {
		for _, row := range c.rows[collection] {
			all = append(all, fileRow(collection, row)...)
		}
	}
	if c.file != nil {
		c.file.Close() // some systems replace no file that is open
		c.file = nil
	}
	err := os.WriteFile(name+".part", all, 0o600)
	if err == nil {
		err = os.Rename(name+".part", name)
	}
	if err == nil {
		c.file, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		c.noFile(err)
	}
}

// noFile goes on without one. The caller holds mu.
func (c *collector) noFile(err error) {
	c.k.a.log.Warn("rows that the scoring script collects are lost if this agent is killed before they are sent", "task", c.k.id, "err", err)
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
}

// run sends what waits every second, and what is left when the replica has ended.
func (c *collector) run(ctx context.Context) {
	defer close(c.done)
	every := time.NewTicker(collectedEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			c.send(ctx)
			continue
		case <-c.wake:
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectedLast)
		defer cancel()
		c.send(last)
		c.mu.Lock()
		lost := c.bytes
		if c.file != nil {
			c.file.Close()
		}
		c.mu.Unlock()
		if lost > 0 && ctx.Err() == nil { // else it is this agent that ends, and the next finds them
			c.k.warn(fmt.Sprintf("%d bytes of rows that the scoring script collected last were lost: the server did not take them", lost))
		}
		return
	}
}

// send gives what waits to the server, in pieces of whole rows. What it does not take now is tried again, what it refuses is dropped.
func (c *collector) send(ctx context.Context) {
	c.mu.Lock()
	waiting := maps.Clone(c.rows)
	c.mu.Unlock()
	sent := false
	defer func() {
		if sent {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.trimFile()
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		for rows := waiting[name]; len(rows) > 0; {
			n, size := 0, 0
			for n < len(rows) && size+len(rows[n]) <= collectedPiece {
				size += len(rows[n])
				n++
			}
			piece := bytes.Join(rows[:n], nil)
			err := c.put(ctx, name, piece)
			if err != nil && !refused(err) {
				c.k.a.log.Debug("send collected rows", "task", c.k.id, "collection", name, "err", err)
				break
			}
			if err != nil {
				c.k.a.log.Warn("collected rows are dropped", "task", c.k.id, "collection", name, "err", err)
			}
			rows, sent = rows[n:], true
			c.mu.Lock()
			c.rows[name], c.bytes = c.rows[name][n:], c.bytes-size
			if len(c.rows[name]) == 0 {
				delete(c.rows, name)
			}
			c.mu.Unlock()
		}
	}
}

// put hands rows over as a piece of a log whose name says that they are to be kept with the collection.
func (c *collector) put(ctx context.Context, name string, rows []byte) error {
	a := c.k.a
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	l, err := a.leases.get(ctx)
	if err != nil {
		return err
	}
	_, err = a.cfg.Link.Append(ctx, a.cfg.Node, l.Epoch, c.k.id, trainyard.CollectedLog+name, 0, rows)
	if outdated(err) {
		a.leases.drop(l)
		return trainyard.Errorf(trainyard.CodeBusy, "the node joins again: %v", err)
	}
	return err
}
