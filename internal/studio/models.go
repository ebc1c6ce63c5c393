package studio

import (
	"encoding/json"
	"net/http"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// kindModel is the kind of events of models.
const kindModel = string(trainyard.KindModel)

// modelsPage lists models by their latest versions, or the versions of one.
type modelsPage struct {
	frame
	Name string // of the model whose versions these are; "" for the list of all
	List modelsList
}

// modelsList is the live part.
type modelsList struct {
	Rows   []modelRow
	Older  string // address of the next page
	Newest string // address of the first page, if this is not it
	One    bool   // Rows are versions of one model
}

type modelRow struct {
	Name, Version, URL, Type, Description, Where string
	Job                                          fact
	Created                                      moment
	By                                           string
	Tags                                         []fact
}

func (d *door) showModels(v *visit) error {
	list, err := d.modelsList(v)
	if err != nil {
		return err
	}
	name := v.PathValue("name")
	if list.One && len(list.Rows) == 0 && list.Newest == "" {
		return trainyard.NotFound("there is no model %q in workspace %q", name, v.scope.Workspace)
	}
	title, live := "Models", "/studio/live/models"
	if name != "" {
		title, live = name+" · Models", live+"/"+escapePath(name)
	}
	p := modelsPage{frame: d.frame(v, title, "models"), Name: name, List: list}
	p.Live = v.link(live, "after", v.URL.Query().Get("after"))
	return d.show(v.w, http.StatusOK, "models", p)
}

func (d *door) streamModels(v *visit) error {
	concerns := func(c trainyard.Change) bool { return v.tells(c, kindModel) }
	return d.keep(v, listEvery, concerns, func(s *stream) error {
		list, err := d.modelsList(v)
		if err != nil {
			return err
		}
		html, err := d.render("models-list", list)
		if err != nil {
			return err
		}
		return s.part("models-list", html, v.now)
	})
}

func (d *door) modelsList(v *visit) (modelsList, error) {
	name, after := v.PathValue("name"), v.URL.Query().Get("after")
	page, err := d.Resources.Resources(v.Context(), trainyard.ResourceQuery{Scope: v.scope, Kind: trainyard.KindModel, Name: name, Top: rowsAtMost, After: after})
	if err != nil {
		return modelsList{}, err
	}
	list := modelsList{One: name != ""}
	for _, r := range page.Items {
		if r.Version == "" || !list.One && anonymous(r.Name) {
			continue // what is said of all versions; what came with a deployment's file
		}
		list.Rows = append(list.Rows, modelOf(v, r))
	}
	at := "/models"
	if list.One {
		at += "/" + escapePath(name)
	}
	if page.Next != "" {
		list.Older = v.link(at, "after", page.Next)
	}
	if after != "" {
		list.Newest = v.link(at)
	}
	return list, nil
}

func modelOf(v *visit, r *trainyard.Resource) modelRow {
	var p struct{ ModelType, ModelURI, JobName, Description string }
	_ = json.Unmarshal(r.Properties, &p) // what cannot be read is not shown
	w := modelRow{Name: r.Name, Version: r.Version, URL: v.link("/models/" + escapePath(r.Name)), Type: p.ModelType, Description: p.Description, Where: p.ModelURI,
		Created: momentOf(v.now, r.Created), By: r.CreatedBy}
	if p.JobName != "" {
		w.Job = fact{Words: p.JobName}
		if v.may(identity.Read, trainyard.KindJob, p.JobName) == nil {
			w.Job.URL = v.jobLink(p.JobName)
		}
	}
	for _, k := range sortedKeys(r.Tags) {
		w.Tags = append(w.Tags, fact{Name: k, Words: r.Tags[k]})
	}
	return w
}
