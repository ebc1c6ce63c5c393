package trainyard

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// User is who asks. An empty Name is nobody.
type User struct {
	Name  string `json:"name"`
	Role  Role   `json:"role"`
	Scope Scope  `json:"scope,omitzero"` // the only workspace it may reach; zero: all
	Job   string `json:"job,omitempty"`  // for a job's own token: the only run it may write to
	Node  NodeID `json:"node,omitempty"` // for an agent's token

	Endpoint string `json:"endpoint,omitempty"` // for a caller's token: the only endpoint it may call
	Epoch    int64  `json:"epoch,omitempty"`    // for a caller's token: OnlineEndpoint.Epoch when it was made
}

// Role is what a user may do at most.
type Role string

// The roles. A job's token reads its workspace and writes its own run; an agent's token speaks for its node alone.
const (
	RoleAdmin  Role = "admin"
	RoleReader Role = "reader"
	RoleJob    Role = "job"
	RoleAgent  Role = "agent"
	RoleCaller Role = "caller" // of one online endpoint, and nothing else
)

// View selects by archive flag, as listViewType does.
type View string

// Views.
const (
	ViewActive   View = "ActiveOnly" // the default
	ViewArchived View = "ArchivedOnly"
	ViewAll      View = "All"
)

// ResourceQuery selects resources of one kind. Empty fields do not select. Newest first.
type ResourceQuery struct {
	Scope   Scope // Subscription alone lists workspaces of all its groups
	Kind    Kind
	Name    string // versions of this name; empty: for versioned kinds the latest version of every name
	Hash    string
	View    View
	Top     int    // at most this many; 0: 100
	After   string // opaque, from a page's Next
	Default *bool  // datastores: properties.isDefault
}

// JobQuery selects jobs, newest first.
type JobQuery struct {
	Scope   Scope
	Compute string // name
	States  []JobState
	View    View
	Tag     string // "key" or "key=value"
	Top     int
	After   string
}

// EventQuery selects events in order of Seq.
type EventQuery struct {
	Scope   Scope
	Kind    string
	Subject string
	After   int64
	Top     int
}

// Page is a part of a list. Next is empty on the last one.
type Page[T any] struct {
	Items []T
	Next  string
}

// NodeStatus is a node as listNodes shows it: the node and what it holds.
type NodeStatus struct {
	Node   *Node
	Jobs   []string // names of the jobs whose tasks it holds
	Remark string   // what its fleet says of it, such as why it is cut off, or what it lacks; "": nothing
	Cut    bool     // its fleet cannot reach it; Remark says why
	Away   Reason   // that an engine of it does not answer; without a message: all do
}

// Why is why the node is as it is, and before that why nothing new is known of what it runs.
func (s NodeStatus) Why() Reason {
	if s.Away.Message != "" {
		return s.Away
	}
	return s.Node.Reason
}

// Why is why a compute with these nodes is as it is: one that is being deleted what that waits for, a cluster why it has so many nodes and
// which engines of theirs do not answer, and any other what is wrong with its node.
func (c *Compute) Why(nodes []NodeStatus) Reason {
	switch {
	case c.Deleting:
		return c.whyStill(nodes)
	case c.Elastic():
		return c.whyWanted(nodes)
	}
	for _, n := range nodes {
		switch {
		case n.Away.Message != "" && c.Hosted():
			return n.Away
		case c.Hosted():
		case n.Remark != "" && (n.Cut || n.Away.Message == ""):
			return n.remark()
		case !n.Node.State.Usable():
			return n.Node.Reason
		}
	}
	return c.whyWanted(nodes)
}

// whyWanted is why a compute has so many nodes, and then what is said of the first engine of theirs that does not answer.
func (c *Compute) whyWanted(nodes []NodeStatus) Reason {
	why, first, others := c.WantedWhy, "", 0
	for _, n := range nodes {
		switch {
		case n.Away.Message == "" || c.Hosted():
		case first == "":
			first = fmt.Sprintf("%s (node %s", n.Away.Message, n.Node.ID)
		default:
			others++
		}
	}
	switch {
	case first == "":
		return why
	case others == 1:
		first += " and 1 other"
	case others > 1:
		first += fmt.Sprintf(" and %d others", others)
	}
	why.Message = strings.TrimPrefix(why.Message+"; ", "; ") + first + ")"
	return why
}

// whyStill is why a compute that is being deleted is still there: what its nodes have to do first, and what keeps them from that.
func (c *Compute) whyStill(nodes []NodeStatus) Reason {
	why := Reason{Code: "Deleting", Message: "it is being taken away"}
	var jobs, trouble []string
	for _, n := range nodes {
		jobs = append(jobs, n.Jobs...)
		for _, r := range []Reason{n.remark(), n.Away} {
			if r.Message != "" && !slices.Contains(trouble, r.Message) {
				trouble = append(trouble, r.Message)
			}
		}
		if since := n.Node.Reason.Since; n.Node.State == NodeLeaving && (why.Since.IsZero() || since.Before(why.Since)) {
			why.Since = since
		}
	}
	slices.Sort(jobs)
	switch jobs = slices.Compact(jobs); {
	case len(jobs) == 1:
		why.Message = "job " + jobs[0] + " is to end first"
	case len(jobs) > 1:
		why.Message = fmt.Sprintf("%d jobs are to end first: %s", len(jobs), strings.Join(jobs[:min(len(jobs), 3)], ", "))
		if len(jobs) > 3 {
			why.Message += ", …"
		}
	case len(nodes) == 1:
		why.Message = "its node is being let go of"
	case len(nodes) > 1:
		why.Message = fmt.Sprintf("its %d nodes are being let go of", len(nodes))
	}
	if len(c.Errors) > 0 { // they say the same, and what was tried
		trouble = c.Errors
	}
	why.Message = strings.Join(append([]string{why.Message}, trouble...), "; ")
	return why
}

// remark is what the node's fleet says of it.
func (s NodeStatus) remark() Reason {
	if s.Remark == "" {
		return Reason{}
	}
	r := Reason{Code: s.Node.Reason.Code, Message: s.Remark, Since: s.Node.Reason.Since}
	if s.Cut {
		r.Code = "NodeUnreachable"
	}
	return r
}

// Usage is how much of something is in use.
type Usage struct {
	Name    string
	Current int64
	Limit   int64 // -1: not limited
	Unit    string
}

// Change is what a committed transaction touched.
type Change struct {
	Jobs     []JobKey
	Nodes    []NodeID
	Computes []ComputeKey
	Events   []Event
	At       time.Time
}

// BlobInfo is what is known of stored bytes.
type BlobInfo struct {
	Key      string            `json:"key"`
	Size     int64             `json:"size"`
	Modified time.Time         `json:"modified"`
	ETag     string            `json:"etag"`
	MD5      []byte            `json:"md5,omitempty"`
	Type     string            `json:"type,omitempty"` // content type
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Upload is a place to put the files of an asset.
type Upload struct {
	BlobURI string // without credentials
	SASURI  string // with them
}
