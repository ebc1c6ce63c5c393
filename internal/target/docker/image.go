package docker

import (
	"context"
	"strings"

	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
)

// CheckImage says whether an image can be had here, without pulling it: it is here, or its registry knows it.
func (d *Driver) CheckImage(ctx context.Context, name string) (trainyard.ImageWord, error) {
	w := trainyard.ImageWord{Image: name}
	id, err := d.imageID(ctx, name)
	if err != nil && trainyard.ClassOf(err) == "" {
		return w, err // the engine is away: nothing is known
	}
	if err == nil && id == "" {
		_, err = d.engine.DistributionInspect(ctx, name, client.DistributionInspectOptions{EncodedRegistryAuth: credentials(name)})
		switch {
		case client.IsErrConnectionFailed(err):
			return w, engineError(err)
		case err != nil && ctx.Err() != nil:
			err = pullFault(name, errNoAnswer)
		case err != nil:
			w.Certain = registryRefuses(err)
			err = pullFault(name, err)
		}
	} else if err != nil {
		w.Certain = true // it is not the name of an image
	}
	if err != nil {
		w.Missing, w.Why = true, err.Error()
	}
	return w, nil
}

// registryRefuses says whether a registry has answered that there is no such image, or none for us.
func registryRefuses(err error) bool {
	low := strings.ToLower(err.Error())
	return refusesUs(low) || strings.Contains(low, "not found") || strings.Contains(low, "manifest unknown") || strings.Contains(low, "name unknown")
}
