package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/rightsize"
)

func (a *app) modelProfile() *cobra.Command {
	cmd := a.verb(verb{
		use: "profile", short: "Find the right size: measure a deployment's model on growing sizes and say which one, and how many of it", noName: true,
		long: `Serves the model of a deployment's file under a temporary endpoint, first to see how much memory it needs, then on growing sizes with at
least 150 % of that, and sends the sample request to each, with more and more requests at once. It says the smallest size that answers in time
and how many instances of it the rate needs: first up, then out. Then it deploys just that, applies the rate, and says whether it held.
The temporary endpoint is deleted at the end, whatever the end is. Named sizes that this computer cannot give are listed as such.`,
		example: `  trainyard model profile --file blue.yml --request-file sample.json --rate 50 --p99 200ms
  trainyard model profile -f blue.yml -r sample.json --sizes Standard_DS1_v2,Standard_DS2_v2 --plot sizes.svg
  trainyard model profile -f blue.yml -r sample.json --rate 50 --p99 200ms --query recommendation.size -o tsv`,
		do: func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) error {
			p, err := a.newProfiler(ctx, c, cmd, args)
			if err != nil {
				return err
			}
			err = p.run(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return p.tell(err)
		},
	}, trainyard.KindModel)
	f := cmd.Flags()
	f.StringP("request-file", "r", "", "`FILE` of the sample request; - is standard input")
	f.String("content-type", "application/json", "what the request file is")
	f.Float64("rate", 0, "requests a second that should be answered")
	f.Duration("p99", 0, "time within which 99 % of the requests should be answered, such as 200ms")
	f.StringSlice("sizes", nil, "`SIZES` to measure, separated by commas (default: the cheapest of each number of vCPUs)")
	f.Duration("duration", 5*time.Second, "length of the load at each number of requests at once")
	f.Int("max-concurrency", 64, "most requests at once at an instance")
	f.Bool("no-verify", false, "do not apply the rate to what is recommended")
	f.String("plot", "", "`FILE` to write a plot to, as SVG")
	a.addLocation(cmd)
	_ = cmd.MarkFlagFilename("request-file") // these fail only for a flag that is not there
	_ = cmd.MarkFlagFilename("plot", "svg")
	return addFileFlags(cmd, "deployment")
}

// newProfiler reads what is to be measured, and where. It makes nothing on the server.
func (a *app) newProfiler(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) (*profiler, error) {
	f := cmd.Flags()
	p := &profiler{app: a, c: c, plot: flag(cmd, "plot"), verify: !flagBool(cmd, "no-verify"), contentType: flag(cmd, "content-type")}
	p.each, _ = f.GetDuration("duration") // these fail only for a flag that is not there
	p.most, _ = f.GetInt("max-concurrency")
	p.rep.Goal.Rate, _ = f.GetFloat64("rate")
	p99, _ := f.GetDuration("p99")
	p.rep.Goal.P99MS = float64(p99) / float64(time.Millisecond)
	names, _ := f.GetStringSlice("sizes")
	p.named = len(names) > 0
	switch {
	case p.each < 100*time.Millisecond:
		return nil, usagef("--duration is %s, want at least 100ms", p.each)
	case p.most < 1 || p.most > 1000:
		return nil, usagef("--max-concurrency is %d, want 1 to 1000", p.most)
	case p.rep.Goal.Rate < 0 || p99 < 0:
		return nil, usagef("--rate and --p99 must be more than 0")
	case flag(cmd, "request-file") == "":
		return nil, usagef("the sample request is missing: %s --file FILE --request-file FILE", cmd.CommandPath())
	}
	doc, err := document(cmd, args, "online-deployment", nil)
	if err != nil {
		return nil, err
	}
	if p.dep, err = doc.OnlineDeployment(c.Scope()); err != nil {
		return nil, err
	}
	body, err := a.requestBody(flag(cmd, "request-file"))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if p.body, err = io.ReadAll(body); err != nil {
		return nil, err
	}
	if p.rep.Location, err = a.location(ctx, c, cmd); err != nil {
		return nil, err
	}
	return p, p.place(ctx, names)
}

// place reads what the location has.
func (p *profiler) place(ctx context.Context, names []string) error {
	ans, err := p.c.Do(ctx, client.Request{Path: p.c.ProviderPath("locations", p.rep.Location)})
	if err != nil {
		return err
	}
	m, err := decode(ans.Body)
	if err != nil {
		return err
	}
	p.rep.Location = text(m, "name")
	if box := asMap(m["machine"]); box != nil {
		p.machine.VCPUs, _ = box["vcpus"].(float64)
		p.machine.MemoryGB, _ = box["memoryGB"].(float64)
		gpus, _ := box["gpus"].(float64)
		p.machine.GPUs = int(gpus)
	}
	items, err := rawList(p.c.ListAt(ctx, p.c.ProviderPath("locations", p.rep.Location, "vmSizes"), nil))
	if err != nil {
		return err
	}
	for _, it := range items {
		p.sizes = append(p.sizes, sizeOf(asMap(it)))
	}
	for _, s := range p.sizes {
		if strings.EqualFold(s.Name, p.dep.Spec.InstanceType) {
			p.gpus = s.GPUs
		}
	}
	if p.named {
		p.sizes, err = rightsize.Pick(p.sizes, names)
	}
	return err
}

// sizeOf reads a size as lists of sizes have it.
func sizeOf(e map[string]any) rightsize.Size {
	number := func(k string) float64 { v, _ := e[k].(float64); return v }
	s := rightsize.Size{Name: text(e, "name"), VCPUs: int(number("v_cp_us")), MemoryGB: number("memory_gb"), GPUs: int(number("gpus"))}
	s.NeedsApproval, _ = e["needs_approval"].(bool)
	_, _ = fmt.Sscan(price(e, "Standard"), &s.PricePerHour) // a size without a price costs nothing
	return s
}

// tell shows what was found, and why there is nothing to recommend if there is not.
func (p *profiler) tell(failure error) error {
	if len(p.rep.Sizes) == 0 {
		return failure
	}
	if p.plot != "" {
		var svg bytes.Buffer
		if err := writePlot(&svg, p.rep.Sizes, p.rep.Goal, p.rep.pick()); err != nil {
			return err
		}
		if err := os.WriteFile(p.plot, svg.Bytes(), 0o644); err != nil {
			return err
		}
		p.app.say("the plot is in %s", p.plot)
	}
	if err := p.app.print(p.rep.object(), view{table: func([]any) *table { return p.rep.table() }, detail: func(map[string]any) { p.detail() }}); err != nil {
		return err
	}
	if failure == nil && p.rep.Verification != nil && !p.rep.Verification.Held {
		return failed{1}
	}
	return failure
}

func (p *profiler) detail() {
	a, r := p.app, &p.rep
	fmt.Fprintf(a.out, "The model needs %s of memory; 150 %% of that is %s.\n\n", mebibytes(r.NeedMB), mebibytes(r.WantMB))
	r.table().print(a.console, a.out)
	if text := chart(r.Sizes, r.Goal, a.width); text != "" {
		fmt.Fprintf(a.out, "\n%s", text)
	}
	if rec := r.Recommendation; rec != nil {
		fmt.Fprintf(a.out, "\n%s %s, $%.3f an hour\n", a.paint(bold, "Recommended:"), a.paint(bold, fmt.Sprintf("%d × %s", rec.Instances, rec.Size)), rec.PricePerHour)
		a.pairs(a.out, [][2]string{{"in the file", fmt.Sprintf("instance_type: %s, instance_count: %d, request_settings: {max_concurrent_requests_per_instance: %d}",
			rec.Size, rec.Instances, rec.Concurrency)}, {"why", rec.Why}, {"cheaper", rec.Cheaper}})
	}
	if v := r.Verification; v != nil {
		mark := a.paint(green, "✓ it holds")
		if !v.Held {
			mark = a.paint(red, "✗ it does not hold: "+v.Why)
		}
		fmt.Fprintf(a.out, "%s: %s\n", mark, v.words())
	}
}

func mebibytes(mb int64) string { return fmt.Sprintf("%d MB", mb) }
