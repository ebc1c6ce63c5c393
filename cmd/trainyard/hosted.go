package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/control"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/loop"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/taskrun/slim"
)

// hostAgain is how long a hosted node that could not be opened waits for the next try.
const hostAgain = 5 * time.Second

// hostNodes runs an agent in this process for each node that is hosted: of the computes "local", and of engines that have machines of
// their own.
func hostNodes(ctx context.Context, cfg *serverConfig, will *control.Control, ca []byte, id *identity.Service) error {
	group := loop.New(cfg.Log)
	defer group.Stop()
	kept := newFolders(cfg.Dir, id, cfg.Log)
	if err := kept.sweep(will.Store.AllNodes()); err != nil {
		cfg.Log.Warn("look for what is left of nodes that are gone", "err", err)
	}
	group.Go("folders of nodes that are gone", kept.gone.Run)
	type hosting struct {
		settings string
		again    chan struct{} // a wish to begin anew
	}
	hosted := map[trainyard.NodeID]*hosting{}
	var rev int64
	for ctx.Err() == nil {
		var nodes []control.Hosted
		nodes, rev = will.HostedNodes(ctx, rev)
		for _, n := range nodes {
			if h := hosted[n.Node]; h != nil {
				if h.settings != string(n.Settings) {
					h.settings = string(n.Settings)
					select {
					case h.again <- struct{}{}:
					default:
					}
				}
				continue
			}
			h := &hosting{string(n.Settings), make(chan struct{}, 1)}
			hosted[n.Node] = h
			group.Go("agent of "+string(n.Node), func(ctx context.Context) error { return hostOne(ctx, cfg, will, kept, n, ca, h.again) })
		}
	}
	return nil
}

// hostOne is the agent of one hosted node, until the node is let go. It begins anew when its settings were changed.
func hostOne(ctx context.Context, cfg *serverConfig, will *control.Control, kept *folders, n control.Hosted, ca []byte, again <-chan struct{}) error {
	for ctx.Err() == nil {
		n = will.HostedAgain(ctx, n) // its settings may have been mended since
		token, err := will.JoinToken(n.Node)
		if err != nil {
			return err
		}
		node := nodeConfig{ID: n.Node, JoinToken: token, Link: will, Dir: kept.of(n.Node), Cache: filepath.Join(cfg.Dir, "cache"),
			Group: string(n.Node), Address: "127.0.0.1", Direct: true, Hide: secretPaths(cfg.Dir), Log: cfg.Log.With("node", n.Node)}
		under, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-again:
				cancel()
			case <-under.Done():
			}
		}()
		if err = kept.make(n.Node); err != nil {
			err = fmt.Errorf("make the folder of the node: %w", err)
		} else if n.Engine != "" {
			err = hostEngine(under, cfg, will, n, node, ca)
		} else {
			err = hostNode(under, node)
		}
		changed := under.Err() != nil
		cancel()
		if ctx.Err() != nil {
			break
		}
		if changed {
			continue
		}
		if err == nil || will.IsLeaving(ctx, n.Node) {
			if err := will.HostedGone(ctx, n.Node); err != nil {
				return err
			}
			kept.gone.Add(n.Node)
			return nil
		}
		cfg.Log.Warn("host a node", "node", n.Node, "err", err)
		if err := will.HostedFailed(ctx, n.Node, err.Error()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-time.After(hostAgain):
		}
	}
	return nil
}

// hostEngine is the agent of an engine.
func hostEngine(ctx context.Context, cfg *serverConfig, will *control.Control, h control.Hosted, n nodeConfig, ca []byte) error {
	kind := engine(h.Engine)
	if kind == nil {
		return trainyard.Errorf(trainyard.CodeUnsupported, "the engine %q is not in this build", h.Engine)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := slim.Unpack(filepath.Join(cfg.Dir, "programs"), self)
	if err != nil {
		return err
	}
	url, trust := reachable(cfg.addr, h.Settings), ""
	env := target.Env{Dir: filepath.Join(n.Dir, "tasks"), Group: n.Group, Log: n.Log, Program: program, Server: url, Hide: n.Hide, Tells: true}
	if strings.HasPrefix(url, "https:") {
		trust = string(ca)
		env.CA = filepath.Join(cfg.Dir, "tls", "ca.pem")
	}
	driver, err := openDriver(ctx, *kind, h.Settings, env)
	if err != nil {
		return err
	}
	if err := will.HostedFailed(ctx, h.Node, ""); err != nil {
		return err
	}
	n.Server, n.CA, n.SelfStaged = url, trust, kind.SelfStaged
	told := ""
	n.Trouble = func(ctx context.Context, err error) {
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why == told {
			return
		}
		if err := will.HostedFailed(ctx, h.Node, why); err != nil {
			n.Log.Warn("write down what is wrong with the engine", "err", err)
			return
		}
		told = why
	}
	defer cfg.tellers.add(h.Node, driver)()
	return runNode(ctx, n, driver)
}

// sealKey reads the key that seals secrets in the database, and makes it at the first start.
func sealKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, 32)
		rand.Read(key)
		text = []byte(hex.EncodeToString(key))
		err = writeWhole(path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("the key that seals secrets: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%s is not 64 hexadecimal digits; take it from a backup: without it the passwords and keys of attached computes are lost", path)
	}
	return key, nil
}

// writeWhole writes a file that is there whole or not at all, whatever happens in between.
func writeWhole(path string, data []byte) error {
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
