package trainyard

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// DefaultExperiment is the experiment of jobs and runs that name none.
const DefaultExperiment = "Default"

// runLogs is the container of what MLflow clients logged. No datastore can have its name, which begins with no letter.
const runLogs = "_mlflow"

// ExperimentID is the ID by which MLflow knows the experiment of that name: the same every time, and 18 decimal digits, as MLflow's own
// are. The default experiment has the ID "0", which MLflow's clients assume when they are told of none. Names compare with regard to case.
func ExperimentID(scope Scope, name string) string {
	if name == DefaultExperiment || name == "" {
		return "0"
	}
	sum := sha256.Sum256([]byte("experiment " + scope.Key() + "\n" + name))
	const first = 100_000_000_000_000_000 // so that there are always 18 digits
	return fmt.Sprint(first + binary.BigEndian.Uint64(sum[:8])%(9*first))
}

// RunLog is the blob prefix, without a slash at its end, of what MLflow clients logged to a run: metrics, parameters, tags. It is not
// among the run's artifacts, which clients download; who deletes a job deletes both.
func RunLog(scope Scope, run string) string {
	return DataPath{Scope: scope, Datastore: runLogs, Path: "runs/" + run}.Key()
}
