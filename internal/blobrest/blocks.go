package blobrest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	// blocksContainer holds the blocks of uploads that are not committed: blocksContainer/{blob}/{block}, and what was committed
	// last: blocksContainer/{blob}.done. No request can name it.
	blocksContainer = "uncommitted-blocks"
	blocksKept      = 7 * 24 * time.Hour // as Azure keeps them
	sweepEvery      = time.Hour
	maxBlocks       = 50_000
	maxBlockList    = 16 << 20 // bytes
)

// blocksOf is the prefix of a blob's blocks, without a slash.
func blocksOf(r *request) string {
	sum := sha256.Sum256([]byte(r.key()))
	return blocksContainer + "/" + hex.EncodeToString(sum[:])
}

// blockKey checks a block's id and says where the block is.
func blockKey(r *request, id string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(id)
	if err != nil || len(raw) == 0 || len(raw) > 64 {
		return "", refuse(http.StatusBadRequest, "InvalidQueryParameterValue", "the block id %q is not the base64 of 1 to 64 bytes", id)
	}
	return blocksOf(r) + "/" + hex.EncodeToString(raw), nil
}

// putBlock is Put Block.
func (h *handler) putBlock(r *request) error {
	key, err := blockKey(r, r.q("blockid"))
	if err != nil {
		return err
	}
	sum, body, err := checked(r, r.Body)
	if err != nil {
		return err
	}
	h.sweep(r.Context(), time.Now())
	if _, err := h.Blobs.PutWith(r.Context(), key, body, "", nil, false); err != nil {
		return err
	}
	if sum != nil {
		r.w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	}
	r.w.Header().Set("x-ms-request-server-encrypted", "false")
	r.w.WriteHeader(http.StatusCreated)
	return nil
}

// putBlockList is Put Block List. A list that was committed already, and whose answer was lost on the way, is answered again.
func (h *handler) putBlockList(r *request) error {
	list, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, maxBlockList))
	if err != nil {
		return err
	}
	ids, err := parseBlockList(list)
	if err != nil {
		return err
	}
	if info, ok := h.committed(r, list); ok {
		version(r.w.Header(), info)
		r.w.WriteHeader(http.StatusCreated)
		return nil
	}
	blocks := &blockReader{ctx: r.Context(), blobs: h.Blobs}
	for _, id := range ids {
		key, err := blockKey(r, id)
		if err != nil {
			return err
		}
		if _, err := h.Blobs.Stat(r.Context(), key); trainyard.IsNotFound(err) {
			return refuse(http.StatusBadRequest, "InvalidBlockList", "block %q of blob %q was not sent, or was sent more than %v ago", id, r.blob, blocksKept)
		} else if err != nil {
			return err
		}
		blocks.keys = append(blocks.keys, key)
	}
	defer blocks.Close()
	if err := h.store(r, blocks); err != nil {
		return err
	}
	h.forget(r, list)
	return nil
}

// forget lets go of a committed blob's blocks, and remembers the list. The blob is stored: what goes wrong here is only logged.
func (h *handler) forget(r *request, list []byte) {
	ctx := context.WithoutCancel(r.Context())
	meta := map[string]string{"list": digest(list), "etag": unquote(r.w.Header().Get("ETag"))}
	_, err := h.Blobs.PutWith(ctx, blocksOf(r)+".done", bytes.NewReader(nil), "", meta, false)
	if err = errors.Join(err, h.Blobs.DeletePrefix(ctx, blocksOf(r)+"/")); err != nil {
		h.Log.Error("blocks of a committed blob are left behind", "container", r.container, "blob", r.blob, "error", err)
	}
}

// committed says whether the blob that is there is what this very list made.
func (h *handler) committed(r *request, list []byte) (trainyard.BlobInfo, bool) {
	done, err := h.Blobs.Stat(r.Context(), blocksOf(r)+".done")
	if err != nil || done.Metadata["list"] != digest(list) {
		return trainyard.BlobInfo{}, false
	}
	info, err := h.Blobs.Stat(r.Context(), r.key())
	if err != nil || info.ETag != done.Metadata["etag"] {
		return trainyard.BlobInfo{}, false
	}
	// The same ids may have been sent again with other bytes.
	items, _, _, err := h.Blobs.Page(r.Context(), blocksOf(r)+"/", "", "", 1)
	return info, err == nil && len(items) == 0
}

func digest(list []byte) string {
	sum := sha256.Sum256(list)
	return hex.EncodeToString(sum[:])
}

// parseBlockList reads the ids of a block list in their order.
func parseBlockList(data []byte) ([]string, error) {
	var ids []string
	var list struct {
		Blocks []struct {
			XMLName xml.Name
			ID      string `xml:",chardata"`
		} `xml:",any"`
	}
	if err := xml.Unmarshal(data, &list); err != nil {
		return nil, refuse(http.StatusBadRequest, "InvalidXmlDocument", "the block list is not XML: %v", err)
	}
	if len(list.Blocks) > maxBlocks {
		return nil, refuse(http.StatusBadRequest, "BlockListTooLong", "the list has %d blocks; a blob has at most %d", len(list.Blocks), maxBlocks)
	}
	for _, b := range list.Blocks {
		switch b.XMLName.Local {
		case "Latest", "Uncommitted":
			ids = append(ids, b.ID)
		default:
			return nil, refuse(http.StatusBadRequest, "InvalidBlockList", "the list names a %s block; blobs are kept whole here, and only blocks sent since can be listed (Latest, Uncommitted)", b.XMLName.Local)
		}
	}
	return ids, nil
}

// blockReader reads blocks one after the other, each opened when its turn comes.
type blockReader struct {
	ctx   context.Context // of the request that the reader lives for
	blobs Blobs
	keys  []string
	at    io.ReadCloser
}

func (b *blockReader) Read(p []byte) (int, error) {
	for {
		if b.at == nil {
			if len(b.keys) == 0 {
				return 0, io.EOF
			}
			r, _, err := b.blobs.OpenRange(b.ctx, b.keys[0], 0, -1)
			if err != nil {
				return 0, err
			}
			b.at, b.keys = r, b.keys[1:]
		}
		n, err := b.at.Read(p)
		if err == io.EOF {
			b.at.Close()
			b.at, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (b *blockReader) Close() error {
	if b.at == nil {
		return nil
	}
	return b.at.Close()
}

// sweep removes the blocks of uploads that were abandoned. It is called with every block, and looks once an hour.
func (h *handler) sweep(ctx context.Context, now time.Time) {
	last := h.swept.Load()
	if now.Unix()-last < int64(sweepEvery/time.Second) || !h.swept.CompareAndSwap(last, now.Unix()) {
		return
	}
	for marker := ""; ; {
		items, _, next, err := h.Blobs.Page(ctx, blocksContainer+"/", "", marker, 1000)
		for _, block := range items {
			if now.Sub(block.Modified) > blocksKept && err == nil {
				err = h.Blobs.Delete(ctx, block.Key)
			}
		}
		if err != nil && !trainyard.IsNotFound(err) {
			h.Log.Warn("abandoned blocks are left behind", "error", err)
			return
		}
		if marker = next; marker == "" {
			return
		}
	}
}
