package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// CheckImage says that there is no image "away" yet. It cannot say anything of "dark".
func (c *containers) CheckImage(_ context.Context, image string) (trainyard.ImageWord, error) {
	c.mu.Lock()
	c.checks++
	c.mostChecks = max(c.mostChecks, c.checks)
	c.mu.Unlock()
	c.ask()
	c.mu.Lock()
	c.checks--
	c.mu.Unlock()
	if image == "dark" {
		return trainyard.ImageWord{Image: image}, errors.New("the engine is away")
	}
	return trainyard.ImageWord{Image: image, Missing: image == "away", Why: "the registry is away"}, nil
}

// words counts what was said of an image.
func (y *yard) words(image string) (n int) {
	for _, r := range y.srv.told() {
		for _, w := range r.Images {
			if w.Image == image {
				n++
			}
		}
	}
	return n
}

func TestAnImageIsLookedForAsOftenAsItIsAskedFor(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		y.during(func() {
			thaw := c.hang()
			y.srv.change(func() { y.srv.images = []string{"away", "here"} })
			<-time.After(time.Second)
			y.srv.change(func() {}) // it is asked for still, and being looked for
			<-time.After(time.Second)
			thaw()
			y.until("both are answered", func() bool { return y.words("away") == 1 && y.words("here") == 1 })
			y.srv.change(func() { y.srv.images = []string{"away"} }) // the server asks for it again
			y.until("it is looked for again", func() bool { return y.words("away") == 2 })
			y.srv.change(func() { y.srv.images = nil })
			<-time.After(time.Minute)
			if n := y.words("away") + y.words("here"); n != 3 {
				t.Errorf("%d words of images, want 3", n)
			}
		})
	})
}

func TestManyImagesAreNotLookedForAtOnce(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		most := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.mostChecks
		}
		y.during(func() {
			var many []string
			for i := range 20 {
				many = append(many, fmt.Sprint("image-", i))
			}
			thaw := c.hang()
			y.srv.change(func() { y.srv.images = many })
			y.until("some are looked for", func() bool { return most() > 0 })
			thaw()
			y.until("all are answered", func() bool {
				return !slices.ContainsFunc(many, func(image string) bool { return y.words(image) == 0 })
			})
			y.srv.change(func() { y.srv.images = nil })
		})
		if n := most(); n != 4 {
			t.Errorf("%d were looked for at once, want 4", n)
		}
	})
}

func TestAnEngineThatIsAwayDoesNotHaveAnImage(t *testing.T) {
	isolated(t, func(y *yard) {
		c := withContainers(y)
		defer c.off()
		y.during(func() {
			y.srv.change(func() { y.srv.images = []string{"dark", "here"} })
			y.until("both are answered", func() bool { return y.words("dark") > 0 && y.words("here") > 0 })
		})
		for _, r := range y.srv.told() {
			for _, w := range r.Images {
				if w.Unknown != (w.Image == "dark") || w.Missing {
					t.Errorf("it was said: %+v", w)
				}
			}
		}
	})
}
