package stage

import "os"

// openPlain opens a file for reading.
func openPlain(path string) (*os.File, error) { return os.Open(path) }
