package arm

import (
	"regexp"
	"strings"

	"github.com/trainyard/trainyard"
)

// premium finds the sizes that Azure's naming marks with an s for premium storage: DS3_v2, D4s_v3, E8as_v5.
var premium = regexp.MustCompile(`(?i)^standard_(?:[a-z]+s\d|[a-z]+\d+[a-z-]*\d*[a-z]*s(?:_|$))`)

// vmSizeBody is a size as Azure shows it, and after that what we know besides.
type vmSizeBody struct {
	Name           string   `json:"name"`
	Family         string   `json:"family"`
	VCPUs          int      `json:"vCPUs"`
	GPUs           int      `json:"gpus"`
	OSDiskMB       int      `json:"osVhdSizeMB"`
	ResourceDiskMB int      `json:"maxResourceVolumeMB"`
	MemoryGB       float64  `json:"memoryGB"`
	LowPriority    bool     `json:"lowPriorityCapable"`
	PremiumIO      bool     `json:"premiumIO"`
	Prices         vmPrices `json:"estimatedVMPrices"`
	ComputeTypes   []string `json:"supportedComputeTypes"`
	Series         string   `json:"series,omitempty"`
	GPU            string   `json:"gpu,omitempty"`
	NeedsApproval  bool     `json:"needsApproval"`
	Approved       bool     `json:"approved"` // it needs none, or the location has it
	Isolated       bool     `json:"isolated"`
	RDMA           bool     `json:"rdma"`
}

type vmPrices struct {
	Currency string    `json:"billingCurrency"`
	Unit     string    `json:"unitOfMeasure"`
	Values   []vmPrice `json:"values"`
}

type vmPrice struct {
	Price  float64 `json:"retailPrice"`
	OSType string  `json:"osType"`
	Tier   string  `json:"vmTier"`
}

// osDiskMB is Azure's limit for an operating system disk; all sizes have it.
const osDiskMB = 1047552

func (d *door) vmSizes(c *call, _ trainyard.Kind) (reply, error) {
	l, err := d.Places.Location(c.Context(), c.location())
	if err != nil {
		return reply{}, err
	}
	items := make([]vmSizeBody, 0, len(l.Sizes))
	for _, s := range l.Sizes {
		b := vmSizeBody{Name: s.Name, Family: s.Family, VCPUs: s.VCPUs, GPUs: s.GPUs, OSDiskMB: osDiskMB, ResourceDiskMB: s.ResourceDiskMB,
			MemoryGB: s.MemoryGB, LowPriority: s.LowPriorityRate > 0, PremiumIO: premium.MatchString(s.Name), ComputeTypes: listOf(s.ComputeTypes),
			Series: s.Series, GPU: s.GPU, NeedsApproval: s.NeedsApproval, Approved: l.Approves(s), Isolated: s.Isolated, RDMA: s.RDMA,
			Prices: vmPrices{Currency: "USD", Unit: "OneHour", Values: []vmPrice{{s.PricePerHour, "Linux", "Standard"}}}}
		if b.LowPriority {
			b.Prices.Values = append(b.Prices.Values, vmPrice{s.LowPriorityRate, "Linux", "LowPriority"})
		}
		items = append(items, b)
	}
	return ok(map[string]any{"value": items})
}

// locationBody is a location as this server shows it; Azure's own lists regions elsewhere, with less.
type locationBody struct {
	Name     string             `json:"name"`
	ID       string             `json:"id"`
	Driver   string             `json:"driver"`
	Default  bool               `json:"default"`
	Regions  []string           `json:"regions"`
	Approved []string           `json:"approved"`
	Capacity trainyard.Capacity `json:"capacity"`
	Used     trainyard.Capacity `json:"used"`
	Sizes    int                `json:"sizeCount"`
	Machine  *machineBody       `json:"machine,omitempty"`
	Away     string             `json:"away,omitempty"` // why nothing is known of its machines
}

// machineBody is the one machine that all nodes of a location share.
type machineBody struct {
	VCPUs    float64 `json:"vcpus"`
	MemoryGB float64 `json:"memoryGB"`
	GPUs     int     `json:"gpus"`
}

func (d *door) locationBody(c *call, l trainyard.Location, first bool) locationBody {
	var machine *machineBody
	if m := l.Machine; m.CPUs > 0 {
		machine = &machineBody{m.CPUs, float64(m.MemoryMB) / 1024, m.GPUs}
	}
	return locationBody{Machine: machine, Name: l.Name, ID: "/subscriptions/" + c.place.subscription + "/providers/" + trainyard.Provider + "/locations/" + l.Name,
		Driver: l.Driver, Default: first, Regions: listOf(l.Regions), Approved: listOf(l.Approved), Capacity: l.Capacity,
		Used: d.Places.Used(c.Context(), l.Name), Sizes: len(l.Sizes), Away: l.Away}
}

func (d *door) listLocations(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Places.AllLocations(c.Context())
	if err != nil {
		return reply{}, err
	}
	items := make([]locationBody, 0, len(list))
	for i, l := range list {
		items = append(items, d.locationBody(c, l, i == 0))
	}
	return pageOf(c, items, "")
}

// getLocation answers for a region too: with the location that it means.
func (d *door) getLocation(c *call, _ trainyard.Kind) (reply, error) {
	l, err := d.Places.Location(c.Context(), c.location())
	if err != nil {
		return reply{}, err
	}
	all, err := d.Places.AllLocations(c.Context())
	if err != nil {
		return reply{}, err
	}
	return ok(d.locationBody(c, l, len(all) > 0 && all[0].Name == l.Name))
}

func (d *door) usages(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Places.Usages(c.Context(), c.scope(), c.location())
	if err != nil {
		return reply{}, err
	}
	items := make([]map[string]any, 0, len(list))
	for _, u := range list {
		b := d.quotaBody(c, "usages", u)
		b["currentValue"] = u.Current
		items = append(items, b)
	}
	return pageOf(c, items, "")
}

func (d *door) quotas(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Places.Quotas(c.Context(), c.scope(), c.location())
	if err != nil {
		return reply{}, err
	}
	items := make([]map[string]any, 0, len(list))
	for _, u := range list {
		items = append(items, d.quotaBody(c, "quotas", u))
	}
	return pageOf(c, items, "")
}

// quotaBody is a usage or a quota; limit -1 means that there is none.
func (d *door) quotaBody(c *call, kind string, u trainyard.Usage) map[string]any {
	unit := u.Unit
	if unit == "" {
		unit = "Count"
	}
	return map[string]any{
		"id":                   c.quotaID(kind, u.Name),
		"type":                 trainyard.Provider + "/locations/" + kind,
		"amlWorkspaceLocation": c.location(),
		"name":                 map[string]string{"value": u.Name, "localizedValue": u.Name},
		"unit":                 unit,
		"limit":                u.Limit,
	}
}

func (c *call) quotaID(kind, name string) string {
	return "/subscriptions/" + c.place.subscription + "/providers/" + trainyard.Provider + "/locations/" + c.location() + "/" + kind + "/" + name
}

// updateQuotas sets limits by the last segment of their ids, as Azure's clients name them.
func (d *door) updateQuotas(c *call, _ trainyard.Kind) (reply, error) {
	var in struct {
		Value []struct {
			ID    string `json:"id"`
			Type  string `json:"type"`
			Limit *int64 `json:"limit"`
			Unit  string `json:"unit"`
		} `json:"value"`
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	limits := map[string]int64{}
	for i, q := range in.Value {
		name := q.ID[strings.LastIndexByte(q.ID, '/')+1:]
		if name == "" || q.Limit == nil || *q.Limit < -1 {
			return reply{}, trainyard.Invalid("value[%d] needs an id that ends in the name of a VM family, and a limit of at least 0, or -1 for none", i)
		}
		limits[name] = *q.Limit
	}
	if err := d.Places.SetQuotas(c.Context(), c.who, c.scope(), c.location(), limits); err != nil {
		return reply{}, err
	}
	items := []map[string]any{}
	for _, q := range in.Value {
		name := q.ID[strings.LastIndexByte(q.ID, '/')+1:]
		items = append(items, map[string]any{"id": c.quotaID("quotas", name), "type": trainyard.Provider + "/locations/quotas",
			"limit": *q.Limit, "unit": "Count", "status": "Success"})
	}
	return pageOf(c, items, "")
}
