package guides

import "os/exec"

func runGroup(*exec.Cmd) {}
