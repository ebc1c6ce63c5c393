# Installs the Python packages of a conda file on top of an image: runs in a container of it, with the layer's folder at /.trainyard/layer.
# Arguments: the Python version that the file wants, as pip writes one ("" for any), and the packages that only conda has.
set -eu
layer=/.trainyard/layer
env=$layer/env
want=$1 only=$2
# Exit statuses 91 to 93 have words of their own in layer.go; what follows them goes to standard output, on a line of its own.
python=$(command -v python3 || command -v python || true)
conda=
for tool in micromamba mamba conda /opt/conda/bin/conda /opt/miniconda/bin/conda; do
	if command -v "$tool" >/dev/null 2>&1; then
		conda=$(command -v "$tool")
		break
	fi
done

fits() { # whether the image's Python is of the version that is wanted
	[ -n "$python" ] || return 1
	[ -n "$want" ] || return 0
	"$python" - "$want" <<-'END'
		import re, sys
		def parts(s): return [int(n) for n in re.findall(r"\d+", s)]
		ok = True
		for part in sys.argv[1].split(","):
		    op, version = re.match(r"\s*([<>=!~]*)\s*(.*)", part).groups()
		    want = parts(version)
		    have = list(sys.version_info[:3])
		    start = have[: len(want)]
		    if op in ("==", "="): ok &= start == want
		    elif op == "!=": ok &= start != want
		    elif op == "~=": ok &= have >= want and have[: len(want) - 1] == want[:-1]
		    elif op == ">=": ok &= have >= want
		    elif op == ">": ok &= start > want
		    elif op == "<=": ok &= start <= want
		    elif op == "<": ok &= have < want
		sys.exit(0 if ok else 1)
	END
}

if [ -n "$only" ] || ! fits; then
	if [ -z "$conda" ]; then
		[ -z "$only" ] || exit 91
		[ -n "$python" ] || exit 93
		"$python" --version
		exit 92
	fi
	echo "Using $conda"
	export CONDA_PKGS_DIRS="$layer/packages" CONDA_REMOTE_CONNECT_TIMEOUT_SECS=10 CONDA_REMOTE_MAX_RETRIES=2
	case $conda in
	*micromamba) "$conda" create -y -p "$env" -f "$layer/conda.yaml" ;;
	*) "$conda" env create -p "$env" -f "$layer/conda.yaml" ;;
	esac
	rm -rf "$layer/packages"
	exit 0
fi

echo "Using $("$python" --version) of the image"
if command -v uv >/dev/null 2>&1; then
	export UV_CACHE_DIR="$layer/cache" UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=15 UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
	uv venv --system-site-packages --python "$python" "$env"
	if [ -s "$layer/requirements.txt" ]; then uv pip install --python "$env/bin/python" -r "$layer/requirements.txt"; fi
	rm -rf "$layer/cache"
	exit 0
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_PROGRESS_BAR=off
options="--timeout 12 --retries 2"
if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
	"$python" -m venv --system-site-packages --without-pip "$env"
	"$env/bin/python" -Im ensurepip --upgrade --default-pip # venv does the same, and keeps to itself why it failed
	# shellcheck disable=SC2086
	if [ -s "$layer/requirements.txt" ]; then "$env/bin/python" -m pip install $options -r "$layer/requirements.txt"; fi
elif "$python" -c 'import pip, venv' 2>/dev/null; then
	"$python" -m venv --system-site-packages --without-pip "$env"
	# shellcheck disable=SC2086
	if [ -s "$layer/requirements.txt" ]; then "$env/bin/python" -m pip install $options -r "$layer/requirements.txt"; fi
else
	exit 93
fi
