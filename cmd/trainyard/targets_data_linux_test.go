package main

import (
	"regexp"
	"strings"

	"github.com/trainyard/trainyard"
)

// readOfData is what data.yml prints of its inputs: each type, in each mode, with what is in it. A direct one is the address itself.
const readOfData = `string two words
number 0.5
integer 7
boolean True
file.ro_mount alpha
file.download alpha
file.rw_mount alpha
file.direct azureml://\S+/a\.txt
folder.ro_mount beta
folder.download alpha
folder.rw_mount alpha
folder.direct azureml://\S+/data/?
table.ro_mount gamma
table.download gamma
  - file: ./rows\.csv
table.direct azureml://\S+/table/?
custom.ro_mount beta
custom.download beta
custom.direct azureml://\S+/b\.txt
mlflow.ro_mount delta
mlflow.download delta
triton.ro_mount epsilon
triton.download epsilon
`

// madeOfData is what data.yml leaves in its outputs, by output and by what is in the file.
var madeOfData = []struct{ output, content string }{
	{"folder", "made folder"}, {"folder_upload", "made uploaded folder"}, {"file", "made file"}, {"file_upload", "made uploaded file"},
	{"table", "made table"}, {"custom", "made custom"}, {"mlflow", "made mlflow"}, {"triton", "made triton"},
}

// checkData has every type of input read and every type of output written, and reads each output back twice: as a download, and as the input of
// another job, which changes two that it has mounted for writing.
func checkData(l *lab, p *place, job string) {
	l.run(p, "data", p.compute, job)
	l.until(job, trainyard.JobCompleted)
	files, log := l.files(job)
	if !regexp.MustCompile("^" + readOfData + "$").MatchString(log) {
		l.t.Errorf("log %q, want %q", log, readOfData)
	}
	var want strings.Builder
	var sets []string
	for _, made := range madeOfData {
		if !strings.Contains(strings.Join(values(files), ""), made.content+"\n") {
			l.t.Errorf("no output is %q: %q", made.content, files)
		}
		want.WriteString(made.output + " " + made.content + "\n")
		sets = append(sets, "inputs."+made.output+".path=azureml://jobs/"+job+"/outputs/"+made.output+"/paths/")
	}
	again := job + "-again"
	l.run(p, "data-again", p.compute, again, sets...)
	l.until(again, trainyard.JobCompleted)
	if _, log := l.files(again); log != want.String() {
		l.t.Errorf("the next job reads %q, want %q", log, want.String())
	}
	if files, _ := l.files(job); files["added.txt"] != "added\n" || files["made-folder.txt"] != "changed\n" || files["file"] != "changed too\n" {
		l.t.Errorf("what it wrote into its inputs is not there: %q", files)
	}
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}
