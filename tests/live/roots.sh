#!/bin/sh
# Makes Debian systems with newer Slurms in build/slurm-roots (or $GPUYARD_SLURM_ROOTS): trixie has 24.11, sid what
# is newest. Needs root, debootstrap and the mirror that apt uses. What is there already stays.
set -eu
roots="${GPUYARD_SLURM_ROOTS:-build/slurm-roots}"
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null 2>&1; then
  echo "newer Slurms need root on Debian" >&2
  exit 1
fi
if ! command -v debootstrap > /dev/null 2>&1; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq debootstrap > /dev/null
fi
mirror="$(apt-get indextargets --format '$(SITE)|$(ORIGIN)' | grep -m1 '|Debian$' | cut -d'|' -f1)"
packages=slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,munge
mkdir -p "$roots"
for suite in trixie sid; do
  if [ ! -e "$roots/$suite" ]; then
    echo "making a Debian $suite with its Slurm (once; a few minutes)"
    rm -rf "$roots/$suite.part"
    debootstrap --variant=minbase --include="$packages" "$suite" "$roots/$suite.part" "$mirror" > "$roots/$suite.log" 2>&1
    mv "$roots/$suite.part" "$roots/$suite"
  fi
done
