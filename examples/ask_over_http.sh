#!/bin/sh
# Ask a policy what to do now. Start it first:
#   gpuyard serve http --policy sjf+easy --mode active --control start
socket=${1:-gpuyard-serve/agent.socket}
curl --silent --show-error --max-time 2 --unix-socket "$socket" \
  -H 'Content-Type: application/json' http://agent/v1/decide -d '{
    "source": "my scheduler", "now_s": 1800000100,
    "nodes": [{"name": "gn1", "gpus": 8, "cpus": 64, "memory_mib": 512000}],
    "jobs": [
      {"id": "long", "phase": "waiting", "held": "agent", "submit_s": 1800000000, "gpus": 8, "limit_s": 7200},
      {"id": "short", "phase": "waiting", "held": "agent", "submit_s": 1800000050, "gpus": 8, "limit_s": 600}
    ]}'
