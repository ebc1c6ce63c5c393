package gateway

// headerID names the header fields that the gateway does something about. All others pass as they are.
type headerID uint8

const (
	hOther headerID = iota
	hAuthorization
	hConnection
	hContentLength
	hContentType
	hCookie
	hDeployment
	hExpect
	hForwardedFor
	hForwardedHost
	hForwardedProto
	hHost
	hHop // ends here and needs no closer look: Keep-Alive, Proxy-Connection, …
	hMSClientRequestID
	hMSRequestID
	hProgress
	hRequestID
	hTE
	hTrailer
	hTransferEncoding
	hUpgrade
)

// Names of headers that are written here.
const (
	nameDeployment  = "azureml-model-deployment"
	nameProgress    = "x-trainyard-progress"
	nameWaited      = "x-trainyard-waited-ms"
	nameModelStatus = "ms-azureml-model-error-statuscode"
	nameModelReason = "ms-azureml-model-error-reason"
)

// idOf finds a name in any case. The length decides first, so that most names are told apart without being read.
func idOf(name []byte) headerID {
	for _, h := range byLength[min(len(name), len(byLength)-1)] {
		if equalFold(name, h.name) {
			return h.id
		}
	}
	return hOther
}

type namedID struct {
	name string // in lower case
	id   headerID
}

var byLength = [...][]namedID{
	2:  {{"te", hTE}},
	4:  {{"host", hHost}},
	6:  {{"expect", hExpect}, {"cookie", hCookie}},
	7:  {{"upgrade", hUpgrade}, {"trailer", hTrailer}},
	10: {{"connection", hConnection}, {"keep-alive", hHop}},
	12: {{"content-type", hContentType}, {"x-request-id", hRequestID}},
	13: {{"authorization", hAuthorization}},
	14: {{"content-length", hContentLength}},
	15: {{"x-forwarded-for", hForwardedFor}, {"x-ms-request-id", hMSRequestID}},
	16: {{"x-forwarded-host", hForwardedHost}, {"proxy-connection", hHop}},
	17: {{"transfer-encoding", hTransferEncoding}, {"x-forwarded-proto", hForwardedProto}},
	18: {{"proxy-authenticate", hHop}},
	19: {{"proxy-authorization", hHop}},
	20: {{nameProgress, hProgress}},
	22: {{"x-ms-client-request-id", hMSClientRequestID}},
	24: {{nameDeployment, hDeployment}},
	25: nil,
}

// equalFold compares with s, which is in lower case; only ASCII letters have case in a header.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != s[i] {
			return false
		}
	}
	return true
}

func all(b []byte, set *[256]bool) bool {
	for _, c := range b {
		if !set[c] {
			return false
		}
	}
	return true
}

// Which bytes may stand where: RFC 9110 section 5.6.2 (token), 5.5 (field-value); a target is visible ASCII.
var (
	tokenByte = bytesOf(func(c int) bool {
		switch c {
		case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
			return true
		}
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	})
	valueByte  = bytesOf(func(c int) bool { return c == '\t' || c >= ' ' && c != 0x7f })
	targetByte = bytesOf(func(c int) bool { return c > ' ' && c < 0x7f })
)

func bytesOf(in func(c int) bool) (set [256]bool) {
	for c := range set {
		set[c] = in(c)
	}
	return set
}
