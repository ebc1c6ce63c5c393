package blobrest_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/blobrest"
)

const account = "devaccount"

var accountKey = []byte("the key of an account")

// server is the door over real blobs, mounted at /blob (path style), at /devaccount (as clients address an account on 127.0.0.1) and at
// the root of devaccount.blob.core.test (host style).
type server struct {
	*httptest.Server
	bucket *blob.Bucket
	signer blobrest.Signer
	log    *bytes.Buffer
}

func serve(t testing.TB) *server {
	t.Helper()
	bucket, err := blob.Open(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{bucket: bucket, signer: blobrest.Signer{Key: []byte("server key")}, log: &bytes.Buffer{}}
	h := blobrest.New(blobrest.Config{Blobs: bucket, Signer: s.signer, Log: slog.New(slog.NewTextHandler(s.log, nil)),
		Allow: func(r *http.Request, perm byte, key string) error {
			switch r.Header.Get("Authorization") {
			case "Bearer admin":
				return nil
			case "Bearer reader":
				if perm == blobrest.Read || perm == blobrest.List {
					return nil
				}
				return trainyard.Errorf(trainyard.CodeForbidden, "a reader cannot %c %s", perm, key)
			}
			return trainyard.Errorf(trainyard.CodeUnknown, "who are you?")
		},
		AccountKey: func(name string) []byte {
			if name == account {
				return accountKey
			}
			return nil
		}})
	mux := http.NewServeMux()
	mux.Handle("/blob/", http.StripPrefix("/blob", h))
	mux.Handle("/"+account+"/", http.StripPrefix("/"+account, h))
	mux.Handle(account+".blob.core.test/", h)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(func() { s.Close(); bucket.Close() })
	return s
}

// answer is a response, read.
type answer struct {
	*http.Response
	body string
}

// do sends a request as admin. headers are "Name: value".
func (s *server) do(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(got)}
}

func (a answer) want(t testing.TB, status int, code string) answer {
	t.Helper()
	if a.StatusCode != status || a.Header.Get("x-ms-error-code") != code {
		t.Errorf("%s %s = %s %q, want %d %q\n%s", a.Request.Method, a.Request.URL, a.Status, a.Header.Get("x-ms-error-code"), status, code, a.body)
	}
	return a
}

const block = "x-ms-blob-type: BlockBlob"

func TestPathAndHostStyleAreOneStore(t *testing.T) {
	s := serve(t)
	s.do(t, "PUT", "/blob/c/dir/a%20b%2Bc", "hello", block).want(t, 201, "")
	got := s.do(t, "GET", "/c/dir/a%20b+c", "", "Host: devaccount.blob.core.test").want(t, 200, "")
	if got.body != "hello" || got.Header.Get("x-ms-version") == "" || got.Header.Get("x-ms-request-id") == "" {
		t.Errorf("got %q, %v", got.body, got.Header)
	}
	got = s.do(t, "GET", "/blob/c/dir/a%20b+c", "", "x-ms-version: 2031-01-01", "x-ms-client-request-id: mine").want(t, 200, "")
	if got.Header.Get("x-ms-version") != "2031-01-01" || got.Header.Get("x-ms-client-request-id") != "mine" {
		t.Errorf("%v", got.Header)
	}
}

func TestErrorsHaveAzuresNames(t *testing.T) {
	s := serve(t)
	s.do(t, "PUT", "/blob/c/x", "hello", block).want(t, 201, "")
	sum := md5.Sum([]byte("hello"))
	md5Of := base64.StdEncoding.EncodeToString(sum[:])
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               string
	}{
		"no such blob":              {"GET", "/blob/c/none", "", nil, 404, "BlobNotFound"},
		"no such blob, HEAD":        {"HEAD", "/blob/c/none", "", nil, 404, "BlobNotFound"},
		"no such blob, DELETE":      {"DELETE", "/blob/c/none", "", nil, 404, "BlobNotFound"},
		"no such blob, metadata":    {"PUT", "/blob/c/none?comp=metadata", "", nil, 404, "BlobNotFound"},
		"no container":              {"GET", "/blob/", "", nil, 400, "InvalidUri"},
		"a container only":          {"GET", "/blob/c", "", nil, 400, "InvalidUri"},
		"our own container":         {"GET", "/blob/uncommitted-blocks/x", "", nil, 400, "InvalidUri"},
		"our own container, list":   {"GET", "/blob/uncommitted-blocks?restype=container&comp=list", "", nil, 400, "InvalidUri"},
		"our own folder":            {"GET", "/blob/.put/x", "", nil, 400, "InvalidResourceName"},
		"climbing":                  {"GET", "/blob/c/%2E%2E/%2E%2E/etc/passwd", "", nil, 400, "InvalidResourceName"},
		"NUL":                       {"PUT", "/blob/c/a%00b", "x", []string{block}, 400, "InvalidResourceName"},
		"below a blob":              {"PUT", "/blob/c/x/y", "x", []string{block}, 409, "ResourceTypeMismatch"},
		"exists already":            {"PUT", "/blob/c/x", "x", []string{block, "If-None-Match: *"}, 409, "BlobAlreadyExists"},
		"not that version":          {"PUT", "/blob/c/x", "x", []string{block, `If-Match: "0"`}, 412, "ConditionNotMet"},
		"nothing to match":          {"PUT", "/blob/c/none", "x", []string{block, "If-Match: *"}, 412, "ConditionNotMet"},
		"read: not that version":    {"GET", "/blob/c/x", "", []string{`If-Match: "0"`}, 412, "ConditionNotMet"},
		"read: not changed":         {"GET", "/blob/c/x", "", []string{"If-None-Match: *"}, 304, "ConditionNotMet"},
		"not changed since":         {"GET", "/blob/c/x", "", []string{"If-Modified-Since: " + time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)}, 304, "ConditionNotMet"},
		"changed since":             {"DELETE", "/blob/c/x", "", []string{"If-Unmodified-Since: " + time.Unix(0, 0).UTC().Format(http.TimeFormat)}, 412, "ConditionNotMet"},
		"another MD5":               {"PUT", "/blob/c/x", "HELLO", []string{block, "Content-MD5: " + md5Of}, 400, "Md5Mismatch"},
		"no MD5":                    {"PUT", "/blob/c/x", "x", []string{block, "Content-MD5: abc"}, 400, "InvalidMd5"},
		"a structured body":         {"PUT", "/blob/c/x", "x", []string{block, "x-ms-structured-body: XSM/1.0"}, 400, "UnsupportedOperation"},
		"no type":                   {"PUT", "/blob/c/x", "x", nil, 400, "UnsupportedOperation"},
		"a page blob":               {"PUT", "/blob/c/x", "", []string{"x-ms-blob-type: PageBlob"}, 400, "UnsupportedOperation"},
		"a copy":                    {"PUT", "/blob/c/x", "", []string{block, "x-ms-copy-source: http://a/b"}, 400, "UnsupportedOperation"},
		"a lease":                   {"PUT", "/blob/c/x?comp=lease", "", nil, 400, "UnsupportedOperation"},
		"a snapshot":                {"GET", "/blob/c/x?snapshot=1", "", nil, 400, "UnsupportedOperation"},
		"bad metadata":              {"PUT", "/blob/c/x?comp=metadata", "", []string{"x-ms-meta-a-b: 1"}, 400, "InvalidMetadata"},
		"much metadata":             {"PUT", "/blob/c/x?comp=metadata", "", []string{"x-ms-meta-a: " + strings.Repeat("x", 9000)}, 400, "MetadataTooLarge"},
		"a range past the end":      {"GET", "/blob/c/x", "", []string{"x-ms-range: bytes=5-"}, 416, "InvalidRange"},
		"a bad block id":            {"PUT", "/blob/c/x?comp=block&blockid=%25", "x", nil, 400, "InvalidQueryParameterValue"},
		"a block list that is none": {"PUT", "/blob/c/x?comp=blocklist", "<x", nil, 400, "InvalidXmlDocument"},
		"committed blocks":          {"PUT", "/blob/c/x?comp=blocklist", "<BlockList><Committed>MQ==</Committed></BlockList>", nil, 400, "InvalidBlockList"},
		"blocks never sent":         {"PUT", "/blob/c/x?comp=blocklist", "<BlockList><Latest>MQ==</Latest></BlockList>", nil, 400, "InvalidBlockList"},
		"maxresults":                {"GET", "/blob/c?restype=container&comp=list&maxresults=0", "", nil, 400, "OutOfRangeQueryParameterValue"},
		"a marker of nobody's":      {"GET", "/blob/c?restype=container&comp=list&marker=!!", "", nil, 400, "InvalidResourceName"},
		"not signed":                {"GET", "/blob/c/x", "", []string{"Authorization: "}, 401, "NoAuthenticationInformation"},
		"nobody we know":            {"GET", "/blob/c/x", "", []string{"Authorization: Bearer x"}, 403, "AuthenticationFailed"},
		"a reader writes":           {"PUT", "/blob/c/x", "", []string{"Authorization: Bearer reader", block}, 403, "AuthorizationPermissionMismatch"},
		"a lite key":                {"GET", "/blob/c/x", "", []string{"Authorization: SharedKeyLite a:b"}, 403, "AuthenticationFailed"},
		"an account without a key":  {"GET", "/blob/c/x", "", []string{"Authorization: SharedKey other:b"}, 403, "AuthenticationFailed"},
		"a key request of last year": {"GET", "/blob/c/x", "", []string{"Authorization: SharedKey devaccount:b",
			"x-ms-date: Sat, 21 Nov 2015 02:40:52 GMT"}, 403, "AuthenticationFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.do(t, c.method, c.path, c.body, c.headers...).want(t, c.status, c.code)
			if c.method != "HEAD" && c.status != 304 && !strings.Contains(got.body, "<Code>"+c.code+"</Code><Message>") {
				t.Errorf("the body is %q", got.body)
			}
		})
	}
	if got := s.do(t, "GET", "/blob/c/x", ""); got.body != "hello" {
		t.Errorf("after all that the blob is %q", got.body)
	}
	if s.log.Len() > 0 {
		t.Errorf("users' errors are in the log: %s", s.log)
	}
}

func TestRangesAreAnsweredAsAzureDoes(t *testing.T) {
	s := serve(t)
	s.do(t, "PUT", "/blob/c/x", "0123456789", block).want(t, 201, "")
	for header, want := range map[string]string{
		"Range: bytes=0-3":                   "0123 bytes 0-3/10",
		"Range: bytes=7-":                    "789 bytes 7-9/10",
		"Range: bytes=7-99":                  "789 bytes 7-9/10",
		"Range: bytes=-2":                    "89 bytes 8-9/10",
		"Range: bytes=-99":                   "0123456789 bytes 0-9/10",
		"x-ms-range: bytes=0-33554431":       "0123456789 bytes 0-9/10",
		"Range: bytes=0-0":                   "0 bytes 0-0/10",
		"Range: bytes=0-9223372036854775807": "0123456789 bytes 0-9/10",
		"Range: bytes=-0":                    "0123456789 ",
		"Range: bytes=-":                     "0123456789 ",
		"Range: bytes=3-1":                   "0123456789 ",
		"Range: bytes=0-1,3-4":               "0123456789 ",
		"Range: lines=1-2":                   "0123456789 ",
		"Range: bytes=a-b":                   "0123456789 ",
	} {
		got := s.do(t, "GET", "/blob/c/x", "", header)
		if text := got.body + " " + got.Header.Get("Content-Range"); text != want {
			t.Errorf("%s: %q, want %q", header, text, want)
		}
		if (got.StatusCode == 206) != strings.Contains(want, "bytes") {
			t.Errorf("%s: %s", header, got.Status)
		}
	}
}

func TestMetadataKeepsLowerCaseOnTheWire(t *testing.T) {
	s := serve(t)
	s.do(t, "PUT", "/blob/c/x", "x", block, "x-ms-meta-Upload_Status: completed").want(t, 201, "")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HEAD /blob/c/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nConnection: close\r\n\r\n")
	raw, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(raw), "\r\nx-ms-meta-upload_status: completed\r\n") {
		t.Errorf("%v\n%s", err, raw)
	}
}

func TestABodyCutShortStoresNothing(t *testing.T) {
	s := serve(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /blob/c/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nx-ms-blob-type: BlockBlob\r\nContent-Length: 100\r\n\r\nhalf")
	conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "IncompleteBody") {
		t.Errorf("%v %s", err, answer)
	}
	s.do(t, "HEAD", "/blob/c/x", "").want(t, 404, "BlobNotFound")
}

func TestNamesThatXMLCannotHold(t *testing.T) {
	s := serve(t)
	s.do(t, "PUT", "/blob/c/a%01%0Ab%20%25", "x", block).want(t, 201, "")
	s.do(t, "PUT", "/blob/c/d%02/x", "x", block).want(t, 201, "")
	got := s.do(t, "GET", "/blob/c?restype=container&comp=list&delimiter=/", "").want(t, 200, "")
	for _, want := range []string{`<Name Encoded="true">a%01%0Ab%20%25</Name>`, `<BlobPrefix><Name Encoded="true">d%02%2F</Name></BlobPrefix>`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
}

// The answer to a Put Block List is lost and the client, as clients do, sends it again.
func TestABlockListCanBeSentAgain(t *testing.T) {
	s := serve(t)
	list := "<?xml version='1.0'?><BlockList><Latest>MQ==</Latest><Uncommitted>Mg==</Uncommitted></BlockList>"
	s.do(t, "PUT", "/blob/c/x?comp=block&blockid=MQ==", "one ").want(t, 201, "")
	s.do(t, "PUT", "/blob/c/x?comp=block&blockid=Mg==", "two").want(t, 201, "")
	first := s.do(t, "PUT", "/blob/c/x?comp=blocklist", list, "If-None-Match: *").want(t, 201, "")
	again := s.do(t, "PUT", "/blob/c/x?comp=blocklist", list, "If-None-Match: *").want(t, 201, "")
	if first.Header.Get("ETag") != again.Header.Get("ETag") || again.Header.Get("ETag") == "" {
		t.Errorf("ETags %q and %q", first.Header.Get("ETag"), again.Header.Get("ETag"))
	}
	s.do(t, "PUT", "/blob/c/x?comp=block&blockid=MQ==", "ONE ").want(t, 201, "")
	s.do(t, "PUT", "/blob/c/x?comp=block&blockid=Mg==", "TWO").want(t, 201, "")
	s.do(t, "PUT", "/blob/c/x?comp=blocklist", list).want(t, 201, "")
	if got := s.do(t, "GET", "/blob/c/x", ""); got.body != "ONE TWO" {
		t.Errorf("sent again with other bytes: %q", got.body)
	}
	s.do(t, "PUT", "/blob/c/x", "otherwise", block).want(t, 201, "")
	s.do(t, "PUT", "/blob/c/x?comp=blocklist", list).want(t, 400, "InvalidBlockList")
}

// brokenBlobs fails as a disk does: what is real of that is tested in internal/blob.
type brokenBlobs struct {
	blobrest.Blobs
	err error
}

func (b brokenBlobs) PutWith(context.Context, string, io.Reader, string, map[string]string, bool) (trainyard.BlobInfo, error) {
	return trainyard.BlobInfo{}, b.err
}

func TestFaultsOfTheServer(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{trainyard.Errorf(trainyard.CodeInternal, "no room: the disk is full"), 507, "InsufficientStorage"},
		{errors.New("secret path /srv/x"), 500, "InternalError"},
		{trainyard.Errorf(trainyard.CodeBusy, "later"), 503, "ServerBusy"},
	} {
		log := &bytes.Buffer{}
		h := blobrest.New(blobrest.Config{Blobs: brokenBlobs{err: c.err}, Log: slog.New(slog.NewTextHandler(log, nil)),
			Allow: func(*http.Request, byte, string) error { return nil }})
		r := httptest.NewRequest("PUT", "/c/x", strings.NewReader("x"))
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("x-ms-blob-type", "BlockBlob")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("x-ms-error-code") != c.code || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: %d %v %s", c.err, w.Code, w.Header(), w.Body)
		}
		if logged := strings.Contains(log.String(), c.err.Error()); logged != (c.status == 500) {
			t.Errorf("%v: logged %q", c.err, log)
		}
	}
}
