package target

import "testing"

func TestGPUsAreCounted(t *testing.T) {
	out := "GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
	if n := countGPUs([]byte(out)); n != 2 {
		t.Errorf("%d GPUs", n)
	}
	if n := countGPUs([]byte("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")); n != 0 {
		t.Errorf("%d GPUs in an error", n)
	}
}
