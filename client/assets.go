package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/trainyard/trainyard"
)

// hashVersion names the way content hashes of code are made; clients and servers must agree on it.
const hashVersion = 202208

// Local is a file or folder on this computer that is to be sent.
type Local struct {
	Name   string // for people: the last part of its path
	Hash   string // of its content
	Folder bool
	Files  []File // names are relative to the folder; of a file, the one
}

// UploadCode makes a code asset of what is local and returns its ARM id. A code of the same hash that the workspace has is used as it is;
// already is true then.
func (c *Client) UploadCode(ctx context.Context, what Local, progress Progress) (id string, already bool, err error) {
	name := codeName(what.Hash)
	query := url.Values{"hash": {what.Hash}, "hashVersion": {fmt.Sprint(hashVersion)}}
	for item, err := range c.List(ctx, query, "codes", name, "versions") {
		var found struct {
			ID string `json:"id"`
		}
		if err == nil {
			err = json.Unmarshal(item, &found)
		}
		return found.ID, true, err
	}
	a, err := c.Post(ctx, map[string]string{"pendingUploadType": "TemporaryBlobReference"}, "codes", name, "versions", "1", "startPendingUpload")
	if err != nil {
		return "", false, err
	}
	var pending struct {
		Blob struct {
			URI        string `json:"blobUri"`
			Credential struct {
				SasURI string `json:"sasUri"`
			} `json:"credential"`
		} `json:"blobReferenceForConsumption"`
	}
	if err := json.Unmarshal(a.Body, &pending); err != nil {
		return "", false, fmt.Errorf("read where to upload code: %w", err)
	}
	to, err := c.Container(pending.Blob.Credential.SasURI)
	if err != nil {
		return "", false, err
	}
	if _, err := to.Upload(ctx, below(what.Name, what.Files), progress); err != nil {
		return "", false, err
	}
	put, err := c.Put(ctx, map[string]any{"properties": map[string]any{
		"codeUri":     strings.TrimRight(pending.Blob.URI, "/") + "/" + url.PathEscape(what.Name),
		"isAnonymous": true,
		"properties":  map[string]any{"hash_sha256": what.Hash, "hash_version": fmt.Sprint(hashVersion)},
	}}, "codes", name, "versions", "1")
	if err != nil {
		return "", false, err
	}
	return idOf(put, c.scope.Child("codes", name, "versions", "1")), false, nil
}

// codeName derives a code's name, a UUID as other clients use, from its content, so that a submission made twice makes one code.
func codeName(hash string) string {
	b := sha256.Sum256([]byte(hash))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8: of our own making
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// UploadData sends what is local to a datastore ("": the default one) once a content hash, and returns its datastore URI.
func (c *Client) UploadData(ctx context.Context, datastore string, what Local, progress Progress) (uri string, already bool, err error) {
	place := trainyard.DataPath{Scope: c.scope, Datastore: cmp.Or(datastore, trainyard.BlobDatastore), Path: "LocalUpload/" + what.Hash + "/" + what.Name}
	prefix := path.Dir(place.Path)
	if what.Folder {
		prefix = place.Path
		place.Path += "/"
	}
	uri = place.String()
	to, err := c.Datastore(ctx, place.Datastore)
	if err != nil {
		return "", false, err
	}
	already, err = to.Upload(ctx, below(prefix, what.Files), progress)
	return uri, already, err
}

func below(prefix string, files []File) []File {
	out := make([]File, len(files))
	for i, f := range files {
		out[i] = File{Name: prefix + "/" + f.Name, Path: f.Path, Size: f.Size}
	}
	return out
}

// NextVersion is the version that a new asset of this name should have: what the server counts, or "1" for the first.
func (c *Client) NextVersion(ctx context.Context, kind trainyard.Kind, name string) (string, error) {
	data, err := c.Get(ctx, string(kind), name)
	if trainyard.IsNotFound(err) {
		return "1", nil
	}
	if err != nil {
		return "", err
	}
	var r struct {
		Properties struct {
			Next string `json:"nextVersion"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return "", fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return cmp.Or(r.Properties.Next, "1"), nil
}

// Latest is the newest version of an asset, of those that are not archived if there are such.
func (c *Client) Latest(ctx context.Context, kind trainyard.Kind, name string) (json.RawMessage, error) {
	for _, view := range []string{"ActiveOnly", "All"} {
		query := url.Values{"$orderBy": {"createdtime desc"}, "$top": {"1"}, "listViewType": {view}}
		for item, err := range c.List(ctx, query, string(kind), name, "versions") {
			return item, err
		}
	}
	return nil, trainyard.NotFound("%s %q has no version", strings.TrimSuffix(string(kind), "s"), name)
}

// Location is the location of the workspace: where sizes and usage are asked for.
func (c *Client) Location(ctx context.Context) (string, error) {
	a, err := c.Do(ctx, Request{Method: http.MethodGet, Path: c.Path()})
	if err != nil {
		return "", err
	}
	var ws struct {
		Location string `json:"location"`
	}
	if err := json.Unmarshal(a.Body, &ws); err != nil {
		return "", fmt.Errorf("read workspace: %w", err)
	}
	return cmp.Or(ws.Location, trainyard.DefaultLocation), nil
}

func idOf(a *Answer, otherwise string) string {
	var r struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(a.Body, &r) != nil {
		return otherwise
	}
	return cmp.Or(r.ID, otherwise)
}
