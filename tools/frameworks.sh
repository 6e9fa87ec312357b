#!/usr/bin/env bash
# Runs the tests inside frameworks that set-up does not install (RLlib, tianshou, EnvPool, W&B), in an environment of their
# own under .venvs. Without their packages these tests skip; here each package is there, and the tests that train run, too.
# usage: tools/frameworks.sh [pytest's options]
set -euo pipefail
cd "$(dirname "$0")/.."
# Modules that must be importable, and the tests that use them.
frameworks=(ray.rllib tianshou envpool wandb)
tests=(tests/integrations/test_rllib.py tests/integrations/test_tianshou.py tests/agents/test_envpool.py tests/runners/reports/test_sinks.py)
venv=$PWD/.venvs/frameworks
extras=()
for extra in demo ray atari rllib tianshou envpool wandb; do extras+=(--extra "$extra"); done
env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT="$venv" "$(tools/uv.sh)" sync --frozen --no-install-project "${extras[@]}" --group dev
PYTHONPATH=$PWD/python "$venv/bin/python" -c "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]" "${frameworks[@]}"
PYTHONPATH=$PWD/python "$venv/bin/python" -m pytest -m "not slow" -rs "${tests[@]}" "$@"
