//go:build !linux

package process

import (
	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

func (p *process) measure() (target.Usage, error) {
	return target.Usage{}, trainyard.Errorf(trainyard.CodeUnsupported, "what a task uses is measured on Linux only")
}
