package arm

import (
	_ "embed"
	"net/url"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

const kindLocation = identity.KindLocations

// route is one row of the table.
type route struct {
	method string
	path   string // after the provider; "g:" is below a resource group, "s:" below a subscription; * is a name
	verb   string // what Allow is asked; "" is for handlers that ask themselves, item by item
	kind   trainyard.Kind
	do     func(*door, *call, trainyard.Kind) (reply, error)
}

const (
	inGroup = "g:workspaces/*"
	inSub   = "s:locations/*"
)

// routes is everything that this door serves.
func routes() []route {
	const read, write, del, act, secrets = identity.Read, identity.Write, identity.Delete, identity.Act, identity.Secrets
	table := []route{
		{"GET", "g:workspaces", "", trainyard.KindWorkspace, (*door).listWorkspaces},
		{"GET", "s:workspaces", "", trainyard.KindWorkspace, (*door).listWorkspaces},
		{"PUT", inGroup, write, trainyard.KindWorkspace, (*door).putWorkspace},
		{"GET", inGroup, read, trainyard.KindWorkspace, (*door).getWorkspace},
		{"PATCH", inGroup, write, trainyard.KindWorkspace, (*door).patchWorkspace},
		{"DELETE", inGroup, del, trainyard.KindWorkspace, (*door).deleteWorkspace},
		{"POST", inGroup + "/listKeys", secrets, trainyard.KindWorkspace, (*door).workspaceKeys},

		{"PUT", inGroup + "/computes/*", write, trainyard.KindCompute, (*door).putCompute},
		{"GET", inGroup + "/computes/*", read, trainyard.KindCompute, (*door).getCompute},
		{"GET", inGroup + "/computes", read, trainyard.KindCompute, (*door).listComputes},
		{"PATCH", inGroup + "/computes/*", write, trainyard.KindCompute, (*door).patchCompute},
		{"DELETE", inGroup + "/computes/*", del, trainyard.KindCompute, (*door).deleteCompute},
		{"POST", inGroup + "/computes/*/start", act, trainyard.KindCompute, (*door).actOnCompute},
		{"POST", inGroup + "/computes/*/stop", act, trainyard.KindCompute, (*door).actOnCompute},
		{"POST", inGroup + "/computes/*/restart", act, trainyard.KindCompute, (*door).actOnCompute},
		{"POST", inGroup + "/computes/*/listNodes", read, trainyard.KindCompute, (*door).listNodes},
		{"POST", inGroup + "/computes/*/listKeys", secrets, trainyard.KindCompute, (*door).computeKeys},

		{"PUT", inGroup + "/jobs/*", write, trainyard.KindJob, (*door).putJob},
		{"GET", inGroup + "/jobs/*", read, trainyard.KindJob, (*door).getJob},
		{"GET", inGroup + "/jobs", read, trainyard.KindJob, (*door).listJobs},
		{"PATCH", inGroup + "/jobs/*", write, trainyard.KindJob, (*door).patchJob},
		{"DELETE", inGroup + "/jobs/*", del, trainyard.KindJob, (*door).deleteJob},
		{"POST", inGroup + "/jobs/*/cancel", act, trainyard.KindJob, (*door).cancelJob},
		{"GET", inGroup + "/jobs/*/events", read, trainyard.KindJob, (*door).jobEvents}, // ours, not Azure's

		{"GET", "s:locations", read, kindLocation, (*door).listLocations}, // ours, not Azure's
		{"GET", inSub, read, kindLocation, (*door).getLocation},           // ours, not Azure's
		{"GET", inSub + "/vmSizes", read, kindLocation, (*door).vmSizes},
		{"GET", inSub + "/usages", read, kindLocation, (*door).usages},
		{"GET", inSub + "/quotas", read, kindLocation, (*door).quotas},
		{"POST", inSub + "/updateQuotas", write, kindLocation, (*door).updateQuotas},
		{"GET", inSub + "/mfeOperationsStatus/*", "", "", (*door).operationStatus},
		{"GET", inSub + "/mfeOperationResults/*", "", "", (*door).operationResult},

		{"POST", inGroup + "/datastores/*/listSecrets", secrets, trainyard.KindDatastore, (*door).listSecrets},
	}
	table = append(table, endpointRoutes()...)
	table = append(table, batchRoutes()...)
	for _, k := range assetKinds {
		at := inGroup + "/" + string(k)
		table = append(table,
			route{"PUT", at + "/*", write, k, (*door).putAsset}, // the datastore, or the container of versions
			route{"GET", at + "/*", read, k, (*door).getAsset},
			route{"GET", at, read, k, (*door).listAssets},
			route{"DELETE", at + "/*", del, k, (*door).deleteAsset},
		)
		if !k.Versioned() {
			continue
		}
		table = append(table,
			route{"PUT", at + "/*/versions/*", write, k, (*door).putAsset},
			route{"GET", at + "/*/versions/*", read, k, (*door).getAsset},
			route{"GET", at + "/*/labels/*", read, k, (*door).getAsset}, // ours, not Azure's
			route{"GET", at + "/*/versions", read, k, (*door).listAssets},
			route{"DELETE", at + "/*/versions/*", del, k, (*door).deleteAsset},
			route{"POST", at + "/*/versions/*/startPendingUpload", write, k, (*door).startPendingUpload},
		)
	}
	return table
}

// assetKinds are the kinds that the asset handlers serve.
var assetKinds = []trainyard.Kind{trainyard.KindEnvironment, trainyard.KindCode, trainyard.KindData, trainyard.KindModel,
	trainyard.KindComponent, trainyard.KindDatastore}

func index(rows []route) map[string]*route {
	table := make(map[string]*route, len(rows))
	for i := range rows {
		table[rows[i].method+" "+fold(rows[i].path)] = &rows[i]
	}
	return table
}

//go:embed operations.txt
var operationsText string

// operations reads what Azure has, by method and path, so that what we lack is refused by its name.
func operations() map[string]string {
	known := map[string]string{}
	for line := range strings.Lines(operationsText) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 4 && !strings.HasPrefix(line, "#") {
			known[f[0]+" "+fold(f[1])] = f[2]
		}
	}
	return known
}

// place is where a path is above the provider.
type place struct{ subscription, group string }

// managementFrontend is a prefix by which the Python SDK reaches some of the same paths.
const managementFrontend = "/mferp/managementfrontend"

// split cuts a path into its place and the segments after the provider. Segment names match without regard to case, and a name may hold
// escaped slashes.
func split(u *url.URL) (at place, rest []string, ok bool) {
	raw, escaped := u.Path, u.RawPath != ""
	if escaped {
		raw = u.RawPath
	}
	if len(raw) > len(managementFrontend) && strings.EqualFold(raw[:len(managementFrontend)], managementFrontend) {
		raw = raw[len(managementFrontend):]
	}
	seg := strings.Split(strings.Trim(raw, "/"), "/")
	if escaped {
		for i, s := range seg {
			if plain, err := url.PathUnescape(s); err == nil {
				seg[i] = plain
			}
		}
	}
	if len(seg) < 2 || fold(seg[0]) != "subscriptions" {
		return at, nil, false
	}
	at.subscription, seg = seg[1], seg[2:]
	if len(seg) >= 2 && fold(seg[0]) == "resourcegroups" {
		at.group, seg = seg[1], seg[2:]
	}
	if len(seg) < 3 || fold(seg[0]) != "providers" || !strings.EqualFold(seg[1], trainyard.Provider) || slices.Contains(seg, "") {
		return at, nil, false
	}
	return at, seg[2:], true
}

// find looks the request up in the table.
func (d *door) find(c *call) (*route, error) {
	var ok bool
	if c.place, c.rest, ok = split(c.URL); !ok {
		return nil, noPath(c)
	}
	path := pattern(c.place, c.rest)
	if rt := d.table[c.Method+" "+path]; rt != nil {
		return rt, nil
	}
	if name := d.known[c.Method+" "+path]; name != "" {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported,
			"%s (%s %s) is an operation of Azure Machine Learning that this build of Trainyard does not have", name, c.Method, c.URL.Path)
	}
	var others []string
	for _, m := range []string{"GET", "PUT", "PATCH", "POST", "DELETE"} {
		if d.table[m+" "+path] != nil {
			others = append(others, m)
		}
	}
	if len(others) > 0 {
		c.out.Header().Set("Allow", strings.Join(others, ", "))
		return nil, &statusError{405, trainyard.Invalid("%s takes %s, not %s", c.URL.Path, strings.Join(others, ", "), c.Method)}
	}
	return nil, noPath(c)
}

func noPath(c *call) error {
	if strings.Contains(fold(c.URL.Path), "/providers/microsoft.resources/deployments/") {
		return trainyard.Errorf(trainyard.CodeUnsupported,
			"ARM templates (%s) are not understood; make a workspace with: trainyard workspace create --name NAME, or PUT its path", c.URL.Path)
	}
	return trainyard.NotFound("there is nothing at %s %s: the path is not one of this API", c.Method, c.URL.Path)
}

// pattern is the key of the table for a path: names become *, the rest is in lower case.
func pattern(at place, rest []string) string {
	var b strings.Builder
	b.Grow(96)
	b.WriteString("s:")
	if at.group != "" {
		b.Reset()
		b.WriteString("g:")
	}
	for i, s := range rest {
		switch {
		case i%2 == 1:
			b.WriteString("/*")
		case i > 0:
			b.WriteString("/" + fold(s))
		default:
			b.WriteString(fold(s))
		}
	}
	return b.String()
}

func fold(s string) string { return strings.ToLower(s) }
