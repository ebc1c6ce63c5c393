package modelserver

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"
)

//go:embed python
var python embed.FS

// launcher starts the Azure inference server. It travels in the command, because the code of a deployment is its author's.
var launcher = read("python/launch.py")

// Snapshot is the name of the embedded code snapshot: what scores an MLflow model that came without a script.
const Snapshot = "mlflow"

const snapshotScript = "score.py"

// Files are the files of Snapshot by their path in it.
func Files() map[string][]byte {
	return map[string][]byte{snapshotScript: []byte(read("python/mlflow/" + snapshotScript))}
}

// Hash is of everything in Files: another build's snapshot has another.
func Hash() string {
	sum := sha256.Sum256([]byte(snapshotScript + "\x00" + read("python/mlflow/"+snapshotScript)))
	return hex.EncodeToString(sum[:])
}

func read(name string) string {
	data, err := python.ReadFile(name)
	if err != nil {
		panic(err) // it is compiled in
	}
	return string(data)
}

// serverCommand runs a scoring script under the Azure inference server. It is for any POSIX shell.
func serverCommand(r Request, script string, drain time.Duration) string {
	host := "127.0.0.1"
	if r.Contained {
		host = "0.0.0.0"
	}
	var b strings.Builder
	layOut(&b, r)
	fmt.Fprintf(&b, "export AML_APP_ROOT=\"$PWD\" AZUREML_APP_ROOT=\"$PWD\"\n")
	fmt.Fprintf(&b, "cat >\"$app/launch.py\" <<'END_OF_LAUNCHER'\n%s\nEND_OF_LAUNCHER\n", strings.TrimSpace(launcher))
	fmt.Fprintf(&b, "python=$(command -v python || command -v python3) || { echo 'The environment has no Python, which scoring scripts need.' >&2; exit 1; }\n")
	fmt.Fprintf(&b, "exec \"$python\" -u \"$app/launch.py\" %s \"${SERVER_PORT:-%d}\" %s %d\n", host, inferencePort, quote(script), seconds(drain))
	return b.String()
}

// layOut writes what makes the folders that Azure promises: AZUREML_MODEL_DIR contains the model's root file or folder by its name.
func layOut(b *strings.Builder, r Request) {
	b.WriteString("set -e\napp=\"${TMPDIR:-/tmp}/azureml-app\"\n")
	if !r.HasModel {
		b.WriteString("export AZUREML_MODEL_DIR=\"$app/azureml-models\"\nmkdir -p \"$AZUREML_MODEL_DIR\"\n")
		return
	}
	fmt.Fprintf(b, "export AZUREML_MODEL_DIR=\"$app\"/azureml-models/%s/%s\nmkdir -p \"$AZUREML_MODEL_DIR\"\n", quote(safeName(r.ModelName)), quote(safeName(r.ModelVersion)))
	fmt.Fprintf(b, "IFS= read -r model <<'END_OF_PATH'\n${{inputs.%s}}\nEND_OF_PATH\n", ModelInput)
	fmt.Fprintf(b, "root=\"$AZUREML_MODEL_DIR\"/%s\n%s", quote(r.ModelRoot), linkModel)
}

// linkModel puts the model at $root. Where cp can do that, a folder is made of real folders with links to its large files and copies of its
// small ones: MLflow 3 refuses a model whose folder or MLmodel is a link out of its place. What an earlier start left there goes first.
const linkModel = `[ ! -d "$root" ] || [ -L "$root" ] || chmod -R u+w "$root"
rm -rf "$root"
if [ -d "$model" ] && cp -rs "$model" "$root" 2>/dev/null && chmod -R u+w "$root" &&
	(cd "$model" && find . -type f -size -2049 -exec cp --parents --remove-destination -t "$root" {} +); then
	: # -size counts in halves of a KiB
else
	[ ! -d "$root" ] || chmod -R u+w "$root"
	rm -rf "$root"
	ln -s "$model" "$root"
fi
`

// seconds is d as gunicorn counts, not less than d.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// quote makes one word for the shell of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// rootName is the name of the model's root below AZUREML_MODEL_DIR.
func rootName(s string) string {
	s = path.Base(strings.TrimRight(strings.ReplaceAll(s, `\`, "/"), "/"))
	if s == "." || s == ".." || s == "/" || strings.ContainsAny(s, "\x00\n") {
		return "model"
	}
	return s
}

var unsafeChars = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// safeName is a name that can be that of a folder.
func safeName(s string) string {
	if s = strings.TrimLeft(unsafeChars.ReplaceAllString(s, "_"), "."); s == "" {
		return "model"
	}
	return s
}
