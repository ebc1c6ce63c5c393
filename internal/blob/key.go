package blob

import (
	"strings"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

const (
	maxKey  = 1024 // bytes, as Azure counts
	maxName = 220  // bytes of one escaped part: file systems hold 255, and a version is added in metaDir
)

// diskName checks the key of an object and returns where it is on disk, with slashes.
func diskName(key string) (string, error) {
	if !strings.Contains(key, "/") {
		return "", trainyard.Invalid("blob key %q names no container: want container/path", key)
	}
	return escapeKey(key)
}

// escapeKey checks a key, or the beginning of one up to a slash, and returns its name on disk.
func escapeKey(key string) (string, error) {
	switch {
	case len(key) > maxKey:
		return "", trainyard.Invalid("blob key %.60q… is %d bytes long; at most %d are allowed", key, len(key), maxKey)
	case !utf8.ValidString(key):
		return "", trainyard.Invalid("blob key %q is not valid UTF-8; rename the file", key)
	case strings.IndexByte(key, 0) >= 0:
		return "", trainyard.Invalid("blob key %q holds a NUL byte", key)
	case strings.HasPrefix(key, "."):
		return "", trainyard.Invalid("blob key %q: a container's name cannot begin with a dot", key)
	}
	parts := strings.Split(key, "/")
	for i, p := range parts {
		if p == "" || p == "." || p == ".." {
			return "", trainyard.Invalid("blob key %q has %q between slashes; every part needs a name", key, p)
		}
		parts[i] = escapeName(p)
		if len(parts[i]) > maxName {
			return "", trainyard.Invalid("blob key %q: the part %.40q… is too long for a file name (%d bytes, at most %d)", key, p, len(parts[i]), maxName)
		}
	}
	return strings.Join(parts, "/"), nil
}

const upperHex = "0123456789ABCDEF"

// escapeName writes one part of a key so that every file system can hold it, so that it means nothing special to fileblob ("__0x…",
// ".attrs", ".."), and so that no two parts have the same name.
func escapeName(part string) string {
	var out strings.Builder
	last, dot := len(part)-1, strings.LastIndexByte(part, '.')
	device := isDevice(part)
	for i := range len(part) {
		c := part[i]
		special := c < 0x20 || c == 0x7f || strings.IndexByte(`%<>:"|?*\`, c) >= 0 ||
			i == last && (c == '.' || c == ' ') ||
			i == dot && part[i:] == ".attrs" ||
			c == '_' && strings.HasPrefix(part[i:], "__0x") ||
			i == 0 && device
		if special {
			out.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// isDevice says whether Windows takes the name for a device, whatever its extension.
func isDevice(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	return len(base) == 4 && (strings.HasPrefix(base, "COM") || strings.HasPrefix(base, "LPT")) && base[3] >= '0' && base[3] <= '9'
}

// unescapeName undoes escapeName. ok is false for a name that escapeName does not make: it is not ours.
func unescapeName(name string) (part string, ok bool) {
	var out strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			out.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false
		}
		hi, lo := strings.IndexByte(upperHex, name[i+1]), strings.IndexByte(upperHex, name[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		out.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	part = out.String()
	return part, part != "" && escapeName(part) == name
}
