package stage
import ("testing";"github.com/trainyard/trainyard";"fmt")
func BenchmarkTry(b *testing.B) {
	s := stager(b, &store{dir: b.TempDir()})
	tk := task("env")
	tk.Environment = &trainyard.EnvironmentPlan{Name: "small", CondaFile: "channels: [conda-forge]\ndependencies:\n- python=3.10\n- pip\n- six=1.16\n- pip:\n  - idna==3.7\n"}
	prepare(b, s, tk)
	i:=0
	for b.Loop() {
	i++
	tk.ID = trainyard.TaskID(fmt.Sprint("s/g/w/env.1.",i+1))
	if _, err := s.Prepare(b.Context(), tk, &teller{}); err != nil { b.Fatal(err) }
	}
}
