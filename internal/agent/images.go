package agent

import (
	"context"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// imagePatience is how long a registry may take to say whether it has an image.
const imagePatience = 5 * time.Second

// maxLooks is how many images are looked for at once.
const maxLooks = 4

// looking are the images that are being looked for.
type looking struct {
	mu sync.Mutex
	m  map[string]bool
}

// begin returns false if the image is being looked for already.
func (l *looking) begin(image string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m[image] {
		return false
	}
	if l.m == nil {
		l.m = map[string]bool{}
	}
	l.m[image] = true
	return true
}

func (l *looking) end(image string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, image)
}

// lookForImages has the driver say whether images can be had that the server asks for. One that it asks for still, or again, when it has
// been answered is looked for again.
func (a *Agent) lookForImages(ctx context.Context, images []string) {
	checker, ok := a.cfg.Driver.(target.ImageChecker)
	if !ok {
		return
	}
	for _, image := range images {
		if !a.images.begin(image) {
			continue
		}
		a.running.Go(func() {
			defer a.images.end(image)
			select {
			case a.looks <- struct{}{}:
				defer func() { <-a.looks }()
			case <-ctx.Done():
				return
			}
			a.lookForImage(ctx, checker, image)
		})
	}
}

func (a *Agent) lookForImage(ctx context.Context, checker target.ImageChecker, image string) {
	under, cancel := context.WithTimeout(ctx, imagePatience)
	word, err := checker.CheckImage(under, image)
	cancel()
	if err != nil {
		a.log.Debug("see whether an image can be had", "image", image, "err", err)
		word = trainyard.ImageWord{Image: image, Unknown: true}
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
