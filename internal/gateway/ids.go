package gateway

import (
	"encoding/hex"
	"math/rand/v2"
)

// requestIDs are the names a request goes by: the caller's x-ms-client-request-id, and an x-request-id that is made where there is none.
type requestIDs struct {
	request, client []byte
	tooLong         bool
}

const maxID = 100

// read copies the ids out of a head.
func (r *requestIDs) read(h *head) {
	r.request, r.client, r.tooLong = r.request[:0], r.client[:0], false
	request, client := h.get(hRequestID), h.get(hMSClientRequestID)
	if len(request) > maxID || len(client) > maxID {
		r.tooLong = true
		request, client = nil, nil
	}
	r.client = append(r.client, client...)
	if r.request = append(r.request, request...); len(r.request) == 0 {
		r.request = appendUUID(r.request)
	}
}

// appendUUID makes a version 4 UUID; it is a name, not a secret.
func appendUUID(to []byte) []byte {
	var b [16]byte
	for i, v := range [2]uint64{rand.Uint64(), rand.Uint64()} {
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	for i, part := range [5][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			to = append(to, '-')
		}
		to = hex.AppendEncode(to, part)
	}
	return to
}

// append writes the ids into an answer.
func (r *requestIDs) append(to []byte) []byte {
	if len(r.request) > 0 {
		to = appendField(to, "x-request-id", r.request)
		to = appendField(to, "x-ms-request-id", r.request)
	}
	if len(r.client) > 0 {
		to = appendField(to, "x-ms-client-request-id", r.client)
	}
	return to
}
