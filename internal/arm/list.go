package arm

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// listBody is a page of a list.
type listBody struct {
	Value    any     `json:"value"`
	NextLink *string `json:"nextLink"`
}

// pageOf makes the answer of a list: next is the token of the page after it, "" on the last.
func pageOf[T any](c *call, items []T, next string) (reply, error) {
	b := listBody{Value: listOf(items)}
	if next != "" {
		q := c.URL.Query()
		q.Set("$skip", next)
		link := c.base() + c.URL.EscapedPath() + "?" + q.Encode()
		b.NextLink = &link
	}
	return ok(b)
}

// top is how many items a page may have: $top, count or pageSize, whichever the client knows. 0 leaves it to the server.
func top(q url.Values) (int, error) {
	for _, name := range []string{"$top", "count", "pageSize"} {
		text := q.Get(name)
		if text == "" || name == "count" && (text == "true" || text == "false") { // OData's $count by its short name
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, trainyard.Invalid("%s is %q, want a whole number of at least 1", name, text)
		}
		return min(n, 1000), nil
	}
	return 0, nil
}

// view is listViewType.
func view(q url.Values) (trainyard.View, error) {
	text := q.Get("listViewType")
	v := trainyard.View(canon(text, string(trainyard.ViewActive), string(trainyard.ViewArchived), string(trainyard.ViewAll)))
	switch v {
	case "":
		return trainyard.ViewActive, nil
	case trainyard.ViewActive, trainyard.ViewArchived, trainyard.ViewAll:
		return v, nil
	}
	return "", trainyard.Invalid("listViewType is %q; ActiveOnly, ArchivedOnly and All are known", text)
}

// hasAll says whether a map has every "key=value" (or "key") of a list with commas between. An empty list asks for nothing.
func hasAll(m map[string]string, list string) bool {
	for want := range strings.SplitSeq(list, ",") {
		want = strings.TrimSpace(want)
		if want == "" {
			continue
		}
		key, value, exact := strings.Cut(want, "=")
		if got, there := m[key]; !there || exact && got != value {
			return false
		}
	}
	return true
}
