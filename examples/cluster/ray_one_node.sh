#!/usr/bin/env bash
# A study on this machine through Ray, which is started for it and ended with it:   ./ray_one_node.sh plan.toml
set -eu
exec fulcrum study run "$1" --out "${FULCRUM_OUT:-runs}" --executor ray
