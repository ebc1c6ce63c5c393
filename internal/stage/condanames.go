package stage

import (
	"strings"
	"sync"
)

// The tables of this file are made when they are first used: most tasks have no conda_file, and the program for one task is to start fast.

// pipNames are packages that conda and pip call by different names.
var pipNames = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"pytorch":             "torch",
		"pytorch-cpu":         "torch",
		"pytorch-gpu":         "torch",
		"matplotlib-base":     "matplotlib",
		"msgpack-python":      "msgpack",
		"py-xgboost":          "xgboost",
		"py-xgboost-cpu":      "xgboost",
		"py-xgboost-gpu":      "xgboost",
		"py-lightgbm":         "lightgbm",
		"opencv":              "opencv-python-headless",
		"py-opencv":           "opencv-python-headless",
		"libopencv":           "opencv-python-headless",
		"pytables":            "tables",
		"pyqt":                "PyQt5",
		"python-graphviz":     "graphviz",
		"tensorflow-base":     "tensorflow",
		"tensorflow-mkl":      "tensorflow",
		"tensorflow-eigen":    "tensorflow",
		"tensorflow-gpu":      "tensorflow",
		"keras-gpu":           "keras",
		"faiss":               "faiss-cpu",
		"pyspark-base":        "pyspark",
		"dask-core":           "dask",
		"distributed-core":    "distributed",
		"jupyter_core":        "jupyter-core",
		"ray-core":            "ray",
		"ray-default":         "ray[default]",
		"ray-tune":            "ray[tune]",
		"importlib_metadata":  "importlib-metadata",
		"ruamel_yaml":         "ruamel.yaml",
		"prompt_toolkit":      "prompt-toolkit",
		"typing_extensions":   "typing-extensions",
		"huggingface_hub":     "huggingface-hub",
		"importlib_resources": "importlib-resources",
	}
})

// pipName is what pip calls a conda package.
func pipName(name string) string {
	if other, ok := pipNames()[name]; ok {
		return other
	}
	return name
}

// sinceNumPy2 are the first versions that conda has for NumPy 2, of packages compiled against NumPy.
var sinceNumPy2 = sync.OnceValue(func() map[string][]int {
	return map[string][]int{"scikit-learn": {1, 5}, "pandas": {2, 2, 2}, "scipy": {1, 13}, "matplotlib": {3, 9}, "pyarrow": {16}, "numba": {0, 60},
		"h5py": {3, 11}, "statsmodels": {0, 14, 2}, "scikit-image": {0, 24}, "shap": {0, 46}}
})

// condaRuntime are the parts of which conda builds Python itself. They stand in files that conda exported.
var condaRuntime = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"_libgcc_mutex": true, "_openmp_mutex": true, "blas": true, "bzip2": true, "ca-certificates": true, "cpuonly": true, "expat": true,
		"ld_impl_linux-64": true, "libblas": true, "libcblas": true, "libexpat": true, "libffi": true, "libgcc": true, "libgcc-ng": true,
		"libgfortran": true, "libgfortran-ng": true, "libgfortran5": true, "libgomp": true, "liblapack": true, "liblzma": true, "libnsl": true,
		"libopenblas": true, "libsqlite": true, "libstdcxx": true, "libstdcxx-ng": true, "libuuid": true, "libxcrypt": true, "libzlib": true,
		"ncurses": true, "nomkl": true, "openblas": true, "openssl": true, "python_abi": true, "pytorch-mutex": true, "readline": true,
		"sqlite": true, "tk": true, "tzdata": true, "xz": true, "zlib": true,
	}
})

// condaOnly are packages that are no Python packages, or whose namesake on an index is something else.
var condaOnly = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"boost": true, "boost-cpp": true, "c-compiler": true, "clang": true, "clangxx": true, "cmdstan": true, "compilers": true,
		"cudatoolkit": true, "cudatoolkit-dev": true, "cudnn": true, "cutensor": true, "cxx-compiler": true, "ffmpeg": true, "fftw": true,
		"fortran-compiler": true, "gcc": true, "gcc_linux-64": true, "gdal": true, "geos": true, "gfortran": true, "git": true, "git-lfs": true,
		"glib": true, "go": true, "graphviz": true, "gxx": true, "gxx_linux-64": true, "hdf5": true, "horovod": true, "icu": true,
		"imagemagick": true, "intel-openmp": true, "jpeg": true, "julia": true, "lame": true, "libboost": true, "libgdal": true, "libpng": true,
		"libsndfile": true, "libtiff": true, "llvm-openmp": true, "magma": true, "make": true, "maven": true, "mkl": true, "mkl-service": true,
		"mkl_fft": true, "mkl_random": true, "mpi": true, "mpich": true, "nccl": true, "nodejs": true, "openjdk": true, "openmpi": true,
		"pandoc": true, "perl": true, "poppler": true, "postgresql": true, "proj": true, "pytorch-cuda": true, "rust": true, "sox": true,
		"swig": true, "sysroot_linux-64": true, "tesseract": true, "texlive-core": true, "ucx": true, "unixodbc": true, "zeromq": true,
	}
})

// onlyConda says whether a package can only be had from conda.
func onlyConda(name string) bool {
	for _, prefix := range []string{"r-", "cuda-", "libcu", "libnv", "bioconductor-", "perl-", "gcc_impl_", "gxx_impl_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return condaOnly()[name] || name == "cuda"
}
