package blob

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// childVar tells the test binary to be the process that is killed, and what to do; dirVar is its blob folder.
const childVar, dirVar = "TRAINYARD_BLOB_CHILD", "TRAINYARD_BLOB_DIR"

func TestMain(m *testing.M) {
	if work := os.Getenv(childVar); work != "" {
		if err := child(work, os.Getenv(dirVar)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// crashBody is version i of the object that is put again and again: large enough to be killed in the middle of, and all of one byte.
func crashBody(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 300_000+i) }

// crashLine is line i of the log that is appended to.
func crashLine(i int) []byte { return fmt.Appendf(nil, "line %d %s\n", i, strings.Repeat("x", i%4000)) }

func child(work, dir string) error {
	ctx := context.Background()
	b, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	switch work {
	case "put":
		for i := 0; ; i++ {
			meta := map[string]string{"version": fmt.Sprint(i)}
			if _, err := b.PutWith(ctx, "c/x", bytes.NewReader(crashBody(i)), "text/plain", meta, false); err != nil {
				return err
			}
			fmt.Println(i)
		}
	case "metadata":
		if _, err := b.PutWith(ctx, "c/x", bytes.NewReader(crashBody(0)), "text/plain", map[string]string{"version": "0"}, false); err != nil {
			return err
		}
		for i := 1; ; i++ {
			if _, err := b.SetMetadata(ctx, "c/x", map[string]string{"version": fmt.Sprint(i)}); err != nil {
				return err
			}
			fmt.Println(i)
		}
	case "append":
		size := int64(0)
		for i := 0; ; i++ {
			if size, err = b.Append(ctx, "c/x", size, crashLine(i)); err != nil {
				return err
			}
			fmt.Println(i)
		}
	case "full":
		return fillDisk(ctx, b)
	}
	return fmt.Errorf("unknown work %q", work)
}

// killed runs the child, kills it -9 at some moment after it has acknowledged some rounds, and returns the last one that it did.
func killed(t *testing.T, work, dir string, rounds int) (last int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+work, dirVar+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := bufio.NewScanner(out)
	for acknowledged.Scan() {
		if _, err := fmt.Sscan(acknowledged.Text(), &last); err != nil {
			t.Errorf("the child says %q", acknowledged.Text())
			break
		}
		if rounds--; rounds == 0 {
			time.AfterFunc(time.Duration(last%7)*137*time.Microsecond, func() { cmd.Process.Kill() }) // somewhere within a round
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	return last
}

// A process killed in the middle of a Put leaves the object whole, as acknowledged or the one that was on its way, its metadata with it.
func TestKilledInAPut(t *testing.T) {
	dir := t.TempDir()
	for round := range 10 {
		last := killed(t, "put", dir, 5+round)
		b, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		r, info, err := b.Open(t.Context(), "c/x", 0)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		i := len(body) - 300_000
		if i != last && i != last+1 || !bytes.Equal(body, crashBody(max(i, 0))) {
			t.Fatalf("round %d: acknowledged version %d, found %d bytes", round, last, len(body))
		}
		if info.Metadata["version"] != fmt.Sprint(i) || info.Type != "text/plain" {
			t.Fatalf("round %d: version %d has metadata %v", round, i, info.Metadata)
		}
		if got := keys(t, b, ""); len(got) != 1 {
			t.Fatalf("round %d: something half-written is seen: %q", round, got)
		}
		b.Close()
	}
}

func TestKilledInSetMetadata(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		last := killed(t, "metadata", dir, 20+round)
		b, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := b.Stat(t.Context(), "c/x")
		if v := info.Metadata["version"]; err != nil || v != fmt.Sprint(last) && v != fmt.Sprint(last+1) || info.Type != "text/plain" {
			t.Fatalf("round %d: acknowledged %d, found %+v, %v", round, last, info, err)
		}
		b.Close()
	}
}

// A process killed in the middle of an Append leaves the log a prefix of what was said, with all that was acknowledged, and the sender
// can go on from the size that it is told.
func TestKilledInAnAppend(t *testing.T) {
	for round := range 10 {
		dir := t.TempDir()
		last := killed(t, "append", dir, 30+37*round)
		var said []byte
		for i := range last + 2 {
			said = append(said, crashLine(i)...)
		}
		acknowledged := len(said) - len(crashLine(last+1))
		b, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		got := content(t, b, "c/x", 0)
		if len(got) < acknowledged || !strings.HasPrefix(string(said), got) {
			t.Fatalf("round %d: acknowledged %d bytes, found %d, not a prefix of what was said", round, acknowledged, len(got))
		}
		size, err := b.Append(t.Context(), "c/x", 0, said)
		if err != nil || size != int64(len(said)) || content(t, b, "c/x", 0) != string(said) {
			t.Fatalf("round %d: sent again from the start: %d, %v; want %d bytes", round, size, err, len(said))
		}
		b.Close()
	}
}

// fillDisk is run on a disk of 1 MiB. It prints what is wrong, or "ok" at the end.
func fillDisk(ctx context.Context, b *Bucket) error {
	if err := b.Put(ctx, "c/small", strings.NewReader("small")); err != nil {
		return err
	}
	err := b.Put(ctx, "c/big", bytes.NewReader(make([]byte, 4<<20)))
	if trainyard.CodeOf(err) != trainyard.CodeInternal || !strings.Contains(err.Error(), "full") || !strings.Contains(err.Error(), b.dir) || !strings.Contains(err.Error(), "free") {
		return fmt.Errorf("Put on a full disk: %v", err)
	}
	if err := b.Put(ctx, "c/small", bytes.NewReader(make([]byte, 4<<20))); err == nil {
		return fmt.Errorf("replaced an object with more than fits")
	}
	data, size := make([]byte, 200_000), int64(0)
	for err = nil; err == nil; {
		size, err = b.Append(ctx, "c/log", size, data)
	}
	if !strings.Contains(err.Error(), "full") {
		return fmt.Errorf("Append on a full disk: %v", err)
	}
	if info, statErr := b.Stat(ctx, "c/log"); statErr != nil || info.Size != size {
		return fmt.Errorf("Append said %d bytes are there; Stat says %d, %v", size, info.Size, statErr)
	}
	all, err := b.List(ctx, "")
	if err != nil || len(all) != 2 || all[1].Key != "c/small" || all[1].Size != 5 {
		return fmt.Errorf("after that the list is %v, %v", all, err)
	}
	if err := b.Delete(ctx, "c/log"); err != nil {
		return err
	}
	if err := b.Put(ctx, "c/after", bytes.NewReader(data)); err != nil {
		return fmt.Errorf("room was made, and still: %v", err)
	}
	fmt.Println("ok")
	return nil
}
