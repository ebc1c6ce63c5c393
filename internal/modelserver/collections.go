package modelserver

import (
	"math"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// scriptCollections are the collections that a scoring script fills itself, with azureml-ai-monitoring: all but request and response. A script
// that makes a Collector does not load unless that is switched on. It knows one rate of samples for all; the node, which tells it where its
// rows go, takes of each collection what is left to leave out.
func (p *Plan) scriptCollections(d *trainyard.DataCollector) {
	if d == nil {
		return
	}
	rates := map[string]float64{}
	most := 0.0
	for name, c := range d.Collections {
		switch lower := strings.ToLower(name); {
		case lower == "request" || lower == "response":
			continue
		case strings.EqualFold(c.DataCollectionMode, "Disabled"):
			rates[name] = 0
			continue
		case c.SamplingRate > 0:
			rates[name] = min(c.SamplingRate, 1)
		case d.SamplingRate > 0:
			rates[name] = min(d.SamplingRate, 1)
		default:
			rates[name] = 1
		}
		most = max(most, rates[name])
	}
	if most == 0 {
		return
	}
	percent := math.Ceil(100 * most)
	for k, v := range map[string]string{"AZUREML_MDC_ENABLED": "true", "AZUREML_MDC_SAMPLE_RATE": strconv.Itoa(int(percent))} {
		if _, said := p.Env[k]; !said {
			p.Env[k] = v
		}
	}
	for name := range rates {
		rates[name] *= 100 / percent
	}
	p.Serve.Collects = rates
}
