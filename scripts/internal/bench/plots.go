package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars draws one metric of a workload: a group of bars for each set of parameters that holds only, a bar for each system. It
// returns the Markdown that shows the picture.
func (d *document) bars(workload, only, metric, title string) (string, error) {
	var parameters []string
	for _, p := range d.parameters(workload) {
		if holds(p, only) {
			parameters = append(parameters, p)
		}
	}
	if len(parameters) == 0 {
		return "", nil
	}
	p := newPlot(title, metric)
	systems := d.systems(workload)
	width := vg.Points(min(12, 400/float64(len(systems)*len(parameters))))
	for i, s := range systems {
		values := make(plotter.Values, len(parameters))
		for k, parameter := range parameters {
			if v, ok := d.r.median(subject{workload, s, parameter}, metric); ok {
				values[k] = max(0, math.Log10(v)) // gonum's bars begin at 0, which a plot.LogScale does not have
			}
		}
		b, err := plotter.NewBarChart(values, width)
		if err != nil {
			return "", err
		}
		b.Color, b.LineStyle.Width = shade(i), 0
		b.Offset = width * vg.Length(float64(i)-float64(len(systems)-1)/2)
		p.Add(b)
		p.Legend.Add(s, b)
	}
	var names []string
	for _, parameter := range parameters {
		names = append(names, without(parameter, only))
	}
	p.NominalX(names...)
	p.Y.Scale, p.Y.Tick.Marker = plot.LinearScale{}, powers{}
	p.Y.Min = 0
	return d.save(p, workload, only, title)
}

// lines draws a metric of w3 over the number of keys.
func (d *document) lines(metric, title string) (string, error) {
	p := newPlot(title, metric)
	p.X.Label.Text = "keys"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	found := false
	for i, s := range d.systems("w3") {
		var points plotter.XYs
		for _, parameter := range d.parameters("w3") {
			n, err := strconv.ParseFloat(strings.TrimPrefix(parameter, "keys="), 64)
			if err != nil {
				return "", err
			}
			if v, ok := d.r.median(subject{"w3", s, parameter}, metric); ok {
				points = append(points, plotter.XY{X: n, Y: v})
			}
		}
		if len(points) == 0 {
			continue
		}
		found = true
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return "", err
		}
		line.Color, line.Width = shade(i), vg.Points(1.5)
		marks.Color, marks.Shape = shade(i), draw.CircleGlyph{}
		p.Add(line, marks)
		p.Legend.Add(s, line, marks)
	}
	if !found {
		return "", nil
	}
	return d.save(p, "w3", metric, title)
}

func newPlot(title, metric string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Y.Label.Text = "microseconds"
	if !strings.HasSuffix(metric, "_us") {
		p.Y.Label.Text = "a second"
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, false
	p.Legend.XOffs = vg.Points(150)
	p.BackgroundColor = color.White
	return p
}

// powers marks an axis of logarithms.
type powers struct{}

func (powers) Ticks(low, high float64) (ticks []plot.Tick) {
	for i := math.Ceil(low); i <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: i, Label: fmt.Sprintf("%.0f", math.Pow(10, i))})
	}
	return ticks
}

func shade(i int) color.Color { return plotutil.SoftColors[i%len(plotutil.SoftColors)] }

// save writes the picture, with room for the legend at its right.
func (d *document) save(p *plot.Plot, workload, what, title string) (string, error) {
	name := strings.NewReplacer("=", "", ":", "-", ",", "-", "_", "-").Replace(strings.Trim(workload+"-"+what, "-")) + ".svg"
	c, err := draw.NewFormattedCanvas(20*vg.Centimeter, 9*vg.Centimeter, "svg")
	if err != nil {
		return "", err
	}
	area := draw.New(c)
	area.Max.X -= vg.Points(160)
	p.Draw(area)
	if err := saveCanvas(c, filepath.Join(d.out, "plots", name)); err != nil {
		return "", err
	}
	return fmt.Sprintf("![%s](plots/%s)", title, name), nil
}

func saveCanvas(c vg.CanvasWriterTo, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
