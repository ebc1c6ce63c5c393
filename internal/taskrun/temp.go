package taskrun

// tempPrefix begins the name of a task's temporary folder, which its program holds locked for as long as it lives (holdDir). What a program
// leaves that was killed goes at the next start of one as the same user (sweepTemp). Folders of programs that knew no lock had another name.
const tempPrefix = "trainyard-run-"
