package main

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"text/template"

	"github.com/trainyard/trainyard/internal/rightsize"
)

// A plot of a profile has throughput to the right and p99 upwards, on a logarithmic scale: each size is a line from one request at once to
// many. The lower and the further right, the better.

//go:embed model_profile.svg.tmpl
var plotText string

var plotTemplate = template.Must(template.New("plot").Funcs(template.FuncMap{"text": html.EscapeString}).Parse(plotText))

// scale maps the points of all trials onto a plane of 0 to 1.
type scale struct {
	mostRate, lowMS, highMS float64
}

// scaleOf is the scale on which all points and the goal fit; false if there are no points.
func scaleOf(trials []rightsize.Trial, g rightsize.Goal) (scale, bool) {
	s := scale{lowMS: math.Inf(1)}
	for i := range trials {
		for _, p := range drawn(&trials[i]) {
			s.mostRate, s.lowMS, s.highMS = max(s.mostRate, p.PerSecond), min(s.lowMS, p.P99MS), max(s.highMS, p.P99MS)
		}
	}
	if s.mostRate == 0 {
		return s, false
	}
	if g.P99MS > 0 {
		s.lowMS, s.highMS = min(s.lowMS, g.P99MS), max(s.highMS, g.P99MS)
	}
	s.mostRate, s.lowMS, s.highMS = 1.08*s.mostRate, s.lowMS/1.3, s.highMS*1.3
	return s, true
}

func (s scale) x(rate float64) float64 { return rate / s.mostRate }
func (s scale) y(ms float64) float64   { return math.Log(ms/s.lowMS) / math.Log(s.highMS/s.lowMS) }

// drawn are the points that can stand on a logarithmic scale.
func drawn(t *rightsize.Trial) []rightsize.Point {
	var out []rightsize.Point
	for _, p := range t.Points {
		if p.P99MS > 0 && p.PerSecond > 0 {
			out = append(out, p)
		}
	}
	return out
}

// ticks are round numbers of a logarithmic axis from low to high: powers of ten, and where those are few, numbers between them too.
func ticks(low, high float64) []float64 {
	var out []float64
	for _, factors := range [][]float64{{1}, {1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}} {
		out = nil
		for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
			for _, f := range factors {
				if v := f * math.Pow(10, e); v >= low && v <= high {
					out = append(out, v)
				}
			}
		}
		if len(out) >= 3 {
			break
		}
	}
	return out
}

// steps are four or five even steps from 0 to high.
func axisSteps(high float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, f := range []float64{10, 5, 2} {
		if high/(step*f) >= 3.5 {
			step *= f
			break
		}
	}
	var out []float64
	for v := 0.0; v <= high; v += step {
		out = append(out, v)
	}
	return out
}

const (
	chartRows    = 14
	chartColumns = 64
	chartMarks   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	chartMargin  = 11
)

// chart draws the plot with characters; "" where nothing was measured.
func chart(trials []rightsize.Trial, g rightsize.Goal, width int) string {
	s, ok := scaleOf(trials, g)
	if !ok {
		return ""
	}
	columns := chartColumns
	if width > 0 {
		columns = max(24, min(columns, width-chartMargin-1))
	}
	grid := make([][]rune, chartRows)
	for i := range grid {
		grid[i] = []rune(strings.Repeat(" ", columns))
	}
	row := func(ms float64) int {
		return min(chartRows-1, max(0, int(math.Round((1-s.y(ms))*float64(chartRows-1)))))
	}
	if g.P99MS > 0 {
		for i := range grid[row(g.P99MS)] {
			grid[row(g.P99MS)][i] = '┄'
		}
	}
	var legend strings.Builder
	for i := range trials {
		points := drawn(&trials[i])
		if len(points) == 0 {
			continue
		}
		mark := rune(chartMarks[i%len(chartMarks)])
		for _, p := range points {
			grid[row(p.P99MS)][min(columns-1, int(s.x(p.PerSecond)*float64(columns)))] = mark
		}
		fmt.Fprintf(&legend, "%*s %c %s\n", chartMargin-1, "", mark, trials[i].Name)
	}
	labels := map[int]string{0: rightsize.Millis(s.highMS), chartRows - 1: rightsize.Millis(s.lowMS)}
	for _, v := range ticks(s.lowMS, s.highMS) {
		labels[row(v)] = rightsize.Millis(v)
	}
	if g.P99MS > 0 {
		labels[row(g.P99MS)] = rightsize.Millis(g.P99MS)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%*s\n", chartMargin-1, "p99")
	for i, line := range grid {
		edge := "│"
		if labels[i] != "" {
			edge = "┤"
		}
		fmt.Fprintf(&b, "%*s %s%s\n", chartMargin-1, labels[i], edge, strings.TrimRight(string(line), " "))
	}
	fmt.Fprintf(&b, "%*s └%s\n", chartMargin-1, "", strings.Repeat("─", columns))
	end := fmt.Sprintf("%.0f requests/s", s.mostRate)
	fmt.Fprintf(&b, "%*s  0%*s\n", chartMargin-1, "", columns-1, end)
	return b.String() + legend.String()
}

// The plot's frame, in pixels.
const (
	plotWidth, plotHeight              = 960, 520
	plotLeft, plotTop, plotW, plotH    = 84, 64, 540, 380
	plotLegendX, plotLegendY, plotLine = plotLeft + plotW + 28, plotTop + 14, 40
)

// plotColors are told apart by everybody: Okabe and Ito's palette.
var plotColors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"}

type plotTick struct {
	At    float64
	Label string
}

type plotDot struct {
	X, Y  float64
	Title string
}

type plotSeries struct {
	Name, Note, Color, Line string
	Picked                  bool
	Dots                    []plotDot
	LegendY                 int
}

type plotData struct {
	Width, Height, Left, Top, Right, Bottom, LegendX int
	MiddleX, MiddleY                                 int
	XTicks, YTicks                                   []plotTick
	GoalY                                            float64
	Goal                                             string
	Series                                           []plotSeries
}

// writePlot writes the plot as SVG. picked is the size that is recommended.
func writePlot(w io.Writer, trials []rightsize.Trial, g rightsize.Goal, picked string) error {
	d := plotData{Width: plotWidth, Height: plotHeight, Left: plotLeft, Top: plotTop, Right: plotLeft + plotW, Bottom: plotTop + plotH, LegendX: plotLegendX,
		MiddleX: plotLeft + plotW/2, MiddleY: plotTop + plotH/2}
	s, ok := scaleOf(trials, g)
	x := func(rate float64) float64 { return plotLeft + plotW*s.x(rate) }
	y := func(ms float64) float64 { return plotTop + plotH*(1-s.y(ms)) }
	if ok {
		for _, v := range axisSteps(s.mostRate) {
			d.XTicks = append(d.XTicks, plotTick{x(v), fmt.Sprintf("%g", v)})
		}
		for _, v := range ticks(s.lowMS, s.highMS) {
			d.YTicks = append(d.YTicks, plotTick{y(v), rightsize.Millis(v)})
		}
		if g.P99MS > 0 {
			d.GoalY, d.Goal = y(g.P99MS), "wanted: "+rightsize.Millis(g.P99MS)
		}
	}
	for i := range trials {
		t := &trials[i]
		one := plotSeries{Name: t.Name, Color: plotColors[i%len(plotColors)], Picked: t.Name == picked, LegendY: plotLegendY + plotLine*i,
			Note: fmt.Sprintf("%d vCPUs, %g GiB, $%.3f/h", t.VCPUs, t.MemoryGB, t.PricePerHour)}
		if word := outcomeWords[t.Outcome]; word != "" {
			one.Note, one.Color = word, "#999999"
		}
		var line []string
		for _, p := range drawn(t) {
			line = append(line, fmt.Sprintf("%.1f,%.1f", x(p.PerSecond), y(p.P99MS)))
			one.Dots = append(one.Dots, plotDot{x(p.PerSecond), y(p.P99MS), fmt.Sprintf("%s, %d at once: %.1f requests/s, p99 %s", t.Name, p.Concurrency, p.PerSecond, rightsize.Millis(p.P99MS))})
		}
		one.Line = strings.Join(line, " ")
		d.Series = append(d.Series, one)
	}
	d.Height = max(d.Height, plotLegendY+plotLine*len(trials)+20)
	return plotTemplate.Execute(w, d)
}
