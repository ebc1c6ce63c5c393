package docker

import (
	"context"
	"net"

	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var _ target.Reached = (*Driver)(nil)

// Reached is loopback where replicas have this computer's network, and else the address that it has in theirs.
func (d *Driver) Reached(ctx context.Context) (string, error) {
	mode, err := d.serveNetwork(ctx)
	if err != nil {
		return "", err
	}
	if mode == hostNetwork {
		return "127.0.0.1", nil
	}
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	r, err := d.engine.NetworkInspect(ctx, string(mode), client.NetworkInspectOptions{})
	if err != nil {
		return "", engineError(err)
	}
	for _, c := range r.Network.IPAM.Config {
		if c.Gateway.IsValid() && isOurs(c.Gateway.String()) {
			return c.Gateway.String(), nil
		}
	}
	return "", trainyard.Errorf(trainyard.CodeUnsupported, "containers on the engine's network %s do not reach this computer by an address of its own, "+
		"because the engine runs in a machine of its own or without a bridge here", mode)
}

// isOurs says whether an address is one of this computer's.
func isOurs(ip string) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.String() == ip {
			return true
		}
	}
	return false
}
