package gateway

import (
	"bytes"
	"net/http"
)

// Limits on what stands before a body. They are those of the common servers, so that what passes here passes the replica too.
const (
	maxHead   = 64 << 10 // of a request or an answer, with its first line
	maxTarget = 8 << 10  // of a request's target
	maxFields = 100      // header fields
)

// field is one header field, pointing into the reader's buffer.
type field struct {
	id          headerID
	name, value []byte
}

// head is what stands before a body: of a request (method, target) or of an answer (status, reason). Its slices point into the buffer it
// was read from, and hold until that is filled again.
type head struct {
	size   int // bytes in the buffer
	method []byte
	target []byte
	status int
	reason []byte
	minor  int // HTTP/1.minor

	fields  []field
	length  int64 // of the body; -1 when it is not said
	chunked bool
	close   bool // Connection: close
	keep    bool // Connection: keep-alive
	upgrade []byte
	expect  bool
	listed  [][]byte // other names in Connection: they end here
}

func (h *head) reset() {
	fields, listed := h.fields[:0], h.listed[:0]
	*h = head{fields: fields, listed: listed, length: -1}
}

// get is the value of the first field with the id, or nil.
func (h *head) get(id headerID) []byte {
	for i := range h.fields {
		if h.fields[i].id == id {
			return h.fields[i].value
		}
	}
	return nil
}

func malformed(status int, message string) *refusal {
	return &refusal{status: status, code: "BadRequest", message: message, close: true}
}

// readHead fills b until a whole head is in it and returns where it ends. A line that ends without a carriage return is refused at once:
// who reads it as a line and who does not would see two different requests.
func readHead(b *reader) (int, error) {
	scanned := 0
	for {
		data := b.data()
		from := max(0, scanned-3)
		if i := bytes.Index(data[from:], crlfcrlf); i >= 0 {
			return from + i + 4, nil
		}
		if bareLF(data, from) {
			return 0, malformed(http.StatusBadRequest, "a line of the request's head ends in LF without CR")
		}
		scanned = len(data)
		if scanned >= maxHead {
			return 0, malformed(http.StatusRequestHeaderFieldsTooLarge, "the request's head is longer than 64 KiB")
		}
		if err := b.fill(maxHead); err != nil {
			return 0, err
		}
	}
}

var crlfcrlf = []byte("\r\n\r\n")

func bareLF(data []byte, from int) bool {
	for i := from; i < len(data); i++ {
		j := bytes.IndexByte(data[i:], '\n')
		if j < 0 {
			return false
		}
		if i += j; i == 0 || data[i-1] != '\r' {
			return true
		}
	}
	return false
}

// parseRequest reads a request's head from data, which ends with an empty line. It refuses all that two readers could read in two ways
// (RFC 9112 sections 2.2, 5, 6.3; RFC 9110 section 5.5).
func (h *head) parseRequest(data []byte) *refusal {
	h.reset()
	h.size = len(data)
	line, rest, bad := cutLine(data)
	if bad != nil {
		return bad
	}
	var ok bool
	var version []byte
	if h.method, line, ok = bytes.Cut(line, space); !ok {
		return malformed(http.StatusBadRequest, "the request line is not METHOD TARGET VERSION")
	}
	if h.target, version, ok = bytes.Cut(line, space); !ok {
		return malformed(http.StatusBadRequest, "the request line is not METHOD TARGET VERSION")
	}
	if !all(h.method, &tokenByte) || len(h.method) == 0 || !all(h.target, &targetByte) || len(h.target) == 0 {
		return malformed(http.StatusBadRequest, "the request line holds a byte that cannot stand there")
	}
	if len(h.target) > maxTarget {
		return malformed(http.StatusRequestURITooLong, "the request's path is longer than 8 KiB")
	}
	if h.minor, ok = parseVersion(version); !ok {
		return malformed(http.StatusHTTPVersionNotSupported, "only HTTP/1.0 and HTTP/1.1 are spoken here")
	}
	if bad := h.parseFields(rest); bad != nil {
		return bad
	}
	return h.checkRequest()
}

var space = []byte(" ")

func parseVersion(v []byte) (minor int, ok bool) {
	if len(v) != 8 || string(v[:7]) != "HTTP/1." || v[7] != '0' && v[7] != '1' {
		return 0, false
	}
	return int(v[7] - '0'), true
}

// checkRequest looks at what the fields mean together.
func (h *head) checkRequest() *refusal {
	hosts := 0
	for i := range h.fields {
		if h.fields[i].id == hHost {
			hosts++
		}
	}
	switch {
	case hosts > 1 || hosts == 0 && h.minor == 1:
		return malformed(http.StatusBadRequest, "a request has one Host header")
	case h.chunked && h.length >= 0:
		return malformed(http.StatusBadRequest, "a request has Content-Length or Transfer-Encoding, not both")
	case h.chunked && h.minor == 0:
		return malformed(http.StatusBadRequest, "Transfer-Encoding is not for HTTP/1.0")
	}
	return nil
}

// parseResponse reads an answer's head.
func (h *head) parseResponse(data []byte) *refusal {
	h.reset()
	h.size = len(data)
	line, rest, bad := cutLine(data)
	if bad != nil {
		return bad
	}
	var ok bool
	if len(line) < 12 || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return malformed(http.StatusBadGateway, "the answer's first line is not VERSION STATUS REASON")
	}
	if h.minor, ok = parseVersion(line[:8]); !ok {
		return malformed(http.StatusBadGateway, "the answer is not HTTP/1.x")
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return malformed(http.StatusBadGateway, "the answer's status is not a number")
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 {
		return malformed(http.StatusBadGateway, "the answer's status is not a status")
	}
	if len(line) > 13 {
		h.reason = line[13:]
	}
	if !all(h.reason, &valueByte) {
		return malformed(http.StatusBadGateway, "the answer's first line holds a byte that cannot stand there")
	}
	if bad := h.parseFields(rest); bad != nil {
		return bad
	}
	if h.chunked && h.length >= 0 { // RFC 9112 6.3: the encoding wins, and the connection is not used again
		h.length, h.close = -1, true
	}
	return nil
}

// cutLine is the first line of data without its end, and what follows.
func cutLine(data []byte) (line, rest []byte, bad *refusal) {
	i := bytes.IndexByte(data, '\n')
	if i < 1 || data[i-1] != '\r' {
		return nil, nil, malformed(http.StatusBadRequest, "a line of the head ends in LF without CR")
	}
	return data[:i-1], data[i+1:], nil
}

// parseFields reads lines up to and with the empty one.
func (h *head) parseFields(data []byte) *refusal {
	for {
		line, rest, bad := cutLine(data)
		if bad != nil {
			return bad
		}
		if len(line) == 0 {
			if len(rest) > 0 {
				return malformed(http.StatusBadRequest, "bytes follow the head's end")
			}
			return nil
		}
		if len(h.fields) >= maxFields {
			return malformed(http.StatusRequestHeaderFieldsTooLarge, "there are more than 100 header fields")
		}
		f, bad := parseField(line)
		if bad != nil {
			return bad
		}
		if bad := h.understand(f); bad != nil {
			return bad
		}
		h.fields = append(h.fields, f)
		data = rest
	}
}

// parseField reads one header line. A line that begins with white space (a folded one) and a name with white space behind it are refused:
// neither is a token.
func parseField(line []byte) (field, *refusal) {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 || !all(line[:colon], &tokenByte) {
		return field{}, malformed(http.StatusBadRequest, "a header line is not NAME: VALUE")
	}
	value := trim(line[colon+1:])
	if !all(value, &valueByte) {
		return field{}, malformed(http.StatusBadRequest, "a header's value holds a byte that cannot stand there")
	}
	return field{id: idOf(line[:colon]), name: line[:colon], value: value}, nil
}

// understand takes note of the fields that say how long a message is and what becomes of its connection.
func (h *head) understand(f field) *refusal {
	switch f.id {
	case hContentLength:
		n, ok := parseLength(f.value)
		if !ok || h.length >= 0 && (h.status == 0 || h.length != n) { // an answer may say the same twice
			return malformed(http.StatusBadRequest, "Content-Length is not one number")
		}
		h.length = n
	case hTransferEncoding:
		if h.chunked {
			return malformed(http.StatusBadRequest, "there are two Transfer-Encoding headers")
		}
		if !equalFold(f.value, "chunked") {
			return malformed(http.StatusNotImplemented, "the only Transfer-Encoding spoken here is chunked")
		}
		h.chunked = true
	case hConnection:
		h.connection(f.value)
	case hUpgrade:
		h.upgrade = f.value
	case hExpect:
		if !equalFold(f.value, "100-continue") {
			return malformed(http.StatusExpectationFailed, "the only expectation understood here is 100-continue")
		}
		h.expect = true
	}
	return nil
}

func (h *head) connection(value []byte) {
	for len(value) > 0 {
		var name []byte
		name, value, _ = bytes.Cut(value, comma)
		switch name = trim(name); {
		case len(name) == 0:
		case equalFold(name, "close"):
			h.close = true
		case equalFold(name, "keep-alive"):
			h.keep = true
		default:
			h.listed = append(h.listed, name)
		}
	}
}

var comma = []byte(",")

// lists says whether Connection names the field.
func (h *head) lists(name []byte) bool {
	for _, l := range h.listed {
		if len(l) == len(name) && bytes.EqualFold(l, name) {
			return true
		}
	}
	return false
}

// switches says whether the head asks for, or agrees to, another protocol on its connection. HTTP/2 in the clear is not passed on: its
// requests could not be told from one another here.
func (h *head) switches() bool {
	return len(h.upgrade) > 0 && h.minor == 1 && h.lists(upgradeName) && !bytes.Contains(bytes.ToLower(h.upgrade), []byte("h2c"))
}

var upgradeName = []byte("Upgrade")

// parseLength reads digits alone: no sign, no white space, no list, at most 18 of them.
func parseLength(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func trim(v []byte) []byte {
	for len(v) > 0 && (v[0] == ' ' || v[0] == '\t') {
		v = v[1:]
	}
	for len(v) > 0 && (v[len(v)-1] == ' ' || v[len(v)-1] == '\t') {
		v = v[:len(v)-1]
	}
	return v
}
