# Sourced by the scripts here: `environment PYTHON PACKAGE...` makes a temporary folder with these
# packages, pinned, and puts its interpreter into $python; OVERRIDES are pins that replace others'.

environment() {
  local version=$1 uv
  shift
  folder=$(mktemp -d)
  trap 'rm -rf -- "$folder"' EXIT
  python3 -m venv "$folder/tools"
  "$folder/tools/bin/python" -m pip install --quiet uv==0.13.9
  uv=$folder/tools/bin/uv
  printf '%s\n' ${OVERRIDES:-} >"$folder/overrides.txt"
  export UV_NO_CONFIG=1 UV_INDEX_STRATEGY=unsafe-best-match CUDA_VISIBLE_DEVICES= TF_CPP_MIN_LOG_LEVEL=3
  [[ -z ${PIP_FIND_LINKS:-} ]] || export UV_FIND_LINKS=$PIP_FIND_LINKS
  "$uv" venv --quiet --python "$version" "$folder/peer"
  "$uv" pip install --quiet --python "$folder/peer" --override "$folder/overrides.txt" "$@"
  python=$folder/peer/bin/python
  cd "$folder"
}
