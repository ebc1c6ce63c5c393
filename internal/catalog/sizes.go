package catalog

import (
	"math"

	"github.com/trainyard/trainyard"
)

// series is a VM series: what its sizes have in common.
type series struct {
	name     string // as the documentation names it: DSv3
	family   string // as quotas name it
	gpu      string // model of the GPU
	approval bool   // a quota must be granted first
	cluster  bool   // only for clusters, not for compute instances
	sizes    []row
}

// row is a VM size. Prices are list prices in US dollars an hour (dedicated, Linux, US East) for comparison, not a bill.
type row struct {
	name     string // without "Standard_"
	vcpus    int
	memory   float64 // GiB
	gpus     int
	diskGB   int // temporary disk, GiB
	price    float64
	isolated bool
	rdma     bool
}

func (s *series) size(r row) trainyard.VMSize {
	types := []string{trainyard.ComputeCluster, "ComputeInstance"}
	if s.cluster {
		types = types[:1]
	}
	return trainyard.VMSize{
		Name: "Standard_" + r.name, Family: s.family, Series: s.name,
		VCPUs: r.vcpus, MemoryGB: r.memory, GPUs: r.gpus, GPU: s.gpu, ResourceDiskMB: r.diskGB * 1024,
		PricePerHour: r.price, LowPriorityRate: math.Round(r.price*lowPriorityShare*1e4) / 1e4,
		NeedsApproval: s.approval, Isolated: r.isolated, RDMA: r.rdma, ComputeTypes: types,
	}
}

// lowPriorityShare is what a low-priority node costs of a dedicated one's list price.
const lowPriorityShare = 0.2

// allSeries is read only. Order of columns: name, vCPUs, memory GiB, GPUs, temporary disk GiB, price, isolated, RDMA.
var allSeries = []series{
	{name: "D", family: "standardDFamily", sizes: []row{
		{"D1", 1, 3.5, 0, 50, 0.077, false, false}, {"D2", 2, 7, 0, 100, 0.154, false, false},
		{"D3", 4, 14, 0, 200, 0.308, false, false}, {"D4", 8, 28, 0, 400, 0.616, false, false},
		{"D11", 2, 14, 0, 100, 0.193, false, false}, {"D12", 4, 28, 0, 200, 0.386, false, false},
		{"D13", 8, 56, 0, 400, 0.771, false, false}, {"D14", 16, 112, 0, 800, 1.542, false, false},
	}},
	{name: "Dv2", family: "standardDv2Family", sizes: []row{
		{"D1_v2", 1, 3.5, 0, 50, 0.073, false, false}, {"D2_v2", 2, 7, 0, 100, 0.146, false, false},
		{"D3_v2", 4, 14, 0, 200, 0.293, false, false}, {"D4_v2", 8, 28, 0, 400, 0.585, false, false},
		{"D5_v2", 16, 56, 0, 800, 1.17, false, false}, {"D11_v2", 2, 14, 0, 100, 0.185, false, false},
		{"D12_v2", 4, 28, 0, 200, 0.37, false, false}, {"D13_v2", 8, 56, 0, 400, 0.741, false, false},
		{"D14_v2", 16, 112, 0, 800, 1.482, false, false}, {"D15_v2", 20, 140, 0, 1000, 1.853, false, false},
	}},
	{name: "Dv3", family: "standardDv3Family", sizes: []row{
		{"D2_v3", 2, 8, 0, 50, 0.096, false, false}, {"D4_v3", 4, 16, 0, 100, 0.192, false, false},
		{"D8_v3", 8, 32, 0, 200, 0.384, false, false}, {"D16_v3", 16, 64, 0, 400, 0.768, false, false},
		{"D32_v3", 32, 128, 0, 800, 1.536, false, false}, {"D48_v3", 48, 192, 0, 1200, 2.304, false, false},
		{"D64_v3", 64, 256, 0, 1600, 3.072, false, false},
	}},
	{name: "DSv2", family: "standardDSv2Family", sizes: []row{
		{"DS1_v2", 1, 3.5, 0, 7, 0.073, false, false}, {"DS2_v2", 2, 7, 0, 14, 0.146, false, false},
		{"DS3_v2", 4, 14, 0, 28, 0.293, false, false}, {"DS4_v2", 8, 28, 0, 56, 0.585, false, false},
		{"DS5_v2", 16, 56, 0, 112, 1.17, false, false}, {"DS11_v2", 2, 14, 0, 28, 0.185, false, false},
		{"DS12_v2", 4, 28, 0, 56, 0.37, false, false}, {"DS13_v2", 8, 56, 0, 112, 0.741, false, false},
		{"DS14_v2", 16, 112, 0, 224, 1.482, false, false}, {"DS15_v2", 20, 140, 0, 280, 1.853, false, false},
	}},
	{name: "DSv3", family: "standardDSv3Family", sizes: []row{
		{"D2s_v3", 2, 8, 0, 16, 0.096, false, false}, {"D4s_v3", 4, 16, 0, 32, 0.192, false, false},
		{"D8s_v3", 8, 32, 0, 64, 0.384, false, false}, {"D16s_v3", 16, 64, 0, 128, 0.768, false, false},
		{"D32s_v3", 32, 128, 0, 256, 1.536, false, false}, {"D48s_v3", 48, 192, 0, 384, 2.304, false, false},
		{"D64s_v3", 64, 256, 0, 512, 3.072, false, false},
	}},
	{name: "Ev3", family: "standardEv3Family", sizes: []row{
		{"E2_v3", 2, 16, 0, 50, 0.126, false, false}, {"E4_v3", 4, 32, 0, 100, 0.252, false, false},
		{"E8_v3", 8, 64, 0, 200, 0.504, false, false}, {"E16_v3", 16, 128, 0, 400, 1.008, false, false},
		{"E20_v3", 20, 160, 0, 500, 1.26, false, false}, {"E32_v3", 32, 256, 0, 800, 2.016, false, false},
		{"E48_v3", 48, 384, 0, 1200, 3.024, false, false}, {"E64_v3", 64, 432, 0, 1600, 3.629, false, false},
	}},
	{name: "ESv3", family: "standardESv3Family", sizes: []row{
		{"E2s_v3", 2, 16, 0, 32, 0.126, false, false}, {"E4s_v3", 4, 32, 0, 64, 0.252, false, false},
		{"E8s_v3", 8, 64, 0, 128, 0.504, false, false}, {"E16s_v3", 16, 128, 0, 256, 1.008, false, false},
		{"E20s_v3", 20, 160, 0, 320, 1.26, false, false}, {"E32s_v3", 32, 256, 0, 512, 2.016, false, false},
		{"E48s_v3", 48, 384, 0, 768, 3.024, false, false}, {"E64s_v3", 64, 432, 0, 864, 3.629, false, false},
	}},
	{name: "FSv2", family: "standardFSv2Family", sizes: []row{
		{"F2s_v2", 2, 4, 0, 16, 0.0846, false, false}, {"F4s_v2", 4, 8, 0, 32, 0.169, false, false},
		{"F8s_v2", 8, 16, 0, 64, 0.338, false, false}, {"F16s_v2", 16, 32, 0, 128, 0.677, false, false},
		{"F32s_v2", 32, 64, 0, 256, 1.353, false, false}, {"F48s_v2", 48, 96, 0, 384, 2.03, false, false},
		{"F64s_v2", 64, 128, 0, 512, 2.706, false, false}, {"F72s_v2", 72, 144, 0, 576, 3.045, true, false},
	}},
	{name: "HBv2", family: "standardHBrsv2Family", approval: true, cluster: true, sizes: []row{
		{"HB120rs_v2", 120, 456, 0, 480, 3.6, false, true},
	}},
	{name: "HCS", family: "standardHCSFamily", approval: true, cluster: true, sizes: []row{
		{"HC44rs", 44, 352, 0, 700, 3.168, false, true},
	}},
	{name: "M", family: "standardMSFamily", approval: true, sizes: []row{
		{"M8ms", 8, 218.75, 0, 256, 1.544, false, false}, {"M16ms", 16, 437.5, 0, 512, 3.073, false, false},
		{"M32ts", 32, 192, 0, 1024, 2.707, false, false}, {"M32ls", 32, 256, 0, 1024, 2.852, false, false},
		{"M32ms", 32, 875, 0, 1024, 6.146, false, false}, {"M64ls", 64, 512, 0, 2048, 5.415, false, false},
		{"M64", 64, 1024, 0, 7168, 6.669, false, false}, {"M64m", 64, 1792, 0, 7168, 10.337, false, false},
		{"M64s", 64, 1024, 0, 2048, 6.669, false, false}, {"M64ms", 64, 1792, 0, 2048, 10.337, false, false},
		{"M128", 128, 2048, 0, 14336, 13.338, false, false}, {"M128m", 128, 3892, 0, 14336, 26.688, false, false},
		{"M128s", 128, 2048, 0, 4096, 13.338, false, false}, {"M128ms", 128, 3892, 0, 4096, 26.688, true, false},
	}},
	{name: "NC", family: "standardNCFamily", gpu: "NVIDIA Tesla K80", sizes: []row{
		{"NC6", 6, 56, 1, 340, 0.9, false, false}, {"NC12", 12, 112, 2, 680, 1.8, false, false},
		{"NC24", 24, 224, 4, 1440, 3.6, false, false}, {"NC24r", 24, 224, 4, 1440, 3.96, false, true},
	}},
	{name: "NCsv2", family: "standardNCSv2Family", gpu: "NVIDIA Tesla P100", approval: true, sizes: []row{
		{"NC6s_v2", 6, 112, 1, 736, 2.07, false, false}, {"NC12s_v2", 12, 224, 2, 1474, 4.14, false, false},
		{"NC24s_v2", 24, 448, 4, 2948, 8.28, false, false}, {"NC24rs_v2", 24, 448, 4, 2948, 9.108, false, true},
	}},
	{name: "NCsv3", family: "standardNCSv3Family", gpu: "NVIDIA Tesla V100", approval: true, sizes: []row{
		{"NC6s_v3", 6, 112, 1, 736, 3.06, false, false}, {"NC12s_v3", 12, 224, 2, 1474, 6.12, false, false},
		{"NC24s_v3", 24, 448, 4, 2948, 12.24, true, false}, {"NC24rs_v3", 24, 448, 4, 2948, 13.464, true, true},
	}},
	{name: "NCasT4_v3", family: "standardNCASv3_T4Family", gpu: "NVIDIA T4", sizes: []row{
		{"NC4as_T4_v3", 4, 28, 1, 176, 0.526, false, false}, {"NC8as_T4_v3", 8, 56, 1, 352, 0.752, false, false},
		{"NC16as_T4_v3", 16, 110, 1, 352, 1.204, false, false}, {"NC64as_T4_v3", 64, 440, 4, 2816, 4.352, false, false},
	}},
	{name: "NC_A100_v4", family: "standardNCADSA100v4Family", gpu: "NVIDIA A100 80GB", sizes: []row{
		{"NC24ads_A100_v4", 24, 220, 1, 64, 3.673, false, false}, {"NC48ads_A100_v4", 48, 440, 2, 128, 7.346, false, false},
		{"NC96ads_A100_v4", 96, 880, 4, 256, 14.692, false, false},
	}},
	{name: "NDs", family: "standardNDSFamily", gpu: "NVIDIA Tesla P40", approval: true, sizes: []row{
		{"ND6s", 6, 112, 1, 736, 2.07, false, false}, {"ND12s", 12, 224, 2, 1474, 4.14, false, false},
		{"ND24s", 24, 448, 4, 2948, 8.28, false, false}, {"ND24rs", 24, 448, 4, 2948, 9.108, false, true},
	}},
	{name: "NDv2", family: "standardNDSv2Family", gpu: "NVIDIA Tesla V100", approval: true, sizes: []row{
		{"ND40rs_v2", 40, 672, 8, 2948, 22.032, false, true},
	}},
	{name: "NV", family: "standardNVFamily", gpu: "NVIDIA Tesla M60", sizes: []row{
		{"NV6", 6, 56, 1, 340, 1.14, false, false}, {"NV12", 12, 112, 2, 680, 2.28, false, false},
		{"NV24", 24, 224, 4, 1440, 4.56, false, false},
	}},
	{name: "NVv3", family: "standardNVSv3Family", gpu: "NVIDIA Tesla M60", approval: true, sizes: []row{
		{"NV12s_v3", 12, 112, 1, 320, 1.14, false, false}, {"NV24s_v3", 24, 224, 2, 640, 2.28, false, false},
		{"NV48s_v3", 48, 448, 4, 1280, 4.56, false, false},
	}},
}
