package agent

import (
	"context"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// imagePatience is how long a registry may take to say whether it has an image.
const imagePatience = 5 * time.Second

// lookForImages has the driver say whether images can be had that the server asks for, each once for as long as it asks.
func (a *Agent) lookForImages(ctx context.Context, images []string) {
	checker, ok := a.cfg.Driver.(target.ImageChecker)
	if !ok {
		return
	}
	before := a.images
	a.images = make(map[string]bool, len(images))
	for _, image := range images {
		a.images[image] = true
		if !before[image] {
			a.running.Go(func() { a.lookForImage(ctx, checker, image) })
		}
	}
}

func (a *Agent) lookForImage(ctx context.Context, checker target.ImageChecker, image string) {
	under, cancel := context.WithTimeout(ctx, imagePatience)
	word, err := checker.CheckImage(under, image)
	cancel()
	if err != nil { // nothing is known, which holds nobody up
		word = trainyard.ImageWord{Image: image}
	}
	var tries backoff
	for range 5 {
		l, err := a.leases.get(ctx)
		if err == nil {
			err = a.cfg.Link.Report(ctx, trainyard.Report{Node: a.cfg.Node, Epoch: l.Epoch, Images: []trainyard.ImageWord{word}})
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		a.log.Warn("say whether an image can be had", "image", image, "err", err)
		pause(ctx, tries.next())
	}
}
