#!/bin/sh
# Installs a real Slurm with accounting from Debian (or Ubuntu), for experiments/fidelity/slurm_box.py and
# `make fidelity`. No service is started or left enabled: the box starts its own daemons, in a
# directory of its own, and stops them again.
set -eu

PACKAGES="slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd slurm-wlm-mysql-plugin munge mariadb-server slurmrestd slurm-wlm-jwt-plugin"
SERVICES="slurmctld slurmd slurmdbd munge mariadb slurmrestd"
PROGRAMS="slurmctld slurmd slurmdbd slurmrestd munged mariadbd mariadb-install-db sbatch sacctmgr"

complete() {
  for program in $PROGRAMS; do
    command -v "$program" > /dev/null 2>&1 || [ -x "/usr/sbin/$program" ] || return 1
  done
}

if complete; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null 2>&1; then
  echo "a real Slurm needs root on Debian or Ubuntu; there: apt-get install $PACKAGES" >&2
  exit 1
fi

# What was there before stays as it was: only services that this script brings are disabled.
brought=""
for service in $SERVICES; do
  [ -e "/lib/systemd/system/$service.service" ] || brought="$brought $service"
done

# https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt: 101 forbids starting services.
POLICY=/usr/sbin/policy-rc.d
if [ ! -e "$POLICY" ]; then
  trap 'rm -f "$POLICY"' EXIT
  printf '#!/bin/sh\nexit 101\n' > "$POLICY"
  chmod 755 "$POLICY"
fi

echo "installing Slurm, munge and MariaDB with apt-get (once)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $PACKAGES > /dev/null
if [ -d /run/systemd/system ]; then
  for service in $brought; do
    systemctl disable --quiet --now "$service" || true
  done
fi
complete
