package modelserver

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// scriptCollections are the collections that a scoring script fills itself, with azureml-ai-monitoring: all but request and response. A script
// that makes a Collector does not load unless that is told where its rows go; here it is told to write them to the log.
func (p *Plan) scriptCollections(d *trainyard.DataCollector) {
	if d == nil {
		return
	}
	var names []string
	most := 0.0
	for _, name := range slices.Sorted(maps.Keys(d.Collections)) {
		c := d.Collections[name]
		if lower := strings.ToLower(name); lower == "request" || lower == "response" || strings.EqualFold(c.DataCollectionMode, "Disabled") {
			continue
		}
		names = append(names, name)
		rate := 1.0
		if d.SamplingRate > 0 {
			rate = d.SamplingRate
		}
		if c.SamplingRate > 0 {
			rate = c.SamplingRate
		}
		most = max(most, rate)
	}
	if len(names) == 0 {
		return
	}
	for k, v := range map[string]string{"AZUREML_MDC_ENABLED": "true", "AZUREML_MDC_LOCAL_CAPTURE": "true",
		"AZUREML_MDC_SAMPLE_RATE": strconv.Itoa(int(math.Ceil(100 * min(most, 1))))} {
		if _, said := p.Env[k]; !said {
			p.Env[k] = v
		}
	}
	p.warn("data_collector: what the scoring script collects itself (%s) is written to the replica's log, and not to a datastore; request and response are collected "+
		"without code", strings.Join(names, ", "))
}
